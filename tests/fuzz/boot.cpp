// SPDX-License-Identifier: MIT
// Texts of the boot loader and the kernel: grub.cfg, /proc/cmdline, mountinfo, the kernel's log.
#include "base/probe.hpp"
#include "base/signatures.hpp"
#include "fuzz.hpp"
#include "machine/boot/grub.hpp"
#include "machine/boot/kernel_arguments.hpp"
#include "machine/boot/kernel_log.hpp"
#include "machine/boot/mounts.hpp"

namespace p2pd {
extern const Probe kKernelLog;
}

/// Any text as grub.cfg, grubenv and custom.cfg; its trial entry is read back as one entry with its id.
FUZZ(grub) {
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

/// Any text as /proc/cmdline; arguments that are valid for GRUB are read back unchanged from our drop-in.
FUZZ(kernel_arguments) {
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

/// Any text as /proc/self/mountinfo: a mount is found again at its own mount point, and errors name the line.
FUZZ(mounts) {
  static const Tree tree;
  const auto mounts = parse_mounts(input);
  if (!mounts) {
    require(mounts.error().code == ErrorCode::invalid, "an error of another kind");
    require(mounts.error().message.starts_with("line "), "an error that does not say where");
    return;
  }
  for (const Mount& mount : *mounts) {
    require(!mount.point.empty() && !mount.device.empty() && !mount.type.empty() && !mount.source.empty(),
            "a mount that lacks something");
    const Mount* found = mount_above(*mounts, mount.point);
    require(found != nullptr && found->point == mount.point, "a mount point that lies on another mount");
    require(found >= &mount, "an earlier mount hides a later one");
    require(layer_below(tree.host, mount.device).empty(), "a layer below a device that is not there");
  }
}

/// Any text as a kernel log: an answer, and a verdict that follows from the signatures found.
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
  bool loaded = false;  // a record before the load of a driver is a note
  for (const KernelRecord& record : log.records) {
    loaded = loaded || record.text.starts_with("NVRM: loading NVIDIA UNIX ");
    for (const Signature& row : table)
      any =
          any || (row.log == "kernel" && row.failure && !row.gpu_only && row.cures.empty() && row.matches(record.text));
  }
  require(!any || loaded || finding->verdict == Verdict::fail, "a failure that was not told");
  // a written record is read back unchanged
  std::string text;
  for (const KernelRecord& record : log.records) text += record.head + record.text + "\n";
  if (log.whole)
    require(parse_kernel_log(text, "").records.size() == log.records.size(), "records that do not come back");
}
