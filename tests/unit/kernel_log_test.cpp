// SPDX-License-Identifier: MIT
#include "machine/boot/kernel_log.hpp"

#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <set>

#include "base/signatures.hpp"
#include "catch.hpp"
#include "kernel_log_cases.hpp"

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

using test::Ids;
using test::ids;
using test::KernelLogCase;
using test::kKernelLogCases;

/// Two NVIDIA GPUs at 01:00.0 and 21:00.0, and a log.
struct Machine : test::LoggedMachine {
  Machine() {
    std::string text;
    for (const char* address : {"0000:01:00.0", "0000:21:00.0"})
      text += std::string(address) + " GPU\n00: de 10 84 26 00 00 00 00 a1 00 00 03 00 00 00 00\n\n";
    put("lspci-xxxx.txt", text);
  }
  Finding look(std::string_view log, const std::string& path = "var/log/kern.log") const {
    return LoggedMachine::look(log, path);
  }
};

std::string joined(const Ids& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out.empty() ? "-" : out;
}

/// A log of text as /dev/kmsg gives it.
std::string as_records(const std::string& text) {
  std::string out;
  std::size_t sequence = 0;
  for (const KernelRecord& record : parse_kernel_log(text, "").records) {
    out += fmt::format("4,{},{},-;{}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0\n", sequence, 1000 + sequence,
                       record.text);
    ++sequence;
  }
  return out;
}

const std::string kBoot =
    "[    0.000000] Linux version 6.1.0-32-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14) 12.2.0)\n";
const std::string kClean =
    kBoot +
    "[    0.000000] Command line: BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet iommu=pt\n"
    "[    0.301000] iommu: Default domain type: Passthrough (set via kernel command line)\n"
    "[    0.512000] pci 0000:01:00.0: [10de:2684] type 00 class 0x030000\n"
    "[    0.512100] pci 0000:01:00.0: BAR 1: assigned [mem 0x8000000000-0x87ffffffff 64bit pref]\n"
    "[    1.900000] pcieport 0000:00:01.1: AER: enabled with IRQ 28\n"
    "[    6.100000] nvidia: loading out-of-tree module taints kernel.\n"
    "[    6.200000] nvidia 0000:01:00.0: enabling device (0000 -> 0003)\n"
    "[    6.300000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.16\n"
    "[    6.400000] [drm] Initialized nvidia-drm 0.0.0 20160202 for 0000:01:00.0 on minor 0\n";

}  // namespace

TEST_CASE("kernel-log: cases of the field mean what they meant there") {
  const Machine machine;
  std::cout << fmt::format("{:<40} {:<7} {:<58} {}\n", "kernel log case", "verdict", "failures", "notes");
  for (const KernelLogCase& one : kKernelLogCases) {
    CAPTURE(one.name);
    const Finding finding = machine.look(one.log);
    const Ids failures = ids(finding, "failures");
    const Ids notes = ids(finding, "notes");
    std::cout << fmt::format("{:<40} {:<7} {:<58} {}\n", one.name, to_string(finding.verdict), joined(failures),
                             joined(notes));
    CHECK(failures == one.failures);
    CHECK(notes == one.notes);
    CHECK((finding.verdict == Verdict::fail) == !one.failures.empty());
    CHECK(finding.next.empty() == one.failures.empty());
    // the same as records of /dev/kmsg, in a file
    const Machine other;
    CHECK(ids(other.look(as_records(one.log), "dev/kmsg"), "failures") == one.failures);
    CHECK(ids(other.look(as_records(one.log), "dev/kmsg"), "notes") == one.notes);
  }
}

TEST_CASE("kernel-log: what was said before the load of the driver that came last is a note") {
  const std::string begins = "[ 7.0] nvidia-nvlink: Nvlink Core is being initialized, major device number 236\n";
  const std::string loading = "[ 7.5] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.16\n";
  const std::string refused =
      "[ 7.1] NVRM: The NVIDIA probe routine was not called for 2 device(s).\n"
      "[ 7.2] NVRM: No NVIDIA devices probed.\n"
      "[ 7.3] nvidia-nvlink: Unregistered Nvlink Core, major device number 236\n";
  const std::string nouveau = "[ 2.1] nouveau 0000:01:00.0: NVIDIA AD102 (192000a1)\n";
  const std::string lost = "[ 7.2] NVRM: GPU at PCI:0000:21:00 has fallen off the bus.\n";

  const Finding swapped = Machine().look(kBoot + nouveau + begins + refused + begins + loading);
  CHECK(swapped.verdict == Verdict::pass);
  CHECK(ids(swapped, "notes") == Ids{"nouveau-drives-gpu", "gpu-owned-by-another-driver"});
  // one of two cards, lost while the driver was loaded
  const Finding half = Machine().look(kBoot + nouveau + begins + refused + begins + lost + loading);
  CHECK(ids(half, "failures") == Ids{"xid-79-fallen-off-bus"});
  // a load that failed cures nothing, and neither does one without its first record
  CHECK(Machine().look(kBoot + nouveau + begins + refused).verdict == Verdict::fail);
  CHECK(Machine().look(kBoot + nouveau + loading).verdict == Verdict::fail);
  // a driver that fails after its load
  CHECK(Machine().look(kBoot + begins + loading + lost).verdict == Verdict::fail);
}

