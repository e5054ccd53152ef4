// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "machine/boot/grub_menu.hpp"
#include "machine/boot/kernels.hpp"

namespace p2pd {

/// File that computes GRUB_DEFAULT whenever grub.cfg is generated; sorts before zz-p2pd.cfg.
inline constexpr std::string_view kDefaultKernelDropIn = "/etc/default/grub.d/zz-p2pd-kernel.cfg";
/// Hook that generates grub.cfg again once headers, and so modules, are installed after their kernel.
inline constexpr std::string_view kHeaderHook = "/etc/kernel/header_postinst.d/zz-p2pd";

/// Text of the drop-in: the default entry is that of the newest kernel with p2pd's modules, if newer ones lack them. A
/// default that a person chose by name, number or grub-set-default stays, and grub-reboot precedes it.
std::string default_kernel_drop_in();
std::string header_hook();
/// The same for systemd-boot: a hook that runs behind those of kernel-install and proxmox-boot-tool, and chooses the
/// default entry by bootctl. One that a person chose so stays; kDefaultEntry notes the hook's choice.
inline constexpr std::string_view kKernelHook = "/etc/kernel/postinst.d/zzz-p2pd";
inline constexpr std::string_view kDefaultEntry = "/var/lib/p2pd/boot-default";

/// A file that keeps the default entry at a kernel with the modules.
struct DefaultKernelFile {
  std::string_view path;
  std::string content;
  mode_t mode = 0644;
};
/// Those for GRUB, or for systemd-boot.
std::vector<DefaultKernelFile> default_kernel_files(bool systemd_boot);

/// Image of an entry, "/boot/vmlinuz-6.1.0-37-amd64", and the version in it; empty if its file has no such name.
std::string kernel_image(const GrubEntry& entry);
std::string kernel_version(const GrubEntry& entry);

/// Checks that p2pd's modules are installed for kernel `version`, through DKMS or beside it.
bool has_own_modules(const Host& host, const std::string& version);

/// Versions that do not start by default: those newer than a pinned kernel, or newer than every kernel with p2pd's
/// modules where drop-in or hook is installed. Empty if no kernel has them.
std::vector<std::string> kernels_held_back(const Host& host);

}  // namespace p2pd
