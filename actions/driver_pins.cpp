// SPDX-License-Identifier: MIT
// driver-pins: keeps apt and unattended-upgrades from installing a driver package, or another version of one that
// stays. Driver packages that stay are pinned at their version. All others that may contain a driver get priority -1,
// by the globs of machine/packages/driver_packages, without CUDA and container toolkit; unattended-upgrades gets the
// same names as a blacklist. Writes /etc/apt/preferences.d/00p2pd-driver and /etc/apt/apt.conf.d/52p2pd-driver; other
// files are never touched. Reference: apt_preferences(5); the README of unattended-upgrades.
#include <fmt/format.h>

#include "base/action.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/driver_install.hpp"
#include "machine/driver/driver_pins.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter, kUserspaceParameter};

Result<Description> describe(const Host& host, const Parameters& parameters) {
  Description description;
  const bool keeps = keeps_packages(parameters);
  description.summary = keeps ? fmt::format("pin the driver at {}", TRY(packaged_userspace(host)).version)
                              : "block driver packages in apt";
  std::string pins = TRY(driver_preferences(host, keeps));
  for (auto [path, content] :
       {std::pair{kDriverPreferences, std::move(pins)}, {kDriverBlacklist, driver_blacklist(keeps)}})
    if (host.files().read(path).value_or("") != content)
      description.files.push_back({std::string(path), FileState::Kind::regular, std::move(content)});
  return description;
}

Result<void> apply(Host& host, const Parameters& parameters) {
  if (const auto overruled = overruling_pins(host); !overruled.empty())
    return fail(ErrorCode::invalid, "/etc/apt/preferences pins " + overruled.front() + ": that pin takes precedence",
                "Remove that pin, or move it into a file of /etc/apt/preferences.d.");
  const bool keeps = keeps_packages(parameters);
  TRY(host.write_own(kDriverPreferences, TRY(driver_preferences(host, keeps))));
  return host.write_own(kDriverBlacklist, driver_blacklist(keeps));
}

}  // namespace

extern const Action kDriverPinsAction = {
    .id = "driver-pins",
    .topic = "packages",
    .does = "keeps apt and unattended-upgrades from installing a driver package",
    .parameters = kParameters,
    .validate = validate_staging,
    .describe = describe,
    .apply = apply,
};

}  // namespace p2pd