TEST_CASE("kernel-log: a fault of a GPU that is left out is a note") {
  Machine machine;
  const std::string lost =
      kBoot + "[ 7.2] NVRM: Xid (PCI:0000:21:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n";
  CHECK_FALSE(machine.look(lost).danger.empty());
  machine.host.leave_out_gpus({"0000:21:00.0"});
  const Finding rest = machine.look(lost);
  CHECK(rest.verdict == Verdict::pass);
  CHECK(rest.danger.empty());
  CHECK(ids(rest, "notes") == Ids{"xid-79-fallen-off-bus"});
}

TEST_CASE("kernel-log: a clean log matches nothing") {
  const Finding finding = Machine().look(as_records(kClean), "dev/kmsg");
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.facts["failures"].empty());
  CHECK(finding.facts["notes"].empty());
  CHECK(finding.summary == "no sign of a known failure in 10 lines");
}

TEST_CASE("kernel-log: the cause leads, with its first line") {
  const Machine machine;
  const Finding finding = machine.look(as_records(kKernelLogCases[9].log + kKernelLogCases[22].log), "dev/kmsg");
  CHECK(finding.summary.starts_with("amd-iommu-page-fault: "));
  CHECK(finding.summary.ends_with("; also needs-open-module, gpu-init-failed"));
  CHECK(finding.next.find("iommu=pt") != std::string::npos);
  CHECK(finding.facts["failures"][0]["lines"] == 2);
  CHECK(finding.evidence[0].source == "/dev/kmsg");
  CHECK(finding.evidence[0].value.starts_with("AMD-Vi: Event logged"));
}

TEST_CASE("kernel-log: only the last boot of a file counts") {
  const Machine machine;
  const Finding later = machine.look("Nov 20 10:00:00 host kernel: " + kBoot + kKernelLogCases[4].log + kClean);
  CHECK(later.verdict == Verdict::pass);
  const Finding cut = machine.look("[ 9.0] usb 1-1: new device\n");
  CHECK(cut.verdict == Verdict::pass);
  CHECK(cut.summary.find("; the log does not reach back to the boot") != std::string::npos);
  // a process whose name looks like the first line does not hide earlier records
  const Finding named =
      machine.look(kBoot + kKernelLogCases[4].log + "[ 99.0] Linux version 6[77]: segfault at 0 ip 0\n");
  CHECK(named.verdict == Verdict::fail);
  // a message of several lines is one record of the device: what follows a line break may be a user's text
  const KernelLog log = parse_kernel_log("4,1,2,-;NVRM: one\\x0aNVRM: two\n", "");
  REQUIRE(log.records.size() == 1);
  CHECK(log.records[0].line() == "NVRM: one | NVRM: two");
}

TEST_CASE("kernel-log: what cannot be read is not a pass") {
  const Machine machine;
  CHECK(machine.check().error().code == ErrorCode::not_found);
  machine.put("var/log/kern.log", "");
  CHECK_FALSE(machine.check());
  fs::create_directories(machine.directory / "dev/kmsg");  // not a file: the next place is read
  CHECK_FALSE(machine.check());
  fs::remove(machine.directory / "var/log/kern.log");
  fs::create_directories(machine.directory / "var/log/kern.log");
  CHECK(machine.check().error().code == ErrorCode::invalid);
  const Root live = Root::open("/").value();
  RecordedRunner runner(live);
  const auto log = kernel_log(Host(live, runner));
  if (log)
    CHECK(log->source == "/dev/kmsg");
  else if (log.error().code == ErrorCode::denied)
    CHECK(log.error().message.find("root would tell") != std::string::npos);
}

TEST_CASE("kernel-log: hostile lines cost no more than their length") {
  const Machine machine;
  std::string log = kBoot;
  for (int i = 0; i < 300; ++i) log += std::string(3000, 'X') + "Xid (Xid (\x1b[2J\xff" + std::string(4000, '(') + "\n";
  log += std::string("a\0b\n", 4) + std::string(5'000'000, 'n') + "nouveau 0000:01:00";
  const auto start = std::chrono::steady_clock::now();
  const Finding finding = machine.look(log);
  CHECK(finding.verdict == Verdict::pass);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("kernel-log: the table of signatures has all that the cases show, and more") {
  const auto table = signatures();
  REQUIRE(table);
  Ids covered;
  for (const KernelLogCase& one : kKernelLogCases) {
    covered.insert(one.failures.begin(), one.failures.end());
    covered.insert(one.notes.begin(), one.notes.end());
  }
  CHECK(table->size() > covered.size());
}
