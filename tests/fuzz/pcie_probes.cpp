// SPDX-License-Identifier: MIT
// Any text as an lspci dump: the probes of the PCIe path end, and a fail says what to do.
#include "base/probe.hpp"
#include "fuzz.hpp"

namespace p2pd {
extern const Probe kAcsRedirection;
extern const Probe kBar1Size;
extern const Probe kBridgeWindows;
extern const Probe kPcieLinks;
}  // namespace p2pd

void p2pd::fuzz::run(std::string_view input) {
  static const Tree tree;
  tree.write("/lspci-xxxx.txt", input);
  for (const Probe* probe : {&kAcsRedirection, &kBar1Size, &kBridgeWindows, &kPcieLinks}) {
    const auto finding = probe->check(tree.host, Parameters::object());
    if (!finding) continue;
    require(!finding->summary.empty(), "nothing said");
    require(finding->verdict != Verdict::fail || !finding->next.empty(), "a fail without a next step");
  }
}
