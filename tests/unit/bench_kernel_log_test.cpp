// SPDX-License-Identifier: MIT
// Lines of the kernel's log that a user can write: the kernel prints the name of a process (15 bytes, at the start of a
// record) and of its file (255 bytes, later in it), in which /dev/kmsg shows a line break as "\x0a".
#include <fmt/format.h>

#include <set>

#include "base/signatures.hpp"
#include "catch.hpp"
#include "kernel_log_lines.hpp"
#include "machine/boot/kernel_log.hpp"
#include "probes/bench/report/kernel_log.hpp"

using namespace p2pd;
using test::kKernelLines;

namespace {

using test::Ids;
using test::ids;

/// GPUs 0000:01:00.0 and 0000:21:00.0, each below a root port; beside them an NVMe disk at 0001:01:00.0 and a network
/// card at 0000:02:00.0 below a port of its own.
struct Machine : test::LoggedMachine {
  Machine() {
    const auto device = [](const char* address, const char* ids, const char* type) {
      return fmt::format("{} X\n00: {} 00 00 00 00 {}\n\n", address, ids, type);
    };
    const auto port = [](const char* address, const char* bus) {
      return fmt::format(
          "{} X\n00: 22 10 83 14 00 00 00 00 00 00 04 06 00 00 01 00\n"
          "10: 00 00 00 00 00 00 00 00 00 {} {} 00 00 00 00 00\n"
          "20: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n"
          "30: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n\n",
          address, bus, bus);
    };
    directory.put("lspci-xxxx.txt", port("0000:00:01.0", "01") + port("0000:00:02.0", "02") +
                                        device("0000:01:00.0", "de 10 84 26", "a1 00 00 03 00 00 00 00") +
                                        device("0000:02:00.0", "86 80 10 15", "00 00 00 02 00 00 00 00") +
                                        port("0000:20:01.0", "21") +
                                        device("0000:21:00.0", "de 10 84 26", "a1 00 00 03 00 00 00 00") +
                                        device("0001:01:00.0", "4d 14 0a a8", "00 02 08 01 00 00 00 00"));
  }

  Finding look(std::string_view log, const std::string& path = "dev/kmsg") const {
    return LoggedMachine::look(log, path);
  }
  /// Faults that p2p-bench finds in records written while it runs.
  std::vector<std::string> heard(std::string_view log, int expected = 0, std::vector<std::string> gpus = {}) const {
    directory.put("dev/kmsg", "");
    bench::KernelLog reader(host);
    directory.put("dev/kmsg", log);
    const std::vector<PciDevice> devices = pci_devices(host).value();
    return reader.faults(expected, GpuFunctions(devices, gpus.empty() ? nvidia_gpus(devices) : gpus));
  }
};

/// A record of the kernel (facility 0) or of a program that wrote to /dev/kmsg (facility 1 and above).
std::string record(std::string_view text, int facility = 0, int sequence = 1) {
  return fmt::format("{},{},{},-;{}\n SUBSYSTEM=pci\n", facility * 8 + 4, sequence, 1000 * sequence, text);
}
const std::string kBoot = record("Linux version 6.1.0-37-amd64 (debian-kernel@lists.debian.org) (gcc-12) #1 SMP", 0, 0);

/// Records in which a process called `comm`, run from a file called `file`, crashes or stands out.
std::vector<std::string> crashes(std::string_view comm, std::string_view file) {
  return {
      fmt::format(
          "{}[4242]: segfault at 0 ip 0000000000401136 sp 00007ffd7f2c8f40 error 4 in {}[401000+1000] likely on "
          "CPU 3 (core 3, socket 0)",
          comm, file),
      fmt::format("traps: {}[4242] general protection fault ip:401136 sp:7ffd7f2c8f40 error:0 in {}[401000+1000]", comm,
                  file),
      fmt::format("process '{}' started with executable stack", file),
      fmt::format(
          "{}: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset={},mems_allowed=0",
          comm, file),
      fmt::format("{} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", comm),
      fmt::format("{} (4242): /proc/4242/oom_adj is deprecated, please use /proc/4242/oom_score_adj instead. {}", comm,
                  file),
  };
}

}  // namespace

