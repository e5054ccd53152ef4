// SPDX-License-Identifier: MIT OR GPL-2.0-or-later
/* NVreg_... options, and how /proc/driver/nvidia/params shows them: order, names and defaults of an open 570. Their nodes
 * below /sys/module/nvidia/parameters do not exist (mode 0), which is why params is the place to look. */
#include <linux/moduleparam.h>
#include <linux/seq_file.h>

#include "nv.h"

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

void nv_show_params(struct seq_file *file)
{
#define SHOW_NUMBER(name, value) seq_printf(file, #name ": %u\n", NVreg_##name);
	NUMBERS(SHOW_NUMBER)
#define SHOW_TEXT(name) seq_printf(file, #name ": \"%s\"\n", NVreg_##name ? NVreg_##name : "");
	TEXTS(SHOW_TEXT)
}

unsigned int nv_resizable_bar(void)
{
	return NVreg_EnableResizableBar;
}
