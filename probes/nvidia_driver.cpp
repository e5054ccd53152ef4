// SPDX-License-Identifier: MIT
// nvidia-driver: one NVIDIA driver is installed, it is of a kind that can give P2P, and no guest has a GPU.
// Installed by packages or by NVIDIA's runfile, not by both: each overwrites the other's files at every upgrade.
// Between GeForce cards neither the proprietary modules nor those of a distribution's packages give P2P; only patched
// open ones do, beside the packages or with a runfile, and NVIDIA's own between RTX 50 cards,
// on 570 and from 580 on, with the right options.
// The verdict is about the installed driver; other-modules and nvidia-modules check the loaded one.
// Reads dpkg's status, the runfile's manifest, /var/lib/dkms, `driver` of each GPU, /proc/driver/nvidia.
// Reference: backup.c of NVIDIA/nvidia-installer; dpkg(1), dkms(8).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/probe.hpp"
#include "machine/driver/driver_install.hpp"
#include "machine/driver/driver_options.hpp"
#include "machine/driver/loaded_driver.hpp"
#include "machine/hardware/gpus.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/modules/default_kernel.hpp"
#include "machine/modules/loaded_modules.hpp"
#include "machine/modules/module_file.hpp"
#include "machine/modules/module_install.hpp"
#include "machine/modules/toolchain.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kVersion = "/proc/driver/nvidia/version";
constexpr const char* kUseListed =
    "Use a driver that \"p2pctl catalogue\" lists for this machine; \"sudo p2pctl apply\" installs one.";

/// Running driver, as far as files show.
struct Running {
  std::map<std::string, std::string> by_gpu;  ///< address to driver; empty: none is bound
  bool needs_built = false;                   ///< neither NVIDIA's nor a distribution's driver gives these GPUs P2P
  bool loaded = false;
  bool proprietary = false;  ///< loaded, and will be loaded again
  bool own_modules = false;  ///< p2pd installed modules for the running kernel
  bool stock_p2p = false;    ///< NVIDIA's own modules, configured to give P2P
};

/// True if open modules are installed in place of those that are still loaded.
bool open_is_installed(const Host& host) {
  const auto release = host.line("/proc/sys/kernel/osrelease");
  const auto name = installed_name(host, "nvidia");
  const auto files = release && name ? modules_by_name(host, *release) : fail(ErrorCode::not_found, "no module");
  if (!files || !files->contains(*name)) return false;
  const auto info = module_info(host, files->at(*name));
  if (!info || !info->contains("license") || info->at("license") != "Dual MIT/GPL") return false;
  const auto installed = module_identities(host, {files->at(*name)});
  return installed && !installed->front().is(loaded_identity(host, "nvidia"));
}

Result<Running> running_driver(const Host& host, Finding& finding) {
  Running out;
  out.needs_built = TRY(needs_built_driver(host));
  if (is_image(host)) {
    out.own_modules = installed_build(host).has_value();
    return out;
  }
  out.by_gpu = TRY(drivers_of_gpus(host));
  for (const auto& [address, driver] : out.by_gpu)
    finding.saw(sysfs_path(address, "driver"), driver.empty() ? "none" : driver);
  out.loaded = host.files().exists("/sys/module/nvidia");
  const std::string banner = host.line(kVersion).value_or("");
  const auto version = parse_nvidia_version(banner);
  out.proprietary = version && !version->open && !open_is_installed(host);
  if (!banner.empty()) finding.saw(kVersion, banner.substr(0, banner.find_first_of("\n(")));
  const auto release = host.line("/proc/sys/kernel/osrelease");
  out.own_modules = release && has_own_modules(host, *release);
  out.stock_p2p = TRY(is_stock_p2p_configured(host));
  finding.facts["drivers"] = out.by_gpu;
  return out;
}

/// Names of the packages that are held, or of those that are not.
std::vector<std::string> packages_of(const DriverInstall& install, bool held) {
  std::vector<std::string> names;
  for (const DpkgPackage& package : install.packages)
    if (package.held() == held) names.push_back(package.name + ":" + package.architecture);
  return names;
}

/// "the runfile 570.86.16", "4 packages (535.183.01)"
std::string by_whom(const DriverInstall& install) {
  const std::string& version = install.runfile.version;
  if (install.runfile.installed) return "the runfile" + (version.empty() ? "" : " " + version);
  return fmt::format("{} packages ({})", install.packages.size(), fmt::join(install.package_versions(), ", "));
}

