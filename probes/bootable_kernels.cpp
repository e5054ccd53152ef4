// SPDX-License-Identifier: MIT
// bootable-kernels: the kernel that boots next has a module nvidia, or headers to build the first one on this system.
// An upgrade installs a kernel that was never booted; without its headers DKMS builds nothing for it, and after
// the next reboot the GPUs have no driver. The kernel that boots next is the default entry of grub.cfg, else the
// newest; with proxmox-boot-tool the pinned one, with systemd-boot that of EFI variable LoaderEntryDefault, else the
// newest. `stays`: if p2pd installed the modules, its drop-in keeps that entry at a kernel that has them, also after
// updates. Reads /boot, /boot/grub, /etc/kernel, /lib/modules, /proc/sys/kernel/osrelease, p2pd's drop-in and kernel
// hook. Reference: GRUB manual, "default"; linux-version(1); dkms(8).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/probe.hpp"
#include "base/strings.hpp"
#include "machine/boot/boot_loader.hpp"
#include "machine/boot/efi_variable.hpp"
#include "machine/boot/grub.hpp"
#include "machine/boot/kernels.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/default_kernel.hpp"
#include "machine/modules/module_install.hpp"
#include "machine/modules/toolchain.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    {"stays", Parameter::Type::boolean, false,
     "the default entry stays at a kernel with the modules after updates, too"},
};

/// A kernel, and what makes it the next.
struct Next {
  std::string version;                ///< empty: no file says
  std::string_view why, source, fix;  ///< "the default of GRUB", file, what a person does where that kernel is gone
};

/// Kernel that proxmox-boot-tool was told to boot next. Its EFI partitions have a menu of their own; without them the
/// pin is in grub.cfg, too.
Next pinned(const Host& host, Finding& finding) {
  if (!host.files().exists("/etc/kernel/proxmox-boot-uuids")) return {};
  const KernelPin pin = next_boot_pin(host);
  if (!pin.version.empty()) finding.saw(pin.file, pin.version);
  return {pin.version, "pinned by proxmox-boot-tool", "proxmox-boot-tool", "Run \"proxmox-boot-tool kernel unpin\"."};
}

/// Kernel in the entry that systemd-boot was told to boot by default; else it is the newest.
Next chosen_by_bootctl(const Host& host, const std::vector<Kernel>& kernels, Finding& finding) {
  const auto data = efi_variable(host, "LoaderEntryDefault", kEfiLoader);
  const std::string entry = data ? efi_text(data->value_or("")) : "";
  for (const Kernel& kernel : kernels) {
    if (entry.find(lower(kernel.version)) == entry.npos) continue;
    finding.saw(efi_variable_path("LoaderEntryDefault", kEfiLoader), entry);
    return {kernel.version, "the default of systemd-boot", "systemd-boot", "Run \"bootctl set-default ''\"."};
  }
  return {};
}

/// Version of the kernel that GRUB boots by default; adds its source to the evidence. Empty if no file has it.
std::string default_of_grub(const Host& host, Finding& finding) {
  const auto text = host.files().read(kGrubConfig);
  if (!text) return "";
  const auto menu = parse_grub(*text);
  if (!menu) return "";
  const auto environment = parse_grub_environment(host.files().read(kGrubEnvironment).value_or(""));
  const auto entry = default_grub_entry(*menu, environment);
  if (!entry || *entry == nullptr) return "";
  const std::string image = kernel_image(**entry);
  if (!image.empty()) finding.saw(kGrubConfig, (*entry)->title + ": " + image);
  return kernel_version(**entry);
}

/// "6.1.0-37-amd64: headers, nvidia in /lib/modules/..."
std::string told(const Kernel& kernel) {
  if (!kernel.modules) return "no /lib/modules/" + kernel.version;
  return fmt::format("{} headers, {}", kernel.headers ? "has" : "no",
                     kernel.nvidia.empty() ? "no module nvidia" : kernel.nvidia.front());
}

