// SPDX-License-Identifier: MIT
// modules-unload: takes the modules of the old driver out of the kernel, or leaves that to the reboot.
// The services that hold a GPU by design (nvidia-persistenced, the display manager, containers with a restart policy) are
// stopped for it by name, and started again whatever happens: never `systemctl isolate`, which ends other people's jobs.
// A module that does not come out within its time is not tried again: the reboot that the plan needs takes it out.
// Writes /var/lib/p2pd/stopped-services while they are stopped. Undo loads what is installed by then, where there is something.
// Reference: rmmod(8); systemctl(1), isolate.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/action.hpp"
#include "base/driver/loaded_driver.hpp"
#include "base/driver/staging.hpp"
#include "base/log.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter};

Result<Description> describe(const Host& host, const Parameters&) {
  Description description;
  description.summary = "take the old modules out of the kernel, where nothing holds them; else the reboot does";
  for (const DriverModule& module : driver_modules(host)) description.commands.push_back("rmmod " + module.name);
  return description;
}

Result<void> apply(Host& host, const Parameters&) {
  if (!host.live()) return {};
  TRY(host.will_change(kStoppedServices, Restore::by_action));
  const std::string why = TRY(unload_driver(host));
  if (!why.empty()) log::info("the old modules stay until the reboot: {}", why);
  return {};
}

Result<void> undo(Host& host, const Parameters&) {
  if (!host.live() || !driver_modules(host).empty()) return {};
  const auto loaded = load_driver(host);
  if (loaded || loaded.error().code != ErrorCode::command || !driver_modules(host).empty()) return loaded;
  // in the middle of a way back there may be none: a reboot ends that, and starts what was stopped
  log::info("no driver is loaded until the reboot: {}", loaded.error().message);
  return host.discard(kStoppedServices);
}

}  // namespace

extern const Action kModulesUnloadAction;
const Action kModulesUnloadAction = {
    .id = "modules-unload",
    .does = "takes the modules of the old driver out of the kernel, or leaves that to the reboot",
    .parameters = kParameters,
    .effect = Effect::reboot,
    .describe = describe,
    .apply = apply,
    .undo = undo,
};

}  // namespace p2pd