/// Fails a driver that cannot give P2P; leaves a passing finding unchanged.
void judge(const DriverInstall& install, const Running& running, Finding& finding) {
  if (!install.runfile.installed && install.packages.empty()) {
    const std::string taken = taken_by_linux(running.by_gpu);
    finding.set(Verdict::fail, taken + (taken.empty() ? "" : ", and ") + "no NVIDIA driver is installed",
                "Install the NVIDIA driver.");
    if (!install.dkms.empty()) finding.summary += fmt::format(", and DKMS has {}", fmt::join(install.dkms, ", "));
  } else if (running.needs_built && running.proprietary) {
    finding.set(
        Verdict::fail,
        fmt::format("the proprietary modules are loaded ({}): they give no P2P between GeForce cards", finding.summary),
        kUseListed);
  } else if (running.own_modules) {
    finding.summary += ", with modules by p2pd";
  } else if (running.stock_p2p) {
    finding.summary += ", with its own P2P enabled";
  } else if (running.needs_built && install.packaged_modules()) {
    finding.set(Verdict::fail, "the distribution's modules give no P2P between GeForce cards; " + finding.summary,
                kUseListed);
  }
}

/// Judges loaded modules that neither dpkg nor a runfile installed. On a system with another package manager they are
/// its packages' or were built by a person, which the driver's answer and their place tell.
Result<void> judge_loaded(const Host& host, const Running& running, Finding& finding) {
  const std::string version = host.line("/sys/module/nvidia/version").value_or("");
  finding.set(Verdict::pass, "an NVIDIA driver is loaded, installed by neither packages nor a runfile");
  if (!running.needs_built) return {};
  const Distribution system = distribution(host);
  if (!system.lacks_apt())
    return fail(ErrorCode::not_found, "an nvidia module is loaded, installed by neither packages nor a runfile");
  const bool by_hand = has_modules_by_hand(host);
  if (by_hand || is_patched(host))
    finding.summary = fmt::format("modules of {} with P2P{}", version, by_hand ? ", built by hand" : "");
  else if (running.stock_p2p)
    finding.summary = fmt::format("{} of {}, with its own P2P enabled", version, system.name);
  else
    finding.set(Verdict::fail,
                fmt::format("the {}modules of {} give no P2P between GeForce cards",
                            running.proprietary ? "proprietary " : "", version),
                kUseListed);
  return {};
}

/// Leaves a GPU that was given to another driver, as vfio-pci is for a guest, to the operator.
void judge_given(const Running& running, Finding& finding) {
  std::vector<std::string> given;
  for (const auto& [address, driver] : running.by_gpu)
    if (!driver.empty() && driver != "nvidia" && taken_by_linux({{address, driver}}).empty()) given.push_back(address);
  if (given.empty() || finding.verdict != Verdict::pass) return;
  const std::string& driver = running.by_gpu.at(given.front());
  finding.set(
      Verdict::unknown,
      fmt::format("{} has {}, so that nvidia cannot drive it; {}", driver, fmt::join(given, ", "), finding.summary),
      fmt::format("Take {} out of the guest and away from {} (modprobe.d, driver_override), and reboot{}.",
                  fmt::join(given, ", "), driver,
                  running.by_gpu.size() < given.size() + 2
                      ? ""
                      : fmt::format("; else leave it out: \"gpus: {{exclude: [\"{}\"]}}\" in /etc/p2pd/p2pd.yaml",
                                    fmt::join(given, "\", \""))));
}

Result<Finding> check(const Host& host, const Parameters&) {
  Finding finding;
  const Running running = TRY(running_driver(host, finding));
  if (running.by_gpu.empty() && !is_image(host)) return not_applicable("no NVIDIA GPU");
  const DriverInstall install = TRY(installed_driver(host));
  const std::vector<std::string> held = packages_of(install, true), loose = packages_of(install, false);
  finding.facts["held"] = held;
  finding.facts["dkms"] = install.dkms;
  finding.evidence.insert(finding.evidence.end(), install.evidence.begin(), install.evidence.end());
  if (!install.runfile.installed && install.packages.empty() && running.loaded) {
    TRY(judge_loaded(host, running, finding));
    return finding;
  }
  if (install.runfile.installed && !install.packages.empty()) {
    finding.set(Verdict::fail,
                fmt::format("the driver is installed twice: by {} and by {} packages ({})", by_whom(install),
                            install.packages.size(), fmt::join(install.package_versions(), ", ")),
                "Remove one: nvidia-uninstall removes the runfile's; then install the packages again, so that none of "
                "their files is missing.");
    return finding;
  }
  finding.set(Verdict::pass, "installed by " + by_whom(install));
  if (install.package_versions().size() > 1) finding.summary += ", of different versions";
  if (!install.dkms.empty()) finding.summary += fmt::format("; DKMS: {}", fmt::join(install.dkms, ", "));
  if (!held.empty() && !loose.empty())  // an upgrade would separate them
    finding.summary += fmt::format("; held except for {}", fmt::join(loose, ", "));
  judge(install, running, finding);
  judge_given(running, finding);
  return finding;
}

}  // namespace

extern const Probe kNvidiaDriver = {
    .id = "nvidia-driver",
    .asserts = "one NVIDIA driver is installed, and is of a kind that can give P2P; no guest has a GPU",
    .check = check,
    .asks_driver = true,
};

}  // namespace p2pd