TEST_CASE("kernel-log: each row of the table is found in a record of the kernel, and in no name that a user chose",
          "[attack]") {
  Ids rows, seen;
  const std::vector<Signature> table = signatures().value();
  for (const Signature& row : table)
    if (row.log == "kernel") rows.insert(row.id);
  const Machine machine;
  for (const auto& [id, text] : kKernelLines) {
    CAPTURE(id);
    CAPTURE(text);
    const Finding finding = machine.look(kBoot + record(text));
    const Ids failures = ids(finding, "failures"), notes = ids(finding, "notes");
    CHECK((failures.contains(id) || notes.contains(id)));
    seen.insert(id);
    std::string forged = kBoot;
    for (std::size_t bytes = 0; bytes <= 15; ++bytes)
      for (const std::string& file : {text, "a\\x0a" + text, text.substr(std::min(bytes, text.size()))})
        for (const std::string& crash : crashes(text.substr(0, bytes), file)) forged += record(crash);
    forged += record(text, 1) + record(text, 3);  // of a program
    const Finding other = machine.look(forged);
    CHECK(ids(other, "failures") == Ids{});
    CHECK(ids(other, "notes") == Ids{});
    CHECK(machine.heard(forged).empty());
  }
  CHECK(seen == rows);
}

TEST_CASE("kernel-log: a name that a user chose hides no fault", "[attack]") {
  const Machine machine;
  const std::string lost =
      record("NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.");
  const std::string version = "Linux version 6.1.0-37-amd64 (debian-kernel@lists.debian.org) (gcc-12) #1 SMP";
  const std::string begins = "nvidia-nvlink: Nvlink Core is being initialized, major device number 236";
  const std::string loading = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.16  Release Build";
  std::string forged;
  for (const std::string& text : {version, begins, loading})
    for (std::size_t bytes = 0; bytes <= 15; ++bytes)
      for (const std::string& file : {text, "a\\x0a" + text})
        for (const std::string& crash : crashes(text.substr(0, bytes), file)) forged += record(crash);
  forged += record(version, 1) + record(begins, 1) + record(loading, 1);
  const Finding finding = machine.look(kBoot + lost + forged);
  CHECK(finding.verdict == Verdict::fail);
  CHECK(ids(finding, "failures") == Ids{"xid-79-fallen-off-bus"});
  CHECK(parse_kernel_log(kBoot + lost + forged, "").complete);
  CHECK(machine.heard(lost + forged).size() == 1);
}

TEST_CASE("p2p-bench: an Xid is excused by the number of its process, not by a process's name", "[attack]") {
  const Machine machine;
  const auto xid = [](std::string_view who) {
    return record(fmt::format("NVRM: Xid (PCI:0000:01:00): 31, {}, Ch 00000008, intr 00000000. MMU Fault", who));
  };
  CHECK(machine.heard(xid("pid=77, name=p2p-bench"), 77).empty());
  CHECK(machine.heard(xid("pid='77', name=p2p-bench"), 77).empty());
  CHECK(machine.heard(xid("pid=78, name=pid=77,"), 77).size() == 1);
  CHECK(machine.heard(xid("pid=78, name=02:00.0"), 77).size() == 1);  // nor by an address in it
}

