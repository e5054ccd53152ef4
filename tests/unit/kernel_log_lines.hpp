// SPDX-License-Identifier: MIT
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/probe.hpp"
#include "base/recorded.hpp"
#include "temporary.hpp"

namespace p2pd {
extern const Probe kKernelLog;
}

namespace p2pd::test {

/// {row of config/signatures.yaml, record of the kernel as /dev/kmsg has it}: each row of the kernel's log at least
/// once, in the forms that Linux 5.15 to 7.0 and drivers 470 to 610 print.
inline const std::vector<std::pair<std::string, std::string>> kKernelLines = {
    {"module-key-rejected", "Loading of unsigned module is rejected"},
    {"module-key-rejected", "Loading of module with unavailable key is rejected"},
    {"module-key-rejected", "Request for unknown module key 'DKMS module signing key: 00aa' err -11"},
    {"module-key-rejected", "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7"},
    {"module-key-rejected", "Lockdown: systemd-modules: unsigned module loading is restricted"},
    {"amd-iommu-page-fault",
     "nvidia 0000:21:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0015 address=0xf3000040 flags=0x0030]"},
    {"amd-iommu-page-fault",
     "AMD-Vi: Event logged [IO_PAGE_FAULT device=21:00.0 domain=0x0015 address=0xf3000000 flags=0x0030]"},
    {"amd-iommu-page-fault", "IO_PAGE_FAULT device=21:00.0 domain=0x0015 address=0xf3000000 flags=0x0030]"},
    {"intel-iommu-fault",
     "DMAR: [DMA Write NO_PASID] Request device [0x01:0x00.0] fault addr 0xf3000000 [fault reason 0x05] PTE Write "
     "access is not set"},
    {"intel-iommu-fault",
     "DMAR: [DMA Read PASID 0x1] Request device [21:00.0] fault addr 0x7f000000 [fault reason 0x06] PTE Read access "
     "is not set"},
    {"intel-iommu-fault",
     "DMAR: [DMA Write] Request device [01:00.0] PASID ffffffff fault addr f3000000 [fault reason 05] PTE Write "
     "access is not set"},
    {"intel-iommu-fault",
     "DMAR:[DMA Read] Request device [01:00.0] fault addr f3000000 \\x0aDMAR:[fault reason 06] PTE Read access is "
     "not set"},
    {"nouveau-drives-gpu", "nouveau 0000:01:00.0: NVIDIA AD102 (192000a1)"},
    {"gpu-owned-by-another-driver", "NVRM: The NVIDIA probe routine was not called for 2 device(s)."},
    {"gpu-owned-by-another-driver",
     "NVRM: This can occur when a driver such as: \\x0aNVRM: nouveau, rivafb, nvidiafb or rivatv \\x0aNVRM: was "
     "loaded and obtained "
     "ownership of the NVIDIA device(s)."},
    {"gpu-owned-by-another-driver", "NVRM: GPU 0000:01:00.0 is already bound to NovaCore."},
    {"gpu-owned-by-another-driver", "NVRM: GPU 0000:01:00.0 is already bound to nouveau."},
    {"gsp-version-mismatch",
     "NVRM: GPU0 _kgspFwContainerVerifyVersion: GSP firmware image version mismatch: got version 595.71.05, expected "
     "version 595.58.03"},
    {"gsp-version-mismatch",
     "NVRM: _kgspFwContainerVerifyVersion: GSP firmware image version mismatch: got version 595.71.05, expected "
     "version 595.58.03"},
    {"gsp-version-mismatch", "GSP firmware image version mismatch: got version 595.71.05, expected version 595.58.03"},
    {"gsp-firmware-missing",
     "nvidia 0000:01:00.0: Direct firmware load for nvidia/595.58.03/gsp_ga10x.bin failed with error -2"},
    {"gsp-firmware-missing", "Direct firmware load for nvidia/595.58.03/gsp_ga10x.bin failed with error -2"},
    {"gsp-firmware-missing", "NVRM: RmFetchGspRmImages: No firmware image found"},
    {"gsp-firmware-missing", "NVRM: GPU0 RmFetchGspRmImages: No firmware image found"},
    {"needs-open-module",
     "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2bb1)\\x0aNVRM: installed in this system requires use of the "
     "NVIDIA open kernel "
     "modules."},
    {"needs-open-module", "NVRM: installed in this system requires use of the NVIDIA open kernel modules."},
    {"gpu-without-gsp",
     "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1db5)\\x0aNVRM: installed in this system is not supported by "
     "open\\x0aNVRM: "
     "nvidia.ko because it does not include the required GPU\\x0aNVRM: System Processor (GSP)."},
    {"gpu-without-gsp", "NVRM: installed in this system is not supported by open"},
    {"driver-does-not-know-gpu",
     "NVRM: The NVIDIA GPU 0000:07:00.0 (PCI ID: 10de:20b0)\\x0aNVRM: installed in this system is not supported by "
     "the\\x0aNVRM: NVIDIA "
     "440.33.01 driver release."},
    {"driver-does-not-know-gpu", "NVRM: installed in this system is not supported by the"},
    {"driver-does-not-know-gpu",
     "NVRM: The NVIDIA GeForce GTX 560 GPU installed in this system is\\x0aNVRM: supported through the NVIDIA 390.xx "
     "Legacy drivers. Please"},
    {"api-mismatch",
     "NVRM: API mismatch: the client has the version 470.57.02, but\\x0aNVRM: this kernel module has the version "
     "470.42.01."},
    {"api-mismatch", "NVRM: API mismatch: the client 'nvidia-smi' (pid 1234) has the version 595.84,"},
    {"bar1-not-assigned",
     "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\\x0aNVRM: BAR1 is 0M @ 0x0 "
     "(PCI:0000:01:00.0)"},
    {"bar1-not-assigned", "NVRM: BAR0 is 0M @ 0x0 (PCI:0000:01:00.0)"},
    {"bar-no-space", "pci 0000:01:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space"},
    {"bar-no-space", "pci 0000:01:00.0: BAR 1: no space for [mem size 0x800000000 64bit pref]"},
    {"bar1-p2p-alignment",
     "NVRM: _kbusCreateStaticBar1IOMMUMapping: The peer DMA address 0x6000400000 is not aligned at 0x20000000"},
    {"bar1-p2p-alignment",
     "NVRM: GPU1 _kbusCreateStaticBar1IOMMUMapping: The peer DMA address 0x6000400000 is not aligned at 0x20000000"},
    {"bar1-p2p-alignment",
     "NVRM: GPU0 kbusGetBar1P2PDmaInfo_GH100: peer DMA address 0x7e00400000 is not aligned at 0x20000000"},
    {"page-table-field",
     "NVRM: nvAssertFailed: Assertion failed: (shifted >> pField->shift) == value @ field_desc.h:272"},
    {"page-table-field",
     "NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: (shifted >> pField->shift) == value @ field_desc.h:272"},
    {"xid-31-unsupported-kind",
     "NVRM: Xid (PCI:0000:01:00): 31, pid=4242, name=simpleP2P, Ch 00000008, intr 00000000. MMU Fault: ENGINE CE3 "
     "HUBCLIENT_CE1 faulted @ "
     "0x7f97_94000000. Fault is of type FAULT_INFO_TYPE_UNSUPPORTED_KIND ACCESS_TYPE_VIRT_WRITE"},
    {"xid-31-unsupported-aperture",
     "NVRM: Xid (PCI:0000:01:00): 31, pid=4242, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS "
     "GPC1 GPCCLIENT_T1_8 "
     "faulted @ 0x7fed_ea201000. Fault is of type FAULT_UNSUPPORTED_APERTURE ACCESS_TYPE_VIRT_WRITE"},
    {"xid-31-unsupported-aperture",
     "NVRM: Xid (PCI:0000:01:00): 31, MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x7fed_ea201000. "
     "Fault is of type "
     "FAULT_INFO_TYPE_UNSUPPORTED_APERTURE ACCESS_TYPE_VIRT_WRITE"},
    {"gsp-wpr2-still-up", "NVRM: GPU0 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP"},
    {"xid-79-fallen-off-bus",
     "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."},
    {"xid-79-fallen-off-bus", "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus."},
    {"xid-79-fallen-off-bus", "NVRM: GPU at PCI:0000:21:00 has fallen off the bus."},
    {"xid-79-fallen-off-bus", "NVRM: GPU at PCI:0000:21:00.0: GPU has fallen off the bus"},
    {"xid-79-fallen-off-bus",
     "NVRM: The NVIDIA GPU 0000:01:00.0\\x0aNVRM: (PCI ID: 10de:2f04) installed in this system has\\x0aNVRM: fallen "
     "off the bus and is not "
     "responding to commands."},
    {"xid-79-fallen-off-bus", "NVRM: fallen off the bus and is not responding to commands."},
    {"xid-143-fsp", "NVRM: Xid (PCI:0000:01:00): 143, GPU0 FSP boot failed"},
    {"xid-119-gsp-timeout",
     "NVRM: Xid (PCI:0000:01:00): 119, pid=77, name=init, Timeout after 6s of waiting for RPC response from GPU0 "
     "GSP!"},
    {"xid-119-gsp-timeout", "NVRM: Xid (PCI:0000:01:00): 120, pid='<unknown>', name=<unknown>, GSP task exception"},
    {"xid-32-push-buffer", "NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000012 intr 00000004"},
    {"xid-hardware", "NVRM: Xid (PCI:0000:01:00): 62, 023f0f30 00000000 00000000 202c0ffe"},
    {"xid-hardware", "NVRM: Xid (PCI:0000:01:00): 94, pid=4242, name=python3, Contained: SM (0x1). RST: No, D-RST: No"},
    {"xid-154-recovery",
     "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"},
    {"xid-154-recovery",
     "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"},
    {"xid-154-recovery",
     "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from None to Node Reboot Required"},
    {"gpu-init-failed", "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2192)"},
    {"gpu-init-failed", "NVRM: GPU 0001:00:00.0: rm_init_adapter failed, device minor number 0"},
    {"gpu-init-failed", "NVRM: RmInitAdapter failed! (0x26:0xffff:1269)"},
    {"nvidia-probe-failed", "NVRM: The NVIDIA probe routine failed for 1 device(s)."},
    {"nvidia-probe-failed", "NVRM: None of the NVIDIA devices were initialized."},
    {"iommu-translates", "iommu: Default domain type: Translated "},
    {"amd-iommu-present", "pci 0000:00:00.2: AMD-Vi: Found IOMMU cap 0x40"},
    {"amd-iommu-present", "AMD-Vi: Extended features (0x58f77ef22294a5a): PPR NX GT IA PC GA_vAPIC"},
    {"intel-iommu-present", "DMAR: IOMMU enabled"},
    {"intel-iommu-present", "DMAR: Intel(R) Virtualization Technology for Directed I/O"},
    {"static-bar1", "NVRM: kbusEnableStaticBar1Mapping_GH100: Static bar1 mapped offset 0x0 size 0x5e9200000"},
    {"static-bar1", "NVRM: GPU0 kbusEnableStaticBar1Mapping_TU102: Static bar1 mapped offset 0x0 size 0x5ff200000"},
    {"bar1-p2p-mapping",
     "NVRM: kbusCreateP2PMappingForBar1P2P_GH100: added PCIe BAR1 P2P mapping between GPU2 and GPU3"},
    {"iovas-left-over", "NVRM: iovaspaceDestruct_IMPL: 4 left-over mappings in IOVAS 0x100"},
    {"iovas-left-over", "NVRM: nvAssertFailedNoLog: Assertion failed: pIOVAS != NULL @ io_vaspace.c:592"},
    {"application-fault", "NVRM: Xid (PCI:0000:01:00): 13, Graphics Exception: ESR 0x404600=0x80000002"},
    {"application-fault", "NVRM: Xid (PCI:0000:01:00): 45, pid=9684, name=python, channel 0x00000015"},
    {"nvidia-drm-failed",
     "[drm:nv_drm_load [nvidia_drm]] *ERROR* [nvidia-drm] [GPU ID 0x00000100] Failed to allocate NvKmsKapiDevice"},
    {"pcie-uncorrectable", "pcieport 0000:00:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:01:00.0"},
    {"pcie-uncorrectable",
     "pcieport 0000:00:01.0: AER: Multiple Uncorrectable (Fatal) error message received from 0000:01:00.0"},
    {"pcie-uncorrectable",
     "nvidia 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)"},
    {"pcie-uncorrectable",
     "nvidia 0000:01:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Inaccessible, (Unregistered "
     "Agent ID)"},
    {"zbc-not-referenced",
     "NVRM: nvAssertOkFailedNoLog: Assertion failed: Requested object not found [NV_ERR_OBJECT_NOT_FOUND] "
     "(0x00000057) "
     "returned from pRmApi->Control( pRmApi, hClient, hDevice, NV0080_CTRL_CMD_INTERNAL_MEMSYS_SET_ZBC_REFERENCED, "
     "&params, sizeof(params)) @ mem_mgr_gm107.c:283"},
    {"nvrm-assertion",
     "NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: 0 == (physAddr & (RM_PAGE_SIZE_HUGE - 1)) @ "
     "mem_mgr_gm107.c:1312"},
    {"nvrm-assertion",
     "NVRM: nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from x @ "
     "y.c:9"},
    {"nvrm-assertion", "NVRM: rcdbAddRmGpuDump: GPU lost, skipping crash dump"},
    {"unpatched-return-thunk", "Unpatched return thunk in use. This should not happen!"},
    {"unsigned-module", "nvidia: module verification failed: signature and/or required key missing - tainting kernel"},
};

/// A host with a log of its kernel.
struct LoggedMachine {
  void put(const std::string& path, std::string_view content) const { directory.put(path, content); }
  Result<Finding> check() const { return kKernelLog.check(host, Parameters::object()); }
  Finding look(std::string_view log, const std::string& path) const {
    put(path, log);
    return check().value();
  }

  TemporaryDirectory directory;
  Root root = Root::open(directory.path()).value();
  RecordedRunner runner{root};
  Host host{root, runner};
};

using Ids = std::set<std::string>;

/// Ids of the rows of config/signatures.yaml that a finding of kernel-log has as `kind`: "failures" or "notes".
inline Ids ids(const Finding& finding, const char* kind) {
  Ids out;
  for (const auto& match : finding.facts.at(kind)) out.insert(match.at("id").get<std::string>());
  return out;
}

}  // namespace p2pd::test
