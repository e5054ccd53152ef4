// SPDX-License-Identifier: MIT
// Any text as /proc/cmdline; the arguments that are good for GRUB come back out of our drop-in as they went in.
#include "machine/boot/kernel_arguments.hpp"

#include "fuzz.hpp"
#include "machine/boot/grub.hpp"

void p2pd::fuzz::run(std::string_view input) {
  const std::vector<KernelArgument> line = parse_kernel_line(input);
  std::vector<std::string> good;
  for (const KernelArgument& argument : line) {
    const ArgumentState state = argument_state(argument, line);
    require(!state.in_force || !state.running.empty() || argument.key.empty(), "in force, but nothing runs");
    if (validate_kernel_arguments({{"arguments", {argument.text()}}})) good.push_back(argument.text());
  }
  if (good.empty()) return;
  const std::vector<std::string> wanted = wanted_kernel_arguments({{"arguments", good}});
  require(noted_arguments(grub_drop_in(wanted)) == wanted, "a drop-in that notes other arguments");
  require(merged_arguments(wanted, wanted) == wanted, "merging what is there changes it");
}
