// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "kernel_log_lines.hpp"

namespace p2pd::test {

/// A kernel log from a user's report, reworded, and its meaning.
struct KernelLogCase {
  std::string name;
  std::string log;
  Ids failures;
  Ids notes;
};

inline const std::vector<KernelLogCase> kKernelLogCases = {
    {"bar1-static-mapping-success",
     "[ 3491.654009] NVRM: kbusEnableStaticBar1Mapping_GH100: Static bar1 mapped offset 0x0 size 0x5e9200000\n"
     "[ 3491.793389] NVRM: kbusEnableStaticBar1Mapping_GH100: Static bar1 mapped offset 0x0 size 0x5e9200000\n",
     {},
     {"static-bar1"}},
    {"bar1p2p-mapping-then-xid31",
     "[ 3742.840689] NVRM: kbusCreateP2PMappingForBar1P2P_GH100: added PCIe BAR1 P2P mapping between GPU2 and GPU3\n"
     "[ 3742.841089] NVRM: nvAssertFailed: Assertion failed: (shifted >> pField->shift) == value @ field_desc.h:272\n"
     "[ 3742.841106] NVRM: nvAssertFailed: Assertion failed: (shifted & pField->maskPos) == shifted @ "
     "field_desc.h:273\n"
     "[ 3745.120001] NVRM: GPU at PCI:0000:01:00: GPU-00000000-0000-0000-0000-000000000000\n"
     "[ 3745.120010] NVRM: Xid (PCI:0000:01:00): 31, pid=4242, name=simpleP2P, Ch 00000008, intr 00000000. MMU "
     "Fault: ENGINE CE3 HUBCLIENT_CE1 faulted @ 0x7f97_94000000. Fault is of type "
     "FAULT_INFO_TYPE_UNSUPPORTED_KIND ACCESS_TYPE_VIRT_WRITE\n",
     {"page-table-field", "xid-31-unsupported-kind"},
     {"bar1-p2p-mapping", "application-fault", "nvrm-assertion"}},
    {"api-mismatch-relative-timestamp",
     "[  +0.056775] NVRM: API mismatch: the client has the version 470.57.02, but\n"
     "              NVRM: this kernel module has the version 470.42.01.  Please\n"
     "              NVRM: make sure that this kernel module and all NVIDIA driver\n"
     "              NVRM: components have the same version.\n",
     {"api-mismatch"},
     {}},
    {"api-mismatch-new-two-line-form",
     "NVRM: API mismatch: the client 'nvidia-smi' (pid 1234) has the version 595.84,\n"
     "NVRM: but this kernel module has the version 595.71.05.\n",
     {"api-mismatch"},
     {}},
    {"rminitadapter-pi-pcie-550",
     "[   14.1] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x24:0x72:1568)\n"
     "[   14.2] NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0\n"
     "[   14.3] [drm:nv_drm_load [nvidia_drm]] *ERROR* [nvidia-drm] [GPU ID 0x00000100] Failed to allocate "
     "NvKmsKapiDevice\n",
     {"gpu-init-failed"},
     {"nvidia-drm-failed"}},
    {"rminitadapter-wpr2-already-up",
     "[921.622] NVRM: GPU0 _kgspBootGspRm: unexpected WPR2 already up,\n"
     "                cannot proceed with booting GSP\n"
     "[921.622] NVRM: GPU0 _kgspBootGspRm: (the GPU is likely in a bad state\n"
     "                and may need to be reset)\n"
     "[921.623] NVRM: GPU 0000:04:00.0: RmInitAdapter failed! (0x62:0x40:2192)\n",
     {"gsp-wpr2-still-up", "gpu-init-failed"},
     {}},
    {"rminitadapter-repeated-after-xid13",
     "**Jan  3 10:00:01 host kernel: [ 612.1] NVRM: Xid (PCI:0000:01:00): 13, Graphics Exception: ESR\n"
     "0x404490=0x80000001**\n"
     "**Jan  3 10:07:44 host kernel: [ 1075.4] NVRM: GPU 0000:01:00.0: RmInitAdapter failed!\n"
     "(0x26:0xffff:1290)**\n"
     "**Jan  3 10:07:49 host kernel: [ 1080.4] NVRM: GPU 0000:01:00.0: RmInitAdapter failed!\n"
     "(0x26:0xffff:1290)**\n",
     {"gpu-init-failed"},
     {"application-fault"}},
    {"xid119-gsp-sec2-timeout",
     "NVRM: Xid (PCI:000f:01:00): 119, pid=77, name=init, Timeout after 6s of waiting for RPC response from GPU0 "
     "GSP! Expected function 4097\n"
     "NVRM: GPU0 s_executeBooterUcode_TU102: SEC2 secure boot failed\n",
     {"xid-119-gsp-timeout"},
     {}},
    {"azure-rminitadapter-domain-0001",
     "[    8.1] NVRM: GPU 0001:00:00.0: RmInitAdapter failed! (0x22:0x56:1017)\n"
     "[    8.2] NVRM: GPU 0001:00:00.0: rm_init_adapter failed, device minor number 0\n",
     {"gpu-init-failed"},
     {}},
    {"amdvi-io-page-fault-cuda-p2p-sample",
     "[ 512.1] AMD-Vi: Event logged [IO_PAGE_FAULT device=21:00.0 domain=0x0015 address=0xf3000000 flags=0x0030]\n"
     "[ 512.2] nvidia 0000:21:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0015 address=0xf3000040]\n"
     "[ 512.9] NVRM: Xid (PCI:0000:21:00): 31, Ch 00000010, engmask 00000101, intr 10000000\n",
     {"amd-iommu-page-fault"},
     {"application-fault"}},
    {"iovaspace-leftover-assertions-5090",
     "[ 77.1] NVRM: iovaspaceDestruct_IMPL: 4 left-over mappings in IOVAS 0x100\n"
     "[ 77.2] NVRM: nvAssertFailedNoLog: Assertion failed: pIOVAS != NULL @ io_vaspace.c:592\n",
     {},
     {"iovas-left-over", "nvrm-assertion"}},
    {"unpatched-return-thunk-warning",
     "[ 9.1] ------------[ cut here ]------------\n"
     "[ 9.1] Unpatched return thunk in use. This should not happen!\n"
     "[ 9.1] WARNING: CPU: 4 PID: 733 at arch/x86/kernel/cpu/bugs.c:3107 __warn_thunk+0x2a/0x40\n",
     {},
     {"unpatched-return-thunk"}},
    {"fallen-off-bus-egpu-5070",
     "[ 21.1] NVRM: The NVIDIA GPU 0000:05:00.0\n"
     "        NVRM: (PCI ID: 10de:2f04) installed in this system has\n"
     "        NVRM: fallen off the bus and is not responding to commands.\n"
     "[ 21.2] nvidia: probe of 0000:05:00.0 failed with error -1\n"
     "[ 21.3] NVRM: The NVIDIA probe routine failed for 1 device(s).\n",
     {"xid-79-fallen-off-bus", "nvidia-probe-failed"},
     {}},
    {"bar1-0M-no-mmio-window-m40",
     "[ 5.1] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n"
     "       NVRM: BAR1 is 0M @ 0x0 (PCI:0000:03:00.0)\n"
     "[ 5.2] NVRM: The NVIDIA probe routine failed for 1 device(s).\n",
     {"bar1-not-assigned", "nvidia-probe-failed"},
     {}},
    {"open-module-on-volta-looks-dead",
     "[ 6.1] NVRM: The NVIDIA GPU 0000:xx:00.0\n"
     "       NVRM: (PCI ID: 10de:1db5) installed in this system has\n"
     "       NVRM: fallen off the bus and is not responding to commands.\n"
     "[ 6.2] NVRM: BAR0 is 0M @ 0x0 (PCI:0000:xx:00.0)\n"
     "[ 6.3] nvidia 0000:xx:00.0: can't change power state from D3cold to D0\n",
     {"gpu-without-gsp", "xid-79-fallen-off-bus", "bar1-not-assigned"},
     {}},
    {"probe-failed-driver-too-old-iso-date",
     "[Tue Mar  2 10:11:12 2021] NVRM: The NVIDIA GPU 0000:07:00.0 (PCI ID: 10de:20b0)\n"
     "[Tue Mar  2 10:11:12 2021] NVRM: installed in this system is not supported by the\n"
     "[Tue Mar  2 10:11:12 2021] NVRM: NVIDIA 440.33.01 driver release.\n"
     "[Tue Mar  2 10:11:13 2021] NVRM: None of the NVIDIA devices were initialized.\n",
     {"driver-does-not-know-gpu", "nvidia-probe-failed"},
     {}},
    {"xid79-xid143-fsp-boot",
     "T+0.000 NVRM: Xid (PCI:0000:04:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
     "T+9.312 NVRM: Xid (PCI:0000:04:00): 143, GPU0 FSP boot failed\n",
     {"xid-79-fallen-off-bus", "xid-143-fsp"},
     {}},
    {"module-key-rejected",
     "[ 3.1] Loading of module with unavailable key is rejected\n"
     "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n"
     "[ 3.2] Request for unknown module key 'DKMS module signing key: 00aa' err -11\n",
     {"module-key-rejected"},
     {}},
    {"nouveau-owns-card-then-nvidia-loaded",
     "   [   11.181765] [drm] nouveau 0000:01:00.0: Allocating FIFO number 1\n"
     "   [  363.371677] NVRM: The NVIDIA probe routine was not called for 1\n"
     "   device(s).\n"
     "   [  363.371681] NVRM: This can occur when a driver such as rivafb, nvidiafb\n"
     "   or\n"
     "   [  363.371682] NVRM: rivatv was loaded and obtained ownership of the NVIDIA\n",
     {"nouveau-drives-gpu", "gpu-owned-by-another-driver"},
     {}},
    {"driver-override-blocks-autobind",
     "NVRM: The NVIDIA probe routine was not called for 1 device(s).\n"
     "NVRM: No NVIDIA devices probed.\n",
     {"gpu-owned-by-another-driver"},
     {}},
    {"amdvi-fault-old-form-device-field",
     "AMD-Vi: Event logged [IO_PAGE_FAULT device=02:00.0 domain=0x0002 address=0x0000000000001000 flags=0x0000]\n"
     "> AMD-Vi: Event logged [\n"
     "> IO_PAGE_FAULT device=07:00.1 domain=0x001a address=0x00000000fed00000\n",
     {},
     {"amd-iommu-page-fault"}},
    {"amdvi-found-and-features",
     "[ 0.7] pci 0000:00:00.2: AMD-Vi: Found IOMMU cap 0x40\n"
     "[ 0.7] AMD-Vi: Extended features (0x58f77ef22294a5a): PPR NX GT IA PC\n"
     "GA_vAPIC\n",
     {},
     {"amd-iommu-present"}},
    {"requires-open-module-rtx-pro-6000",
     "[ 5.4] NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2bb1)\n"
     "installed in this system requires use of the NVIDIA open kernel modules.\n"
     "[ 5.5] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:884)\n",
     {"needs-open-module", "gpu-init-failed"},
     {}},
    {"requires-open-module-5070ti-class-580",
     "[ 5.499014] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.105.08  Wed Oct 29 23:15:11 UTC 2025\n"
     "[ 5.559842] NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2c58)\n"
     "           NVRM: installed in this system requires use of the NVIDIA open kernel mo",
     {"needs-open-module"},
     {}},
    {"xid32-pushbuffer-with-uuid-line",
     "NVRM: GPU at PCI:0000:01:00: GPU-00000000-0000-0000-0000-000000000000\n"
     "NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000012 intr 00000004\n",
     {"xid-32-push-buffer"},
     {}},
    {"xid32-hce-dbg0-new-form",
     "NVRM: Xid (PCI:0000:0a:00): 32, pid=3141, name=python3, channel 0x00000002, intr 00000001 HCE_DBG0 00000000 "
     "HCE_DBG1 00001111 # first one\n",
     {"xid-32-push-buffer"},
     {}},
    {"xid79-comma-fraction-timestamp",
     "2024-05-01T10:11:12,123456+00:00 NVRM: Xid (PCI:0000:81:00): 79, pid=0, GPU has fallen off the bus.\n",
     {"xid-79-fallen-off-bus"},
     {}},
    {"module-verification-taint",
     "[ 4.1] nvidia: module verification failed: signature and/or required key missing - tainting kernel\n",
     {},
     {"unsigned-module"}},
};

}  // namespace p2pd::test
