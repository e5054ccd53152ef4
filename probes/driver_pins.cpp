// SPDX-License-Identifier: MIT
// driver-pins: apt and unattended-upgrades install no driver package, and no other version of one that stays.
// A background upgrade that installs libraries of another version than the running modules ends every CUDA
// program ("Driver/library version mismatch"), and a hold alone misses packages that are not installed yet.
// Reads /etc/apt/preferences.d/00p2pd-driver, /etc/apt/preferences, apt.conf.d. Runs nothing.
// Reference: apt_preferences(5); Unattended-Upgrade::Package-Blacklist in the README of unattended-upgrades.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/probe.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/driver_pins.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/dpkg_status.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter, kUserspaceParameter};

/// True if unattended-upgrades skips every driver package.
Result<bool> is_blacklisted(const Host& host, bool keeps) {
  const std::vector<std::string> listed = apt_list(TRY(apt_options(host)), "unattended-upgrade::package-blacklist");
  const std::vector<std::string> wanted = driver_expressions(keeps);
  return std::ranges::all_of(
      wanted, [&](const std::string& expression) { return std::ranges::find(listed, expression) != listed.end(); });
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  if (const auto finding = no_entry_needed(parameters)) return *finding;
  if (!host.files().exists(kDpkgStatus)) return not_applicable("this system does not use dpkg");
  const std::string wanted = TRY(driver_preferences(host, keeps_packages(parameters)));
  const bool pinned = host.files().read(kDriverPreferences).value_or("") == wanted;
  const bool blacklisted = TRY(is_blacklisted(host, keeps_packages(parameters)));
  const std::vector<std::string> overruled = overruling_pins(host);
  Finding finding;
  finding.facts = {{"pinned", pinned}, {"blacklisted", blacklisted}, {"overruled", overruled}};
  finding.saw(kDriverPreferences, !pinned                      ? "no such pin"
                                  : keeps_packages(parameters) ? "at the installed versions"
                                                               : "priority -1");
  finding.saw("apt.conf.d", blacklisted ? "all of them blacklisted" : "not all of them blacklisted");
  if (!overruled.empty())
    finding.set(Verdict::fail,
                fmt::format("/etc/apt/preferences pins {}: that pin takes precedence", fmt::join(overruled, ", ")),
                "Remove that pin, or move it into a file of /etc/apt/preferences.d.");
  else if (!pinned || !blacklisted)
    finding.set(Verdict::fail, fmt::format("{} may install another driver", pinned ? "unattended-upgrades" : "apt"));
  else
    finding.set(Verdict::pass, "apt and unattended-upgrades install no driver");
  return finding;
}

}  // namespace

extern const Probe kDriverPins = {
    .id = "driver-pins",
    .asserts = "apt and unattended-upgrades install no driver package",
    .parameters = kParameters,
    .validate = validate_staging,
    .check = check,
};

}  // namespace p2pd
