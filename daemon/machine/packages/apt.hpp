// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// One setting of apt, in the order read: "apt::periodic::unattended-upgrade" and "1".
struct AptOption {
  std::string name;  ///< lower case; an item of a list has the list's name with "::" after it
  std::string value;
  std::string source;  ///< file that sets it

  bool operator==(const AptOption&) const = default;
};

/// Parses the text of one apt.conf file; stops at a syntax error, as apt does.
std::vector<AptOption> parse_apt_conf(std::string_view text, const std::string& source);

/// Settings of /etc/apt/apt.conf.d and /etc/apt/apt.conf in apt's order, with `#clear` applied.
Result<std::vector<AptOption>> apt_options(const Host& host);

/// The last value of `name` (lower case), or empty.
std::string apt_value(const std::vector<AptOption>& options, std::string_view name);

/// The items of list `name` (lower case).
std::vector<std::string> apt_list(const std::vector<AptOption>& options, const std::string& name);

inline constexpr std::string_view kUsr = "/usr/.";  ///< where packages install nearly all files

/// Option of an apt-get that reads .deb files from a folder that only root can enter: apt's user _apt, which fetches
/// and reads everything else, cannot.
inline constexpr const char* kAptAsRoot = "-oAPT::Sandbox::User=root";

/// Makes an apt-get that asks nothing, restarts nothing beside what packages themselves do, and keeps configuration
/// files. `packages` follow the `words`.
Command apt_get(const std::vector<std::string>& words, const std::vector<std::string>& packages = {});

/// Makes a dpkg with these properties.
Command dpkg(std::vector<std::string> words);

/// Changes that apt-get would make. It names packages of the native architecture without it, others as "libcuda1:i386".
struct AptPlan {
  std::map<std::string, std::string> installs;  ///< package to version
  std::map<std::string, std::string> origins;   ///< package to its origins: "Debian:12.9/stable, x:y/z"
  std::set<std::string> removes;
};

/// Parses the output of "apt-get --simulate".
AptPlan parse_apt_plan(std::string_view output);

/// Simulates an apt_get(); an Error is apt's own refusal.
Result<AptPlan> simulated(const Host& host, Command command);

/// Bytes that the new packages of `plan` take once unpacked, as their control files say; 0: none says it.
Result<std::uint64_t> unpacked_bytes(const Host& host, const AptPlan& plan);

/// Checks that `plan` installs and removes exactly these packages, given as DpkgPackage::id(); the Error names missing
/// and additional ones.
Result<void> require_plan(const AptPlan& plan, const std::vector<std::string>& installs,
                          const std::vector<std::string>& removes);

/// Downloads what an apt_get() will install into apt's cache. A stop or a cancel ends it, but not change_packages();
/// what was downloaded until then is not downloaded again.
Result<void> fetch_archives(Host& host, Command command);

/// Error unless `plan` removes exactly these packages, given as DpkgPackage::id().
Result<void> require_removals(const AptPlan& plan, const std::vector<std::string>& removes);

/// Checks, without waiting, that packages can be changed now: no process holds a lock (ErrorCode::busy names it), and
/// dpkg has room for its status.
Result<void> check_packages_can_change(const Host& host);

/// Runs an apt_get() or dpkg() that changes packages. Files that killed scripts leave, such as a half-made
/// initramfs, are in a directory that this call removes, or the next one.
Result<void> change_packages(Host& host, Command command);

/// True from before change_packages() and repair_packages() until they end, over an end of this process or a loss of
/// power: what dpkg left undone meanwhile is p2pd's own, and the interrupted fix finishes it.
bool changes_packages(const Host& host);

/// Finishes the work of an interrupted dpkg. Packages that must be unpacked again are taken from `archives`, which are
/// .deb files by package id. Runs nothing if nothing was interrupted.
Result<void> repair_packages(Host& host, const std::map<std::string, std::string>& archives);

/// Reason why apt's lists of packages must be fetched before an installation: there are none, or they are older than
/// a day, and archives answer 404 for packages in them. Empty: they are recent.
std::string stale_lists(const Host& host);

/// Command with which refresh_lists() fetches them.
Command update_command();

/// Fetches apt's lists, in ten minutes at most. Logs a failed source without an Error: the others may suffice. An
/// Error: p2pd must stop.
Result<void> refresh_lists(Host& host, const std::string& why);

/// Checks that apt refuses because its lists name packages that the archives no longer have, or lack a wanted one.
bool blames_lists(const Error& error);

}  // namespace p2pd
