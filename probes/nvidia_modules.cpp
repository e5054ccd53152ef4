// SPDX-License-Identifier: MIT
// nvidia-modules: the NVIDIA kernel modules are loaded, and they are the files that modprobe would load.
// A patched module has the version string of the stock one, and its srcversion if only nv-kernel.o was patched: the
// build id differs. A module built by hand is in kernel/drivers/video, and a DKMS copy in updates/dkms takes precedence
// over it; nouveau or Nova on a GPU keeps nvidia off. Reads /sys/module/nvidia*/{srcversion,notes}, modules.dep,
// .modinfo and .note.gnu.build-id of the files, /proc/driver/nvidia/version for the flavour, and each GPU's driver
// link. Reference: modprobe(8), depmod.d(5); ld(1), --build-id; scripts/mod/sumversion.c of Linux.
#include <fmt/format.h>

#include <algorithm>

#include "base/probe.hpp"
#include "machine/driver/loaded_driver.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/modules/loaded_modules.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "machine/modules/module_file.hpp"
#include "machine/modules/own_place.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kNames[] = {"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem"};

/// Loaded module, and the files that it could come from.
struct Loaded {
  std::string name;
  ModuleIdentity identity;
  std::vector<std::string> files;       ///< the first one is the file that modprobe would load
  std::vector<ModuleIdentity> on_disk;  ///< their identities
};

/// "open" or "proprietary"; empty: not known.
std::string flavour_of(const Host& host) {
  const auto version = nvidia_version(host);
  if (!version) return {};
  return version->open ? "open" : "proprietary";
}

/// "updates/dkms/nvidia.ko" for a file of `release`.
std::string short_name(const std::string& file, const std::string& release) {
  const std::string directory = module_directory(release) + "/";
  return file.starts_with(directory) ? file.substr(directory.size()) : file;
}

Result<std::vector<Loaded>> loaded_modules(const Host& host, const std::string& release) {
  const std::string base = TRY(installed_name(host, "nvidia"));
  const auto listed = TRY_IN("the module that modprobe would load is not known", modules_by_name(host, release));
  std::vector<Loaded> out;
  std::vector<std::string> all;
  for (const std::string_view name : kNames) {
    if (!host.files().exists("/sys/module/" + std::string(name) + "/srcversion")) continue;
    Loaded loaded{std::string(name), loaded_identity(host, name), {}, {}};
    const std::string file_name = renamed(name, base);
    if (listed.contains(file_name)) loaded.files = module_copies(host, release, file_name);
    all.insert(all.end(), loaded.files.begin(), loaded.files.end());
    out.push_back(std::move(loaded));
  }
  const std::vector<ModuleIdentity> identities = TRY(module_identities(host, all));
  auto next = identities.begin();
  for (Loaded& loaded : out) {
    loaded.on_disk.assign(next, next + static_cast<std::ptrdiff_t>(loaded.files.size()));
    next += static_cast<std::ptrdiff_t>(loaded.files.size());
  }
  return out;
}

/// Reports the fault of one module; returns true if there is one.
bool wrong(const Loaded& loaded, const std::string& release, Finding& finding) {
  if (loaded.files.empty()) {
    finding.set(Verdict::fail,
                fmt::format("{} is loaded (srcversion {}), and kernel {} no longer has that file", loaded.name,
                            loaded.identity.srcversion, release),
                "Install the driver for this kernel, or reboot into the kernel that has it.");
    return true;
  }
  const std::string first = short_name(loaded.files.front(), release);
  const ModuleIdentity& used = loaded.on_disk.front();
  const bool own = first.starts_with(kOwnPlace);  // meant to take precedence over those of packages
  for (std::size_t i = 1; i < loaded.files.size() && !own; ++i) {
    const ModuleIdentity& shadowed = loaded.on_disk[i];
    const std::string other = short_name(loaded.files[i], release);
    // compared by srcversion, since both may be builds of one source
    const bool by_hand = first.starts_with("updates/dkms/") && other.starts_with("kernel/drivers/video/") &&
                         shadowed.srcversion != used.srcversion;
    if (!by_hand && (used.is(loaded.identity) || !shadowed.is(loaded.identity))) continue;
    finding.set(Verdict::fail,
                fmt::format("{} ({}) shadows the different {} ({}); loaded is {}", first, used.text(shadowed), other,
                            shadowed.text(used), loaded.identity.text(used)),
                fmt::format("Keep one: remove {} ({}), run depmod, and load the modules again.", first,
                            first.starts_with("updates/dkms/") ? "dkms remove" : "delete the file"));
    return true;
  }
  if (used.is(loaded.identity)) return false;
  finding.set(Verdict::fail, not_installed_text(loaded.name, loaded.identity, used),
              "Load the modules again, or reboot.");
  return true;
}

