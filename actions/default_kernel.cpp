// SPDX-License-Identifier: MIT
// default-kernel: keeps the default entry at the newest kernel that has the driver's modules.
// Otherwise a new kernel without matching modules would start by default, without a driver and with nouveau
// blacklisted. /etc/default/grub is never written: a drop-in computes GRUB_DEFAULT each time that grub.cfg is
// generated, so it covers added and removed kernels. A hook generates grub.cfg again if modules were built after their
// kernel was installed. With systemd-boot, a kernel hook does both by "bootctl set-default". Writes zz-p2pd-kernel.cfg
// in /etc/default/grub.d, zz-p2pd in /etc/kernel/header_postinst.d, and grub.cfg if its default entry differs; or
// zzz-p2pd in /etc/kernel/postinst.d, and EFI variable LoaderEntryDefault. Reference: GRUB manual, "default"; kernel
// hooks of Debian, run-parts(8); bootctl(1).
#include <algorithm>

#include "base/action.hpp"
#include "machine/boot/boot_loader.hpp"
#include "machine/boot/efi_variable.hpp"
#include "machine/boot/grub.hpp"
#include "machine/boot/kernels.hpp"
#include "machine/modules/default_kernel.hpp"

namespace p2pd {
namespace {

Result<GrubBoot> boot_now(const Host& host) { return read_grub_boot(host, TRY(host.files().read(kGrubConfig))); }

/// Newest kernel with p2pd's modules; empty: none has them.
Result<std::string> newest_with_modules(const Host& host) {
  const std::vector<Kernel> kernels = TRY(bootable_kernels(host));
  const auto found = std::ranges::find_if(kernels.rbegin(), kernels.rend(),
                                          [&](const Kernel& kernel) { return has_own_modules(host, kernel.version); });
  return found == kernels.rend() ? std::string() : found->version;
}

/// Runs the hook of systemd-boot; its choice is undone below.
Result<void> choose_entry(Host& host) {
  TRY(host.will_change(kDefaultEntry, Restore::by_action));
  TRY(host.run({{std::string(kKernelHook)}, {}, {}}));
  return {};
}

Result<Description> describe(const Host& host, const Parameters&) {
  Description description;
  description.summary = "boot the newest kernel that has the driver's modules by default";
  for (DefaultKernelFile& file : default_kernel_files(boots_by_systemd_boot(host)))
    description.files.push_back({std::string(file.path), FileState::Kind::regular, std::move(file.content)});
  return description;
}

Result<void> apply(Host& host, const Parameters&) {
  for (DefaultKernelFile& file : default_kernel_files(boots_by_systemd_boot(host)))
    TRY(file.path == kDefaultKernelDropIn ? host.write_own(file.path, std::move(file.content))
                                          : host.write(file.path, std::move(file.content), file.mode));
  if (host.live() && host.files().exists(kKernelHook)) return choose_entry(host);
  if (!can_generate_grub_config(host)) return {};
  const std::string newest = TRY(newest_with_modules(host));
  const std::string now = kernel_version(TRY(boot_now(host)).entry);
  if (newest.empty() || now == newest || has_own_modules(host, now)) return {};
  TRY(renew_grub_config(host,
                        [&](const GrubBoot& boot) -> Result<bool> { return kernel_version(boot.entry) == newest; }));
  return host.files().checkpoint("/boot/grub");
}

Result<void> prepare_undo(Host& host, const Parameters&) {
  if (!can_generate_grub_config(host) || host.is_as_left(kGrubConfig)) return {};
  if (TRY(boot_now(host)).menu.default_entry.find("gnulinux-") == std::string::npos) return {};
  return check_grub_generation(host);
}

/// Generates grub.cfg again if it still names the entry of the drop-in. The engine has restored the files.
Result<void> undo(Host& host, const Parameters&) {
  if (host.files().exists(kDefaultEntry)) {
    const auto chosen = TRY(efi_variable(host, "LoaderEntryDefault", kEfiLoader));
    if (efi_text(chosen.value_or("")) == TRY(host.line(kDefaultEntry)))  // not another one, which a person chose since
      TRY(host.run({{"bootctl", "set-default", ""}, {}, {}}));
    TRY(host.remove_tree(kDefaultEntry));
  }
  if (!can_generate_grub_config(host)) return {};
  const std::string chosen = TRY(boot_now(host)).menu.default_entry;
  if (chosen.find("gnulinux-") == std::string::npos) return {};
  TRY(renew_grub_config(host, [&](const GrubBoot& boot) -> Result<bool> { return boot.menu.default_entry != chosen; }));
  return host.files().checkpoint("/boot/grub");
}

}  // namespace

extern const Action kDefaultKernelAction = {
    .id = "default-kernel",
    .topic = "kernel",
    .does = "keeps the default boot entry at the newest kernel that has the driver's modules",
    .describe = describe,
    .apply = apply,
    .prepare_undo = prepare_undo,
    .undo = undo,
};

}  // namespace p2pd
