// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"

namespace p2pd {

/// For an apt-get that reads .deb files from a folder that only root can enter: apt's user _apt, who fetches and reads
/// everything else, cannot.
inline constexpr const char* kAptAsRoot = "-oAPT::Sandbox::User=root";

/// An apt-get that asks nothing, restarts nothing beside what packages themselves do, and keeps configuration files.
Command apt_get(std::vector<std::string> words);

/// The same for dpkg.
Command dpkg(std::vector<std::string> words);

/// What apt-get would do. It names packages of the native architecture without it, others as "libcuda1:i386".
struct AptPlan {
  std::map<std::string, std::string> installs;  ///< package to version
  std::map<std::string, std::string> origins;   ///< package to where that is from: "Debian:12.9/stable, x:y/z"
  std::set<std::string> removes;
};

/// Reads what "apt-get --simulate" prints.
AptPlan parse_apt_plan(std::string_view output);

/// Simulates an apt_get(); an Error is apt's own refusal.
Result<AptPlan> simulated(const Host& host, Command command);

/// Error unless `plan` installs and removes exactly these packages, given as DpkgPackage::id(); names what it leaves
/// out, or what it does beyond.
Result<void> require_plan(const AptPlan& plan, const std::vector<std::string>& installs,
                          const std::vector<std::string>& removes);

/// Fetches what an apt_get() will install into apt's cache. A stop or a cancel ends it, where change_packages() goes on; what
/// came until then is not fetched again.
Result<void> fetch_archives(Host& host, Command command);

/// Error unless `plan` removes exactly these packages, given as DpkgPackage::id().
Result<void> require_removals(const AptPlan& plan, const std::vector<std::string>& removes);

/// Runs an apt_get() or dpkg() that changes packages. What their scripts leave where they are killed, as a half-made
/// initramfs, lies in a directory that goes with it, or with the next one.
Result<void> change_packages(Host& host, Command command);

/// Finishes what an interrupted dpkg left. Packages that must be unpacked anew are taken from `archives`, which are
/// .deb files by package id. Nothing runs where nothing was interrupted.
Result<void> repair_packages(Host& host, const std::map<std::string, std::string>& archives);

}  // namespace p2pd