/// `had`: the running kernel has a module nvidia, which a reboot would lose.
void judge(const Host& host, Finding& finding, const Kernel& next, std::string_view why, bool had) {
  const std::string boots = fmt::format("{} boots next ({})", next.version, why);
  if (!next.modules)
    finding.set(
        Verdict::fail, boots + " and has no modules at all",
        fmt::format("Install its package again: \"apt install --reinstall {}\".", kernel_package(host, next.version)));
  else if (!next.nvidia.empty())
    finding.set(Verdict::pass,
                boots + " and has a module nvidia" + (next.headers ? "" : ", but no headers to build another"));
  else if (!next.headers)
    finding.set(Verdict::fail, boots + " with neither headers nor a module nvidia",
                fmt::format("Install its headers: \"apt install {}\".", headers_package(host, next.version)));
  else if (had)
    finding.set(Verdict::fail, boots + " without the module nvidia that is loaded now",
                fmt::format("Build the modules for {} before you reboot; its headers are there.", next.version));
  else
    finding.set(Verdict::pass, boots + ": it has headers, and no module nvidia yet");
}

/// Fails if p2pd installed modules and nothing keeps the default at a kernel that has them.
void judge_updates(const Host& host, Finding& finding) {
  const auto holds = [&](const DefaultKernelFile& file) {
    return host.files().read(file.path).value_or("") == file.content;
  };
  if (!installed_build(host) || std::ranges::all_of(default_kernel_files(boots_by_systemd_boot(host)), holds)) return;
  finding.set(Verdict::fail, "a kernel update that the driver's modules do not fit would start by default",
              "Run \"sudo p2pctl apply\".");
}

/// Reports newer kernels that do not start by default because they lack the modules.
void tell_held_back(const Host& host, const std::vector<Kernel>& kernels, const Kernel& next, Finding& finding) {
  const bool own = installed_build(host).has_value();  // the packages' modules do not count if p2pd's are installed
  const auto has = [&](const Kernel& kernel) {
    return own ? has_own_modules(host, kernel.version) : !kernel.nvidia.empty();
  };
  std::vector<std::string> without;
  for (const Kernel& kernel : kernels)
    if (&kernel > &next && !has(kernel)) without.push_back(kernel.version);
  if (without.empty() || !has(next)) return;
  finding.summary += fmt::format("; {} {} newer and {} no module, so {} not start by default", fmt::join(without, ", "),
                                 without.size() == 1 ? "is" : "are", without.size() == 1 ? "has" : "have",
                                 without.size() == 1 ? "does" : "do");
  finding.next =
      host.files().exists(kKernelHooks[0])
          ? fmt::format("Install {3} and run \"sudo {1} {0}\", or wait for a driver that fits; the log: {2}.",
                        without.back(), kKernelHooks[0], kLogs, headers_package(host, without.back()))
          : fmt::format("Install {}, or wait for a driver that fits; DKMS' log: {}.",
                        headers_package(host, without.back()), kLogs);
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  Finding finding;
  const std::vector<Kernel> kernels = TRY(bootable_kernels(host));
  const std::string running = host.line("/proc/sys/kernel/osrelease").value_or("");  // an image has no running kernel
  Next told_next = pinned(host, finding);
  if (told_next.version.empty() && boots_by_systemd_boot(host))
    told_next = chosen_by_bootctl(host, kernels, finding);
  else if (told_next.version.empty())
    told_next = {default_of_grub(host, finding), "the default of GRUB", kGrubConfig, "Run update-grub."};
  for (const Kernel& kernel : kernels) finding.saw("/boot/vmlinuz-" + kernel.version, told(kernel));
  const auto chosen = std::ranges::find(kernels, told_next.version, &Kernel::version);
  if (!told_next.version.empty() && chosen == kernels.end())
    return fail(ErrorCode::not_found,
                fmt::format("{} boots {} by default, which is not in /boot", told_next.source, told_next.version),
                std::string(told_next.fix));
  const Kernel& next = told_next.version.empty() ? kernels.back() : *chosen;
  finding.facts = {{"running", or_null(running)}, {"next", next.version}};
  const bool had = !running.empty() && !kernel_of(host, running).nvidia.empty();
  judge(host, finding, next, told_next.version.empty() ? "the newest" : told_next.why, had);
  if (finding.verdict == Verdict::pass) tell_held_back(host, kernels, next, finding);
  if (finding.verdict == Verdict::pass && parameters.value("stays", false)) judge_updates(host, finding);
  if (!running.empty() && std::ranges::find(kernels, running, &Kernel::version) == kernels.end())
    finding.summary += fmt::format("; {} is running and no longer in /boot", running);
  return finding;
}

}  // namespace

extern const Probe kBootableKernels = {
    .id = "bootable-kernels",
    .asserts = "the kernel that boots next has a module nvidia, or headers to build the first one",
    .parameters = kParameters,
    .check = check,
};

}  // namespace p2pd
