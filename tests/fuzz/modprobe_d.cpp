// SPDX-License-Identifier: MIT
// Any text as a user's modprobe.d file: the drop-in that is merged with it makes what is wanted hold.
#include "machine/modules/modprobe_d.hpp"

#include "fuzz.hpp"

void p2pd::fuzz::run(std::string_view input) {
  static const Tree tree;
  const Dwords dwords = parse_dwords(input);
  require(parse_dwords(dwords_text(dwords)) == dwords, "registry keys that read as others");
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
