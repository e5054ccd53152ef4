// SPDX-License-Identifier: MIT
// Texts about kernel modules: modprobe.d, module parameters, output of a build.
#include <algorithm>

#include "base/probe.hpp"
#include "fuzz.hpp"
#include "machine/modules/build_log.hpp"
#include "machine/modules/modprobe_d.hpp"

/// Any text as a user's modprobe.d file: with the drop-in that is merged with it, the wanted options apply.
FUZZ(modprobe_d) {
  static const Tree tree;
  for (const std::string_view option : {kRegistryDwords, kDeviceDwords}) {
    const std::string text = dwords_text(option, parse_dwords(option, input));
    require(dwords_text(option, parse_dwords(option, text)) == text, "registry keys that read as others");
  }
  if (!parse_modprobe_d(input, "user.conf")) return;
  tree.write("/etc/modprobe.d/user.conf", input);
  const Parameters wanted = {{"module", "nvidia"},
                             {"options", {{"NVreg_EnableResizableBar", 1}}},
                             {"registry_dwords", {{"RMForceStaticBar1", 1}}}};
  const auto drop_in = modprobe_drop_in(tree.host, wanted);
  if (!drop_in) return;
  const auto options = module_options(tree.host, *drop_in);
  require(options.has_value(), "a drop-in that cannot be read");
  for (const OptionState& state : option_states(*options, wanted)) require(state.holds, state.name + " does not hold");
}

namespace p2pd {
extern const Probe kModuleParameters;
}

/// Any text as /proc/driver/nvidia/params: an answer or an error, and no pass with a key that has no effect.
FUZZ(module_parameters) {
  static const Tree tree;
  tree.write("/sys/module/nvidia/version", "570.86.16\n");
  tree.write("/proc/driver/nvidia/params", input);
  const auto finding = kModuleParameters.check(tree.host, Parameters::object());
  if (!finding) return;
  require((finding->verdict == Verdict::pass) == finding->facts["wrong"].empty(), "a verdict against the facts");
  require(finding->verdict == Verdict::fail || !finding->facts["registry_dwords"].contains("EnableResizableBar"),
          "a key that does nothing passed");
}

/// Any text as a build log: a failure has a cause, a next step and a line that is in the text, short and printable.
FUZZ(build_log) {
  const auto found = build_failure(input);
  require(found.has_value(), "the table of signatures is broken");
  if (!*found) return;
  const BuildFailure& failure = **found;
  const auto lines = static_cast<std::size_t>(std::ranges::count(input, '\n')) + 1;
  require(!failure.cause.empty() && !failure.next.empty(), "a failure without cause or next step");
  require(failure.line_number >= 1 && failure.line_number <= lines, "a line that is not there");
  require(failure.line.size() <= 512 && std::ranges::none_of(failure.line, [](char c) { return c >= 0 && c < ' '; }),
          "a line that is long or not printable");
}