TEST_CASE("p2p-bench: only faults of its GPUs and of the ports above them count, corrected ones never") {
  const Machine machine;
  for (const char* text : {
           "nvidia 0000:21:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0015 address=0xf3000000 flags=0x0030]",
           "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:01:00.0 domain=0x0015 address=0xf3000000 flags=0x0030]",
           "AMD-Vi: Event logged [IO_PAGE_FAULT device=01:00.0 domain=0x0015 address=0x00000000f3000000 flags=0x0030]",
           "DMAR: [DMA Write NO_PASID] Request device [0x01:0x00.0] fault addr 0xf3000000 [fault reason 0x05] PTE "
           "Write access is not set",
           "DMAR: [DMA Read NO_PASID] Request device [21:00.0] fault addr 0x7f000000 [fault reason 0x06] PTE Read "
           "access is not set",
           "DMAR: [DMA Write] Request device [01:00.0] PASID ffffffff fault addr f3000000 [fault reason 05] PTE Write "
           "access is not set",
           "pcieport 0000:00:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:01:00.0",
           "pcieport 0000:00:01.0: AER: Multiple Uncorrectable (Fatal) error message received from 0000:00:01.0",
           "nvidia 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
           "nvidia 0000:01:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Inaccessible, "
           "(Unregistered Agent ID)",
           "NVRM: Xid (PCI:0000:21:00): 45, pid=4242, name=python3, Ch 00000010",
           "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",
       }) {
    CAPTURE(text);
    CHECK(machine.heard(record(text)) == std::vector<std::string>{text});
  }
  for (const char* text : {
           "ahci 0000:28:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0035 address=0x7fffff00000 flags=0x0000]",
           "nvme 0001:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0010 address=0x64a7f000 flags=0x0000]",
           "DMAR: [DMA Write NO_PASID] Request device [0x02:0x00.0] fault addr 0xff3a6000 [fault reason 0x71] SM: "
           "Present bit in first-level paging entry is clear",
           "DMAR: [DMA Write NO_PASID] Request device [02:00.0] fault addr 0x0 [fault reason 0x05] PTE Write access is "
           "not set",
           "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0",
           "pcieport 0000:00:01.0: AER: Multiple Correctable error message received from 0000:01:00.0",
           "nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
           "pcieport 0000:00:01.0: AER: enabled with IRQ 28",
           "pcieport 0000:00:02.0: AER: Uncorrected (Non-Fatal) error received: 0000:02:00.0",
           "pcieport 0000:00:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:02:00.0",
           "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
           "NVRM: nvAssertOkFailedNoLog: Assertion failed: Requested object not found [NV_ERR_OBJECT_NOT_FOUND] "
           "(0x00000057) returned from pRmApi->Control( pRmApi, hClient, hDevice, "
           "NV0080_CTRL_CMD_INTERNAL_MEMSYS_SET_ZBC_REFERENCED, &params, sizeof(params)) @ mem_mgr_gm107.c:283",
       }) {
    CAPTURE(text);
    CHECK(machine.heard(record(text)).empty());
  }
}

TEST_CASE("p2p-bench: an assertion of the driver without an address counts where each of its GPUs is of the proof") {
  const Machine machine;
  for (const char* text : {
           "NVRM: nvAssertFailedNoLog: Assertion failed: 0 == (physAddr & (RM_PAGE_SIZE_HUGE - 1)) @ mmu_walk.c:1",
           "NVRM: nvAssertFailed: Assertion failed: (shifted >> pField->shift) == value @ field_desc.h:272",
           "NVRM: nvAssertFailed: Assertion failed: CUDA_ERROR_MAP_FAILED @ x.c:1",  // a row of programs finds that,
                                                                                     // too
           "NVRM: GPU1 nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)",
       }) {
    CAPTURE(text);
    CHECK(machine.heard(record(text)).size() == 1);
    CHECK(machine.heard(record(text), 0, {"0000:01:00.0"}).empty());  // it may be about the other one
  }
  const std::string lost = record("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.");
  CHECK(machine.heard(lost, 0, {"0000:01:00.0"}).size() == 1);
}

TEST_CASE("kernel-log: a fault is a GPU's by its whole address, in each form in which kernels write it") {
  const Machine machine;
  for (const char* text : {
           "DMAR: [DMA Write NO_PASID] Request device [0x01:0x00.0] fault addr 0xf3000000 [fault reason 0x05] PTE "
           "Write access is not set",
           "DMAR: [DMA Write NO_PASID] Request device [01:00.0] fault addr 0xf3000000 [fault reason 0x05] PTE Write "
           "access is not set",
           "DMAR:[DMA Write] Request device [21:00.0] fault addr f3000000 ",
           "nvidia 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0015 address=0xf3000000 flags=0x0030]",
           "AMD-Vi: Event logged [IO_PAGE_FAULT device=21:00.0 domain=0x0015 address=0xf3000000 flags=0x0030]",
           "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:21:00.0 domain=0x0015 address=0xf3000000 flags=0x0030]",
       }) {
    CAPTURE(text);
    CHECK(machine.look(kBoot + record(text)).verdict == Verdict::fail);
  }
  for (const char* text : {
           "nvme 0001:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0010 address=0x64a7f000 flags=0x0000]",
           "AMD-Vi: Event logged [IO_PAGE_FAULT device=0001:01:00.0 domain=0x0010 address=0x64a7f000 flags=0x0000]",
           "DMAR: [DMA Write NO_PASID] Request device [0x02:0x00.0] fault addr 0x0 [fault reason 0x05] PTE Write "
           "access is not set",
           "DMAR: [DMA Write NO_PASID] Request device [01:00.1] fault addr 0x0 [fault reason 0x05] PTE Write access is "
           "not set",
       }) {
    CAPTURE(text);
    const Finding finding = machine.look(kBoot + record(text));
    CHECK(finding.verdict == Verdict::pass);
    CHECK(finding.facts["notes"].size() == 1);
  }
}

