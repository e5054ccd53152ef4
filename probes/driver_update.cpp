// SPDX-License-Identifier: MIT
// driver-update: the distribution offers no newer driver than the packages that are installed.
// p2pd pins the driver's packages, so that an upgrade never installs libraries of another version than the loaded
// modules. Updates then wait for modules, and this check reports whether the catalogue has a build for the offered
// version: a note, no fault. Reads dpkg's status and the catalogue; asks "apt-cache policy", without the pins of
// preferences.d. Reference: apt-cache(8).
#include <fmt/format.h>

#include "base/probe.hpp"
#include "machine/driver/driver_update.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    {"required", Parameter::Type::boolean, false, "fail if the offered driver can be installed; otherwise a note"}};

Result<Finding> check(const Host& host, const Parameters& parameters) {
  if (host.files().exists(kUpdateUnderWay)) {
    Finding torn;
    torn.set(Verdict::fail, "an upgrade of the driver's packages was interrupted");
    torn.saw(kUpdateUnderWay, "present");
    return torn;
  }
  const auto update = driver_update(host);
  if (!update && !host.live())
    return not_applicable("this system is not running, and the offers of its archives were not recorded");
  if (!update) return Failure(update.error());
  if (update->installed.empty()) return not_applicable("no driver packages stay");
  Finding finding;
  finding.facts = {{"installed", update->installed}, {"offered", update->offered}, {"build", update->build}};
  finding.saw("apt-cache policy", update->offered.empty() ? "nothing newer" : update->offered);
  if (update->offered.empty())
    finding.set(Verdict::pass, fmt::format("no newer driver than {} is offered", update->installed));
  else if (!update->build.empty())
    finding.set(parameters.value("required", false) ? Verdict::fail : Verdict::pass,
                fmt::format("driver {} is offered, and {} has its modules", update->offered, update->build),
                "Update with \"sudo p2pctl apply driver-update\".");
  else
    finding.set(Verdict::pass,
                fmt::format("driver {} is offered, and the catalogue has no modules for it: {} stays", update->offered,
                            update->installed),
                "Nothing; a newer p2pd may have a build, and \"sudo p2pctl catalogue add\" takes one.");
  return finding;
}

}  // namespace

extern const Probe kDriverUpdate = {
    .id = "driver-update",
    .asserts = "the distribution offers no newer driver than the installed packages, or it is reported",
    .parameters = kParameters,
    .check = check,
    .asks_driver = true,
};

}  // namespace p2pd
