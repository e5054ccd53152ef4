// SPDX-License-Identifier: MIT OR GPL-2.0-or-later
/* /proc/driver/nvidia: version, params and gpus/ADDRESS/information, to the byte as the real files are laid out. */
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

static int show_params(struct seq_file *file, void *unused)
{
	nv_show_params(file);
	return 0;
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
