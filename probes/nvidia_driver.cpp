// SPDX-License-Identifier: MIT
// nvidia-driver: the NVIDIA driver came one way, by packages or by NVIDIA's runfile, not by both.
// Two ways at once overwrite each other's files at every upgrade, and a removal of one breaks the other. Named too: the
// DKMS trees, packages of different versions, and driver packages that an upgrade would change since they are not held.
// Reads dpkg's status file, /var/lib/nvidia/log (the runfile's list of what it installed), /usr/bin/nvidia-uninstall,
// /var/lib/dkms, /sys/module/nvidia. The installer's log in /var/log outlives the driver: a fact, no proof.
// Reference: backup.c of NVIDIA/nvidia-installer; dpkg(1), dkms(8).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/dpkg_status.hpp"
#include "base/pci.hpp"
#include "base/probe.hpp"

namespace p2pd {
namespace {

constexpr std::uint16_t kNvidia = 0x10de;
constexpr std::string_view kManifest = "/var/lib/nvidia/log";
constexpr std::string_view kUninstaller = "/usr/bin/nvidia-uninstall";
constexpr std::string_view kInstallerLog = "/var/log/nvidia-installer.log";
constexpr std::string_view kDkms = "/var/lib/dkms";
// what carries the driver itself: libraries that talk to the module, and the module
constexpr std::array<std::string_view, 12> kPrefixes = {
    "nvidia-driver",         "nvidia-kernel-", "nvidia-dkms-",  "nvidia-open",        "nvidia-headless-",
    "linux-modules-nvidia-", "libcuda1",       "libnvidia-ml1", "libnvidia-compute-", "libnvidia-gl-",
    "nvidia-compute-utils-", "cuda-drivers"};

/// "570.86.16" of "1:570.86.16-0ubuntu1".
std::string upstream(const std::string& version) {
  const std::size_t epoch = version.find(':');
  const std::string rest = version.substr(epoch == std::string::npos ? 0 : epoch + 1);
  return rest.substr(0, rest.find_first_of("-+~"));
}

bool of_driver(const DpkgPackage& package) {
  return package.state != "config-files" && package.state != "not-installed" &&
         std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return package.name.starts_with(prefix); });
}

/// linux-modules-nvidia-570-open-6.8.0-60-generic has the kernel's version, metapackages of CUDA their own.
bool has_driver_version(const DpkgPackage& package) { return !package.name.starts_with("linux-modules-nvidia-"); }

std::string joined(const std::set<std::string>& words, std::string_view between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : std::string(between)) + word;
  return out;
}

struct Packages {
  std::set<std::string> names, versions, held, loose;
};

Result<Packages> driver_packages(const Host& host, Finding& finding) {
  Packages out;
  for (const DpkgPackage& package : TRY(dpkg_packages(host))) {
    if (!of_driver(package)) continue;
    const std::string name = package.name + ":" + package.architecture;
    out.names.insert(name);
    (package.held() ? out.held : out.loose).insert(name);
    if (has_driver_version(package)) out.versions.insert(upstream(package.version));
    finding.evidence.push_back({std::string(kDpkgStatus), name + " " + package.version + " " + package.want});
  }
  finding.facts["packages"] = out.names;
  finding.facts["package_versions"] = out.versions;
  finding.facts["held"] = out.held;
  finding.facts["not_held"] = out.loose;
  return out;
}

/// Whether the runfile's driver is installed: its list of files, or the program that takes it away.
Result<bool> by_runfile(const Host& host, Finding& finding) {
  const auto list = host.files().read(kManifest);
  const bool uninstaller = host.files().exists(kUninstaller);
  const bool denied = !list && list.error().code == ErrorCode::denied;
  nlohmann::json version = nullptr;
  if (list) {
    version = list->substr(0, std::min<std::size_t>(list->find('\n'), 64));
    finding.evidence.push_back({std::string(kManifest), version.get<std::string>()});
  }
  if (uninstaller) finding.evidence.push_back({std::string(kUninstaller), "present"});
  const bool found = uninstaller || list.has_value();
  finding.facts["runfile"] = {{"installed", found},
                              {"version", version},
                              {"log", host.files().exists(kInstallerLog)},
                              {"refused_here", host.files().exists("/usr/lib/nvidia/alternate-install-present")}};
  if (found || list.error().code == ErrorCode::not_found) return found;
  if (denied) return fail(ErrorCode::denied, list.error().message + "; root would tell", "Run it as root.");
  return Failure(list.error());
}

