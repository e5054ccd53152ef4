// SPDX-License-Identifier: MIT
// boot-loader: GRUB or systemd-boot booted this host, and can boot p2pd's trial entry for one boot only.
// Kernel arguments are tried for one boot. With GRUB by an entry in /boot/grub/custom.cfg, selected by a variable that
// GRUB clears in its environment block: so it must read custom.cfg, and be able to write, which it is not through LVM,
// RAID, ZFS or btrfs, where a trial would never end. With systemd-boot by an EFI variable that it clears itself.
// Reads EFI variables Loader*, /etc/kernel/proxmox-boot-uuids, mountinfo, sysfs of block devices, /boot/grub, boot
// entries. Reference: GRUB manual, "The GRUB environment block"; systemd.io/BOOT_LOADER_INTERFACE.
#include <fmt/format.h>

#include <algorithm>

#include "base/probe.hpp"
#include "machine/boot/boot_loader.hpp"
#include "machine/boot/boot_partition.hpp"
#include "machine/boot/efi_variable.hpp"
#include "machine/boot/grub.hpp"
#include "machine/boot/kernel_arguments.hpp"
#include "machine/boot/mounts.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kGrub2Config = "/boot/grub2/grub.cfg";  // used by Fedora's family; p2pd does not write it
constexpr std::string_view kSystemdBoot[] = {"/boot/efi/EFI/systemd", "/efi/EFI/systemd", "/boot/EFI/systemd"};
constexpr std::string_view kWritable[] = {"ext2", "ext3", "ext4", "jfs", "msdos", "reiserfs", "vfat", "xfs"};

/// True if the kernel got BOOT_IMAGE, as from GRUB; nothing if there is no command line to read.
std::optional<bool> booted_by_grub(const Host& host, Finding& finding) {
  const auto text = host.line("/proc/cmdline");
  if (!text) return std::nullopt;
  const auto line = parse_kernel_line(*text);
  const auto image = std::ranges::find(line, "BOOT_IMAGE", &KernelArgument::key);
  finding.saw("/proc/cmdline", image == line.end() ? "no BOOT_IMAGE" : image->text());
  return image != line.end();
}

/// "grub", "systemd-boot", "proxmox-boot-tool", the text of LoaderInfo, or empty: not known.
std::string name_of(const Host& host, const std::string& info, bool proxmox) {
  if (proxmox) return "proxmox-boot-tool";
  if (boots_by_systemd_boot(host)) return "systemd-boot";
  if (!info.empty() && !info.starts_with("GRUB")) return info;
  for (const std::string_view path : {kGrubConfig, kGrubEnvironment, kGrub2Config})
    if (!info.empty() || host.files().exists(path)) return "grub";
  for (const std::string_view path : kSystemdBoot)
    if (host.files().exists(path)) return "systemd-boot";
  return host.files().exists("/boot/loader/loader.conf") ? "systemd-boot" : "";
}

/// Fails if GRUB cannot write its environment block, or p2pd cannot write custom.cfg.
Result<void> judge_environment(const Host& host, Finding& finding) {
  const auto mounts = TRY_IN(kMountInfo, parse_mounts(TRY(host.files().read(kMountInfo, 8U << 20))));
  const Mount* const mount = mount_above(mounts, "/boot/grub");
  if (mount == nullptr) return fail(ErrorCode::not_found, "no mount above /boot/grub");
  const std::string layer = layer_below(host, mount->device);
  const bool can = std::ranges::find(kWritable, mount->type) != std::end(kWritable);
  finding.saw(kMountInfo, fmt::format("/boot/grub is on {} {} at {}", mount->type, mount->source, mount->point));
  finding.facts["layer"] = or_null(layer);
  if (!can || !layer.empty()) {
    finding.set(Verdict::fail,
                fmt::format("/boot/grub is on {}, where GRUB cannot write: every boot would be the trial boot",
                            layer.empty() ? mount->type : layer),
                add_arguments_by_hand(host) + " Or put /boot on a plain partition.");
  } else if (mount->read_only) {
    finding.set(Verdict::fail, fmt::format("{} is mounted read-only", mount->point), "Mount it read-write.");
  }
  if (finding.verdict == Verdict::fail || !host.files().exists(kGrubEnvironment)) return {};
  if (TRY(host.files().read(kGrubEnvironment, 1U << 20)).starts_with("# GRUB Environment Block\n")) return {};
  finding.set(Verdict::fail, std::string(kGrubEnvironment) + " is not an environment block: GRUB would not read it",
              "Make it anew: \"grub-editenv /boot/grub/grubenv create\".");
  return {};
}