/// Names the line of modprobe.d that keeps nvidia off: guides for guests of Proxmox VE put one into pve-blacklist.conf.
void tell_blacklist(const Host& host, Finding& finding) {
  for (const BannedModule& one : banned_modules(host).value_or(std::vector<BannedModule>())) {
    if (one.module != "nvidia" || one.source.starts_with(kTrialBan)) continue;
    finding.saw(one.source, "nvidia is kept off");
    finding.summary += ": " + one.source + " keeps it off";
    finding.next = fmt::format("Remove that line of {}, make the initramfs anew, and reboot.",
                               one.source.substr(0, one.source.find(':')));
    return;
  }
}

Result<Finding> check(const Host& host, const Parameters&) {
  const std::map<std::string, std::string> drivers = TRY(drivers_of_gpus(host));
  if (drivers.empty()) return not_applicable("no NVIDIA GPU");
  Finding finding;
  const std::string flavour = flavour_of(host);
  finding.facts = {{"flavour", or_null(flavour)}};
  for (const auto& [address, driver] : drivers)
    if (!driver.empty() && driver != "nvidia") finding.saw(sysfs_path(address, "driver"), driver);
  if (const std::string taken = taken_by_linux(drivers); !taken.empty()) {
    finding.set(Verdict::fail, taken,
                "Blacklist nouveau, nova_core and nova_drm in /etc/modprobe.d, rebuild the initramfs and reboot.");
    return finding;
  }
  if (!host.files().exists("/sys/module/nvidia")) {
    finding.set(Verdict::fail, "no NVIDIA kernel module is loaded",
                "Install the NVIDIA driver; where it is installed, run modprobe nvidia and read the kernel log.");
    tell_blacklist(host, finding);
    return finding;
  }
  const std::string release = TRY(host.line("/proc/sys/kernel/osrelease"));
  TRY(host.line("/sys/module/nvidia/srcversion"));
  const std::vector<Loaded> modules = TRY(loaded_modules(host, release));
  std::string shadowed;
  for (const Loaded& loaded : modules) {
    nlohmann::json& facts = finding.facts["modules"][loaded.name] = to_json(loaded.identity);
    facts["files"] = nlohmann::json::array();
    for (std::size_t i = 0; i < loaded.files.size(); ++i) {
      facts["files"].push_back(to_json(loaded.on_disk[i]));
      facts["files"].back()["file"] = loaded.files[i];
      finding.saw(loaded.files[i], loaded.on_disk[i].srcversion);
      if (i > 0 && loaded.name == "nvidia") shadowed += "; shadowed: " + short_name(loaded.files[i], release);
    }
    finding.saw("/sys/module/" + loaded.name + "/srcversion", loaded.identity.srcversion);
  }
  if (std::ranges::any_of(modules, [&](const Loaded& loaded) { return wrong(loaded, release, finding); }))
    return finding;
  const Loaded& nvidia_module = modules.front();
  const ModuleIdentity& installed = nvidia_module.on_disk.front();
  const bool weaker = !nvidia_module.identity.by_build_id(installed);
  finding.set(
      Verdict::pass,
      fmt::format("the loaded {} modules are those that modprobe loads: {} ({}{}){}",
                  flavour.empty() ? "nvidia" : flavour, short_name(nvidia_module.files.front(), release),
                  nvidia_module.identity.text(installed), weaker ? fmt::format(", {}", kWeakerSign) : "", shadowed));
  return finding;
}

}  // namespace

extern const Probe kNvidiaModules = {
    .id = "nvidia-modules",
    .asserts =
        "the NVIDIA modules are loaded, are the files that modprobe would load, and neither nouveau nor Nova has a GPU",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