/// "nvidia/570.86.16 for 6.8.0-60-generic", one a version and kernel; without "for" where it is not built.
std::set<std::string> dkms_trees(const Host& host, Finding& finding) {
  const auto names = [&](const std::string& path) {
    return host.files().list(path).value_or(std::vector<std::string>());
  };
  std::set<std::string> out;
  for (const std::string& module : names(std::string(kDkms))) {
    if (!module.starts_with("nvidia") || module.starts_with("nvidia-fs")) continue;
    const std::string tree = std::string(kDkms) + "/" + module;
    for (const std::string& version : names(tree)) {
      if (version.starts_with("kernel-")) continue;  // a link to what is installed for a kernel
      bool built = false;
      for (const std::string& kernel : names(tree + "/" + version)) {
        if (kernel == "source" || kernel == "build") continue;
        out.insert(module + "/" + version + " for " + kernel);
        built = true;
      }
      if (!built) out.insert(module + "/" + version);
      finding.evidence.push_back({tree + "/" + version, built ? "built" : "added, not built"});
    }
  }
  finding.facts["dkms"] = out;
  return out;
}

Result<bool> has_gpu(const Host& host) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  return std::ranges::any_of(
      devices, [](const PciDevice& device) { return device.vendor_id == kNvidia && device.is_display(); });
}

Result<Finding> check(const Host& host, const Parameters&) {
  Finding finding;
  if (!TRY(has_gpu(host))) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = "no NVIDIA GPU";
    return finding;
  }
  const Packages packages = TRY(driver_packages(host, finding));
  const bool runfile = TRY(by_runfile(host, finding));
  const std::set<std::string> dkms = dkms_trees(host, finding);
  const bool loaded = host.files().exists("/sys/module/nvidia");
  const nlohmann::json runfile_version = finding.facts["runfile"]["version"];
  const std::string by = "the runfile" + (runfile_version.is_null() ? "" : " " + runfile_version.get<std::string>());
  finding.verdict = Verdict::fail;
  if (runfile && !packages.names.empty()) {
    finding.summary = fmt::format("the driver is installed twice: by {} and by {} packages ({})", by,
                                  packages.names.size(), joined(packages.versions, ", "));
    finding.next =
        "Remove one: nvidia-uninstall takes the runfile's away; then install the packages again, so that "
        "none of their files is missing.";
    return finding;
  }
  if (!runfile && packages.names.empty()) {
    if (loaded)
      return fail(ErrorCode::not_found, "an nvidia module is loaded, and neither packages nor a runfile brought it");
    finding.summary = "no NVIDIA driver is installed";
    if (!dkms.empty()) finding.summary += ", and DKMS has " + joined(dkms, ", ");
    finding.next = "Install the NVIDIA driver.";
    return finding;
  }
  finding.verdict = Verdict::pass;
  finding.summary =
      runfile ? "installed by " + by
              : fmt::format("installed by {} packages ({})", packages.names.size(), joined(packages.versions, ", "));
  if (packages.versions.size() > 1) finding.summary += ", of different versions";
  if (!dkms.empty()) finding.summary += "; DKMS: " + joined(dkms, ", ");
  if (!packages.held.empty() && !packages.loose.empty())
    finding.summary += fmt::format("; held but for {}", joined(packages.loose, ", "));
  return finding;
}

}  // namespace

extern const Probe kNvidiaDriver;
const Probe kNvidiaDriver = {"nvidia-driver",
                             "the NVIDIA driver is installed by packages or by the runfile, not by both",
                             {},
                             nullptr,
                             check,
                             false};

}  // namespace p2pd
