// SPDX-License-Identifier: MIT
// Any text as a kernel log: an answer, and a verdict that follows from the signatures found.
#include "machine/boot/kernel_log.hpp"

#include "base/probe.hpp"
#include "base/signatures.hpp"
#include "fuzz.hpp"

namespace p2pd {
extern const Probe kKernelLog;
}

FUZZ(kernel_log) {
  static const Tree tree;
  static const bool once = [] {
    tree.write("/lspci-xxxx.txt", "0000:01:00.0 GPU\n00: de 10 84 26 00 00 00 00 a1 00 00 03 00 00 00 00\n\n");
    return true;
  }();
  require(once, "no tree");
  tree.write("/dev/kmsg", input);
  const auto finding = kKernelLog.check(tree.host, Parameters::object());
  const KernelLog log = parse_kernel_log(input, "");
  require(finding.has_value() == !log.records.empty(), "an answer without a record, or none with one");
  if (!finding) return;
  require((finding->verdict == Verdict::pass) == finding->facts["failures"].empty(), "a verdict against the facts");
  static const std::vector<Signature> table = signatures().value();
  bool any = false;
  bool loaded = false;  // what was before the load of a driver is a note
  for (const KernelRecord& record : log.records) {
    loaded = loaded || record.text.starts_with("NVRM: loading NVIDIA UNIX ");
    for (const Signature& row : table)
      any =
          any || (row.log == "kernel" && row.failure && !row.gpu_only && row.cures.empty() && row.matches(record.text));
  }
  require(!any || loaded || finding->verdict == Verdict::fail, "a failure that was not told");
  // what a record wrote is read again as it was
  std::string text;
  for (const KernelRecord& record : log.records) text += record.head + record.text + "\n";
  if (log.whole)
    require(parse_kernel_log(text, "").records.size() == log.records.size(), "records that do not come back");
}
