// SPDX-License-Identifier: MIT
#include "machine/boot/boot_loader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "machine/boot/boot_partition.hpp"
#include "machine/boot/efi_variable.hpp"
#include "machine/boot/grub.hpp"
#include "machine/boot/kernel_arguments.hpp"

namespace p2pd {

namespace {

constexpr std::string_view kNote = "# arguments:", kSystemd = "systemd-boot";

}  // namespace

Result<std::string> loader_info(const Host& host) {
  return efi_text(TRY(efi_variable(host, "LoaderInfo", kEfiLoader)).value_or(""));
}

bool boots_by_systemd_boot(const Host& host) { return loader_info(host).value_or("").starts_with(kSystemd); }

Result<const BootLoader*> boot_loader(const Host& host) {
  const std::string info = TRY(loader_info(host));
  if (info.starts_with(kSystemd)) return &kSystemdBoot;
  if (!host.live()) return &kGrubLoader;
  const bool config = host.files().exists(kGrubConfig), tool = uses_proxmox_boot_tool(host);
  if (config && !tool && host.has_program("grub-mkconfig")) return &kGrubLoader;
  const std::string why = tool     ? "proxmox-boot-tool installs GRUB, which cannot boot an entry once"
                          : config ? "grub-mkconfig is not installed"
                                   : "there is no " + std::string(kGrubConfig);
  return fail(ErrorCode::invalid,
              fmt::format("the boot loader of this host{} cannot try arguments: {}",
                          info.empty() ? "" : ", " + info + ",", why),
              "Add the arguments in the form of this host's boot loader, reboot, then start p2pd again.");
}

std::string add_arguments_by_hand(const Host& host) {
  const std::string info = loader_info(host).value_or("");
  const bool systemd = info.starts_with(kSystemd);
  const std::string add = fmt::format("Add {} to ", kTheArguments);
  if (systemd && uses_proxmox_boot_tool(host))
    return add + "/etc/kernel/cmdline, run \"sudo proxmox-boot-tool refresh\" and reboot.";
  if (systemd && host.has_program("kernel-install"))
    return add +
           "/etc/kernel/cmdline, run \"sudo kernel-install add $(uname -r) /boot/vmlinuz-$(uname -r)\" and reboot.";
  if (systemd) return add + "the line \"options\" of the boot entry (\"bootctl list\" names its file) and reboot.";
  if (!info.empty() && !info.starts_with("GRUB")) return add + "the configuration of " + info + " and reboot.";
  const std::string grub =
      fmt::format("Add {} to GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub unless there, run ", kTheGrubArguments);
  if (uses_proxmox_boot_tool(host)) return grub + "\"sudo proxmox-boot-tool refresh\" and reboot.";
  if (!host.files().exists(kGrubConfig) && host.has_program("grubby"))
    return fmt::format("Run \"sudo grubby --update-kernel=ALL --args='{}'\" and reboot.", kTheGrubArguments);
  return grub + "\"sudo update-grub\" and reboot.";
}

Result<std::vector<std::string>> permanent_arguments(const Host& host) {
  return merged_arguments(TRY(drop_in_arguments(host)), noted_arguments(TRY(read_if_any(host, kBootArguments))));
}

std::string arguments_note(const std::vector<std::string>& arguments) {
  return fmt::format("{} {}\n", kNote, fmt::join(arguments, " "));
}

std::vector<std::string> noted_arguments(std::string_view text) {
  std::size_t at = text.starts_with(kNote) ? 0 : text.find("\n" + std::string(kNote));
  if (at == std::string_view::npos) return {};
  at = text.find(':', at) + 1;
  const std::string_view line = text.substr(at, std::min(text.find('\n', at), text.size()) - at);
  std::vector<std::string> out;
  for (const KernelArgument& argument : parse_kernel_line(line)) out.push_back(argument.text());
  return out;
}

Result<std::string> read_if_any(const Host& host, std::string_view path) {
  return host.files().exists(path) ? host.files().read(path) : Result<std::string>(std::string());
}

}  // namespace p2pd