TEST_CASE("kernel-log: what was cured since is a note") {
  const Machine machine;
  const std::string no_space =
      record("pci 0000:01:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space");
  const std::string assigned = record("pci 0000:01:00.0: BAR 1 [mem 0x8000000000-0x87ffffffff 64bit pref]: assigned");
  const std::string other = record("pci 0000:21:00.0: BAR 1 [mem 0x8000000000-0x87ffffffff 64bit pref]: assigned");
  const std::string of_disk =
      record("pci 0001:01:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space");
  CHECK(ids(machine.look(kBoot + no_space + other), "failures") == Ids{"bar-no-space"});
  CHECK(machine.look(kBoot + assigned + no_space).verdict == Verdict::fail);
  CHECK(machine.look(kBoot + no_space + assigned).verdict == Verdict::pass);
  CHECK(ids(machine.look(kBoot + no_space + assigned), "notes") == Ids{"bar-no-space"});
  CHECK(machine.look(kBoot + of_disk).verdict == Verdict::pass);
  const auto action = [](const char* text) {
    return record(fmt::format("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from {}", text));
  };
  const Finding wanted = machine.look(kBoot + action("0x0 (None) to 0x2 (Node Reboot Required)"));
  CHECK(wanted.summary.starts_with("xid-154-recovery: "));
  CHECK(wanted.next.starts_with("Reboot the machine"));
  CHECK(machine
            .look(kBoot + action("0x0 (None) to 0x1 (GPU Reset Required)") +
                  action("0x1 (GPU Reset Required) to 0x0 (None)"))
            .verdict == Verdict::pass);
}

TEST_CASE("kernel-log: lines of text are less certain than records, and that is said") {
  const Machine machine;
  const std::string boot =
      "[    0.000000] Linux version 6.1.0-37-amd64 (debian-kernel@lists.debian.org) (gcc-12) #1 SMP\n";
  const std::string lost =
      "[   99.100000] NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n";
  const std::string crash =
      "[  120.500000] x[4242]: segfault at 0 ip 0000000000401136 sp 00007ffd7f2c8f40 error 4 in a\n";
  const auto look = [&](const std::string& text) { return machine.look(text); };
  const std::string doubt = "; plain-text log; process names can imitate kernel messages";
  CHECK(look(boot).summary == "no sign of a known failure in 1 line" + doubt);
  CHECK(look(boot + lost).summary.ends_with(doubt));
  CHECK(look(kBoot).summary == "no sign of a known failure in 1 line");
  // p2pd once recorded each line of a record as one of its own
  CHECK(look("6,0,0,-;Linux version 6.1.0-37-amd64 (x@y)\n6,1,0,-;NVRM: loading\n").summary.ends_with(doubt));
  // as dmesg prints line breaks: the rest is indented
  CHECK(look(boot + crash + "               " + lost).verdict == Verdict::pass);
  CHECK(look(boot + crash + lost.substr(lost.find("NVRM"))).verdict == Verdict::pass);
  CHECK(look(boot + lost + crash + "               " + boot).verdict == Verdict::fail);
  // as syslog does: each with the time of its record, which is not that of the boot
  CHECK(look(boot + lost + crash + "[  120.500000] " + boot).verdict == Verdict::fail);
  CHECK(look(boot + lost + crash + "[  120.500000] " + boot.substr(boot.find("Linux"))).verdict == Verdict::fail);
  // dmesg --raw prints the facility
  CHECK(look("<5>" + boot + "<12>" + lost).verdict == Verdict::pass);
  CHECK(look("<5>" + boot + "<4>" + lost).verdict == Verdict::fail);
  for (const char* head :
       {"[   99.1] ", "[   99.100000][ T4242] ", "[Tue Mar  2 10:11:12 2021] ", "[  +0.056775] ",
        "Nov 21 19:58:23 box kernel: [   99.1] ", "2024-05-01T10:11:12,123456+00:00 ",
        "2024-05-01T10:11:12.123456+02:00 box kernel: [   99.1] ", "[   99.1] kernel: ", "<4>[   99.1] ", ""}) {
    CAPTURE(head);
    CHECK(look(head + lost.substr(lost.find("NVRM"))).verdict == Verdict::fail);
  }
}