Result<void> judge_menu(const Host& host, Finding& finding) {
  const GrubMenu menu = TRY_IN(kGrubConfig, parse_grub(TRY(host.files().read(kGrubConfig))));
  finding.saw(kGrubConfig, fmt::format("{} entries", menu.entries.size()));
  if (finding.verdict == Verdict::fail) return {};
  if (!menu.reads_custom)
    finding.set(Verdict::fail, "grub.cfg does not read /boot/grub/custom.cfg, where the trial entry would be",
                "Restore /etc/grub.d/41_custom (package grub-common, executable), then run update-grub.");
  else if (!menu.one_time)
    finding.set(
        Verdict::fail, "grub.cfg ignores grub-reboot, which picks the trial entry for one boot",
        "Choose the default by GRUB_DEFAULT in /etc/default/grub, not by \"set default=\", then run update-grub.");
  return {};
}

void judge_other(const Host& host, Finding& finding, const std::string& loader) {
  std::string why = loader + " boots this host, and p2pd can try an entry once with GRUB and systemd-boot only";
  if (loader == "proxmox-boot-tool")
    why = "proxmox-boot-tool installs GRUB on this host, which cannot boot an entry once";
  if (loader == "grub") why = "GRUB of this host does not use /boot/grub/grub.cfg";
  finding.set(Verdict::fail, why, add_arguments_by_hand(host));
}

void judge_systemd_boot(const Host& host, Finding& finding) {
  finding.set(Verdict::pass, "systemd-boot boots this host and can try an entry once");
  if (!host.live()) return;
  const auto can = systemd_boot_can_try(host);
  if (!can && can.error().code != ErrorCode::denied) finding.set(Verdict::fail, can.error().message, can.error().next);
}

Result<Finding> check(const Host& host, const Parameters&) {
  Finding finding;
  const std::string info = TRY(loader_info(host));
  if (!info.empty()) finding.saw(efi_variable_path("LoaderInfo", kEfiLoader), info);
  const bool proxmox = uses_proxmox_boot_tool(host);
  if (proxmox) finding.saw(kProxmoxPartitions, host.line(kProxmoxPartitions).value_or(""));
  const std::string loader = name_of(host, info, proxmox);
  if (loader.empty()) return fail(ErrorCode::not_found, "the files of this host do not identify its boot loader");
  const auto by_grub = booted_by_grub(host, finding);
  finding.facts = {{"loader", loader}};
  if (boots_by_systemd_boot(host)) {
    judge_systemd_boot(host, finding);
    return finding;
  }
  finding.set(Verdict::pass, "GRUB boots this host and can try an entry once");
  const bool ours = host.files().exists(kGrubConfig) || host.files().exists(kGrubEnvironment);
  if (loader != "grub" || !ours) {
    judge_other(host, finding, loader);
    return finding;
  }
  if (by_grub == false) {
    finding.set(
        Verdict::fail, "the running kernel was not started by GRUB: /proc/cmdline has no BOOT_IMAGE",
        "See what starts the kernel (a direct boot of a virtual machine, Xen, a unified image), and add the kernel "
        "arguments there.");
    return finding;
  }
  TRY(judge_environment(host, finding));
  if (finding.verdict == Verdict::fail && !host.files().exists(kGrubConfig)) return finding;
  TRY(judge_menu(host, finding));
  if (finding.verdict == Verdict::pass && host.live() && !host.has_program("grub-mkconfig"))
    finding.set(Verdict::fail, "grub-mkconfig is not installed: the arguments could be tried, but not kept",
                "Install package grub-common.");
  return finding;
}

}  // namespace

extern const Probe kBootLoader = {
    .id = "boot-loader",
    .asserts = "GRUB or systemd-boot booted this host and can boot a trial entry once",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
