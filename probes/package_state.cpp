// SPDX-License-Identifier: MIT
// package-state: dpkg is in a consistent state.
// Fixes install packages, and dpkg refuses after an interruption. package-activity checks for a running
// one, whose result is not known before it ends. Reads dpkg's status and updates, apt.conf.d, preferences.d,
// /proc/locks, and the mark of p2pd's own change of packages: what that left undone is no fault. Reference: dpkg(1),
// "package states"; unattended-upgrade(8); apt_preferences(5).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/probe.hpp"
#include "machine/boot/package_locks.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/dpkg_status.hpp"

namespace p2pd {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kPreferences = "/etc/apt/preferences.d";

/// True if distributions of this family use dpkg, even if its files are missing.
bool debian_like(const Host& host) {
  const std::string text = "\n" + host.line("/etc/os-release").value_or("");
  for (std::string_view line : {"\nID=", "\nID_LIKE="}) {
    const std::size_t at = text.find(line);
    if (at == std::string::npos) continue;
    const std::string value = text.substr(at, text.find('\n', at + 1) - at);
    if (value.find("debian") != std::string::npos || value.find("ubuntu") != std::string::npos) return true;
  }
  return false;
}

/// Interrupted packages, and held packages of NVIDIA: "name version (state)".
void look_at(const std::vector<DpkgPackage>& packages, Finding& finding) {
  constexpr std::size_t kShown = 20;
  Json interrupted = Json::array();
  Json held = Json::array();
  for (const DpkgPackage& package : packages) {
    const bool nvidia = package.name.find("nvidia") != std::string::npos || package.name.starts_with("libcuda");
    if (package.held() && nvidia) held.push_back({{"package", package.name}, {"version", package.version}});
    if (!package.interrupted()) continue;
    interrupted.push_back({{"package", package.name}, {"state", package.state}, {"flag", package.flag}});
    if (interrupted.size() <= kShown)
      finding.evidence.push_back(
          {std::string(kDpkgStatus), fmt::format("{}: {} {}", package.name, package.flag, package.state)});
  }
  finding.facts["packages"] = packages.size();
  finding.facts["interrupted"] = std::move(interrupted);
  finding.facts["held_nvidia"] = std::move(held);
}

Json unattended_upgrades(const Host& host, const std::vector<DpkgPackage>& packages) {
  const auto options = apt_options(host);
  if (!options) return nullptr;
  const bool installed = std::ranges::any_of(
      packages, [](const DpkgPackage& one) { return one.name == "unattended-upgrades" && one.installed(); });
  const std::string often = apt_value(*options, "apt::periodic::unattended-upgrade");
  const std::string enable = apt_value(*options, "apt::periodic::enable");
  return {{"installed", installed},
          {"enabled", installed && !often.empty() && often != "0" && enable != "0"},
          {"blacklist", apt_list(*options, "unattended-upgrade::package-blacklist")},
          {"automatic_reboot", apt_value(*options, "unattended-upgrade::automatic-reboot") == "true"}};
}

/// Pins of drivers and kernels: "nvidia-*: version 570.*, priority 1001". A hold is dpkg's, a pin apt's.
Json pins(const Host& host) {
  std::vector<std::string> files = {"/etc/apt/preferences"};
  for (const std::string& name : host.names(kPreferences)) files.push_back(std::string(kPreferences) + "/" + name);
  Json found = Json::array();
  for (const std::string& file : files) {
    std::map<std::string, std::string> stanza;
    std::istringstream lines(host.files().read(file, 1U << 20).value_or("") + "\n\n");
    for (std::string line; std::getline(lines, line);) {
      const std::size_t colon = line.find(':');
      const std::size_t value = colon == line.npos ? line.npos : line.find_first_not_of(' ', colon + 1);
      if (value != line.npos) stanza[line.substr(0, colon)] = line.substr(value);
      if (!line.empty()) continue;
      const std::string package = std::exchange(stanza["Package"], "");
      for (const char* of : {"nvidia", "cuda", "linux-"}) {
        if (package.find(of) == package.npos) continue;
        found.push_back(
            {{"package", package}, {"pin", stanza["Pin"]}, {"priority", stanza["Pin-Priority"]}, {"file", file}});
        break;
      }
      stanza.clear();
    }
  }
  return found;
}

void judge(Finding& finding) {
  const Json& facts = finding.facts;
  finding.verdict = Verdict::fail;
  if (!facts["interrupted"].empty() || facts["unwritten_updates"] != 0) {
    const std::string first = facts["interrupted"].empty()
                                  ? ""
                                  : ", " + facts["interrupted"].front()["package"].get<std::string>() + " first";
    finding.summary = fmt::format("dpkg was interrupted: {} packages half installed{}, {} updates not written",
                                  facts["interrupted"].size(), first, facts["unwritten_updates"].get<std::size_t>());
    finding.next = "Run \"dpkg --configure -a\", then \"apt-get --fix-broken install\".";
  } else {
    finding.verdict = Verdict::pass;
    finding.summary = fmt::format("dpkg is sound, {} packages", facts["packages"].get<std::size_t>());
    if (facts["reboot_required"] == true) finding.summary += "; a reboot is required";
  }
}

Result<Finding> check(const Host& host, const Parameters&) {
  Finding finding;
  if (!host.files().exists(kDpkgStatus) && host.files().exists("/etc/os-release") && !debian_like(host)) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = "this system does not use dpkg";
    finding.evidence.push_back({std::string(kDpkgStatus), "not there"});
    return finding;
  }
  const std::vector<DpkgPackage> packages = TRY(dpkg_packages(host));
  look_at(packages, finding);
  const std::size_t updates = TRY(unwritten_updates(host));
  finding.evidence.push_back({std::string(kDpkgUpdates), fmt::format("{} updates", updates)});
  finding.facts["unwritten_updates"] = updates;
  finding.facts["reboot_required"] = host.files().exists("/run/reboot-required");
  finding.facts["pins"] = pins(host);
  finding.facts["unattended_upgrades"] = unattended_upgrades(host, packages);
  judge(finding);
  if (finding.verdict != Verdict::fail) return finding;
  if (const auto locks = package_locks(host).value_or(std::nullopt); locks && !locks->empty()) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = fmt::format("process {} {} installs packages now: the state is checked after it ends",
                                  locks->front().pid, locks->front().process);
    finding.next = "";
  } else if (changes_packages(host)) {
    finding.verdict = Verdict::pass;
    finding.summary += "; p2pd did that, and its fix completes it";
    finding.next = "";
  }
  return finding;
}

}  // namespace

extern const Probe kPackageState;
const Probe kPackageState = {
    .id = "package-state",
    .asserts = "dpkg is sound",
    .check = check,
};

}  // namespace p2pd
