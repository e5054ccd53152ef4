// SPDX-License-Identifier: MIT
// Any text as a kernel log: an answer, and a verdict that follows from the signatures found.
#include "base/boot/kernel_log.hpp"

#include "base/driver/signatures.hpp"
#include "base/probe.hpp"
#include "fuzz.hpp"

namespace p2pd {
extern const Probe kKernelLog;
}

void p2pd::fuzz::run(std::string_view input) {
  static const Tree tree;
  static const bool once = [] {
    tree.write("/lspci-xxxx.txt", "0000:01:00.0 GPU\n00: de 10 84 26 00 00 00 00 a1 00 00 03 00 00 00 00\n\n");
    return true;
  }();
  require(once, "no tree");
  tree.write("/dev/kmsg", input);
  const auto finding = kKernelLog.check(tree.host, Parameters::object());
  const KernelLog log = parse_kernel_log(input, "");
  require(finding.has_value() == !log.lines.empty(), "an answer without a line, or none with one");
  if (!finding) return;
  require((finding->verdict == Verdict::pass) == finding->facts["failures"].empty(), "a verdict against the facts");
  static const std::vector<Signature> table = signatures().value();
  bool any = false;
  for (const std::string& line : log.lines)
    for (const Signature& signature : table)
      any = any || (signature.log == "kernel" && signature.failure && !signature.gpu_only && signature.matches(line));
  require(!any || finding->verdict == Verdict::fail, "a failure that was not told");
}
