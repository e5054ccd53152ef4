// SPDX-License-Identifier: MIT
// Any text as grub.cfg, grubenv and custom.cfg; a trial entry made of what it boots is read back with its arguments.
#include "machine/boot/grub.hpp"

#include "fuzz.hpp"

void p2pd::fuzz::run(std::string_view input) {
  const std::vector<std::string> arguments = {"iommu=pt", "pci=disable_acs_redir=0000:00:01.0;0000:00:02.0"};
  const auto custom = split_grub_custom(input);
  if (custom) require(custom->user.size() + custom->trial.size() <= input.size(), "custom.cfg grows");
  (void)noted_arguments(input);
  const auto menu = parse_grub(input);
  if (!menu) return;
  const auto entry = default_grub_entry(*menu, parse_grub_environment(input));
  if (!entry || *entry == nullptr || (*entry)->submenu || (*entry)->loads.empty()) return;
  const auto trial = parse_grub(grub_trial(**entry, arguments));
  require(trial.has_value(), "a trial entry that cannot be read");
  require(trial->entries.size() == 1, "a trial that is not one entry");
  require(trial->entries[0].id == kTrialId, "a trial entry of another id");
}
