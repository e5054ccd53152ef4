// SPDX-License-Identifier: MIT
// Any text as /proc/driver/nvidia/params: an answer or an error, and no pass with a key that does nothing.
#include "base/probe.hpp"
#include "fuzz.hpp"

namespace p2pd {
extern const Probe kModuleParameters;
}

void p2pd::fuzz::run(std::string_view input) {
  static const Tree tree;
  tree.write("/sys/module/nvidia/version", "570.86.16\n");
  tree.write("/proc/driver/nvidia/params", input);
  const auto finding = kModuleParameters.check(tree.host, Parameters::object());
  if (!finding) return;
  require((finding->verdict == Verdict::pass) == finding->facts["wrong"].empty(), "a verdict against the facts");
  require(finding->verdict == Verdict::fail || !finding->facts["registry_dwords"].contains("EnableResizableBar"),
          "a key that does nothing passed");
}
