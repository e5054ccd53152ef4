// SPDX-License-Identifier: MIT OR GPL-2.0-or-later
/* /proc/driver/nvidia: version, params and gpus/ADDRESS/information, to the byte as the real files are laid out. */
#include <linux/moduleparam.h>
#include <linux/seq_file.h>

#include "conftest/compiler.h"
#include "nv.h"

#if !defined(NV_PROC_CREATE_SINGLE_DATA_PRESENT)
#error "this kernel has no proc_create_single_data()"
#endif

#define NV_DMA_BITS 47

static struct proc_dir_entry *nv_folder, *nv_gpus_folder;

static int show_version(struct seq_file *file, void *unused)
{
	seq_printf(file, "NVRM version: %s\nGCC version:  %s\n", nv_id, NV_COMPILER);
	return 0;
}

/* NVreg_... options: order, names and defaults of an open 570. Their nodes below /sys/module/nvidia/parameters do not exist (mode 0),
 * which is why params is the place to look. */
#define NUMBERS(X)                                                                                                     \
	X(ResmanDebugLevel, ~0U) X(RmLogonRC, 1) X(ModifyDeviceFiles, 1) X(DeviceFileUID, 0) X(DeviceFileGID, 0)       \
	X(DeviceFileMode, 0666) X(InitializeSystemMemoryAllocations, 1) X(UsePageAttributeTable, ~0U) X(EnableMSI, 1)  \
	X(EnablePCIeGen3, 0) X(MemoryPoolSize, 0) X(KMallocHeapMaxSize, 0) X(VMallocHeapMaxSize, 0)                    \
	X(IgnoreMMIOCheck, 0) X(EnableStreamMemOPs, 0) X(EnableUserNUMAManagement, 1) X(NvLinkDisable, 0)              \
	X(RmProfilingAdminOnly, 1) X(PreserveVideoMemoryAllocations, 0) X(EnableS0ixPowerManagement, 0)                \
	X(S0ixPowerManagementVideoMemoryThreshold, 256) X(DynamicPowerManagement, 3)                                   \
	X(DynamicPowerManagementVideoMemoryThreshold, 200) X(RegisterPCIDriver, 1)                                     \
	X(EnablePCIERelaxedOrderingMode, 0) X(EnableResizableBar, 0) X(EnableGpuFirmware, 18)                          \
	X(EnableGpuFirmwareLogs, 2) X(EnableDbgBreakpoint, 0) X(OpenRmEnableUnsupportedGpus, 1)                        \
	X(DmaRemapPeerMmio, 1) X(ImexChannelCount, 2048) X(CreateImexChannel0, 0) X(GrdmaPciTopoCheckOverride, 0)
#define TEXTS(X)                                                                                                       \
	X(CoherentGPUMemoryMode) X(RegistryDwords) X(RegistryDwordsPerDevice) X(RmMsg) X(GpuBlacklist)                 \
	X(TemporaryFilePath) X(ExcludedGpus)

#define DEFINE_NUMBER(name, value)                                                                                     \
	static unsigned int NVreg_##name = value;                                                                      \
	module_param(NVreg_##name, uint, 0);
NUMBERS(DEFINE_NUMBER)
#define DEFINE_TEXT(name)                                                                                              \
	static char *NVreg_##name;                                                                                     \
	module_param(NVreg_##name, charp, 0);
TEXTS(DEFINE_TEXT)

static int show_params(struct seq_file *file, void *unused)
{
#define SHOW_NUMBER(name, value) seq_printf(file, #name ": %u\n", NVreg_##name);
	NUMBERS(SHOW_NUMBER)
#define SHOW_TEXT(name) seq_printf(file, #name ": \"%s\"\n", NVreg_##name ? NVreg_##name : "");
	TEXTS(SHOW_TEXT)
	return 0;
}

unsigned int nv_resizable_bar(void)
{
	return NVreg_EnableResizableBar;
}

static int show_information(struct seq_file *file, void *unused)
{
	const struct nv_gpu *gpu = file->private;
	struct pci_dev *dev = gpu->dev;
	char uuid[NV_UUID_LENGTH];

	nv_gpu_uuid(pci_domain_nr(dev->bus) << 16 | pci_dev_id(dev), dev->device, uuid);
	seq_printf(file, "Model: \t\t %s\n", nv_gpu_name(dev->device));
	seq_printf(file, "IRQ:   \t\t %u\n", dev->irq);
	seq_printf(file, "GPU UUID: \t %s\n", uuid);
	seq_printf(file, "Video BIOS: \t %s\n", nv_gpu_vbios(dev->device));
	seq_puts(file, "Bus Type: \t PCIe\n");
	seq_printf(file, "DMA Size: \t %d bits\n", NV_DMA_BITS);
	seq_printf(file, "DMA Mask: \t 0x%llx\n", (1ULL << NV_DMA_BITS) - 1);
	seq_printf(file, "Bus Location: \t %s\n", pci_name(dev));
	seq_printf(file, "Device Minor: \t %u\n", gpu->minor);
	seq_printf(file, "GPU Firmware: \t %s\n", nv_version);
	seq_puts(file, "GPU Excluded:\t No\n");
	return 0;
}

int nv_procfs_add_gpu(struct nv_gpu *gpu)
{
	gpu->folder = proc_mkdir(pci_name(gpu->dev), nv_gpus_folder);
	if (!gpu->folder || !proc_create_single_data("information", 0444, gpu->folder, show_information, gpu)) {
		nv_procfs_remove_gpu(gpu);
		return -ENOMEM;
	}
	return 0;
}

void nv_procfs_remove_gpu(struct nv_gpu *gpu)
{
	proc_remove(gpu->folder);
}

int nv_procfs_init(void)
{
	nv_folder = proc_mkdir("driver/nvidia", NULL);
	if (!nv_folder)
		return -ENOMEM;
	nv_gpus_folder = proc_mkdir("gpus", nv_folder);
	if (nv_gpus_folder && proc_create_single_data("version", 0444, nv_folder, show_version, NULL) &&
	    proc_create_single_data("params", 0444, nv_folder, show_params, NULL))
		return 0;
	nv_procfs_exit();
	return -ENOMEM;
}

void nv_procfs_exit(void)
{
	proc_remove(nv_folder);
}
