// SPDX-License-Identifier: MIT
// modules-unload: unloads the modules of the old driver, or leaves that to the reboot.
// Stops by name the services that use a GPU by design (nvidia-persistenced, the display manager, containers with a
// restart policy), without `systemctl isolate`, which ends unrelated jobs. Starts them again when the run or its
// rollback has ended or the operator must act, also after reboots: docker does not restart a container that it was
// asked to stop. If another process or a user's desktop uses a GPU, it stops nothing and leaves the modules to the
// reboot. Writes /var/lib/p2pd/stopped-services while they are stopped. Undo loads the driver that is installed by
// then, if any. Reference: rmmod(8); systemctl(1), isolate; docker-run(1), restart policies.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/action.hpp"
#include "base/log.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/gpu_holders.hpp"
#include "machine/driver/loaded_driver.hpp"
#include "machine/modules/modprobe_d.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter};

Result<Description> describe(const Host& host, const Parameters&) {
  Description description;
  description.summary = "unload the old modules; where a process uses them, the reboot does";
  const std::vector<DriverModule> modules = driver_modules(host);
  if (modules.empty()) return description;
  if (keeps_gpus_until_reboot(modules)) {
    description.summary = "leave Nova (nova_core) loaded until the reboot: only that takes the GPUs from it";
    return description;
  }
  const GpuUsers users = TRY(gpu_users(host));
  if (!users.others.empty()) {
    description.summary =
        fmt::format("leave the old modules loaded until the reboot, which ends {}", fmt::join(users.others, ", "));
    return description;
  }
  if (!users.services.empty()) description.summary += fmt::format("; restart {}", fmt::join(users.services, ", "));
  for (const std::string& service : users.services)
    description.commands.push_back(service_command("stop", service).text());
  for (const DriverModule& module : modules) description.commands.push_back("rmmod " + module.name);
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
  auto loaded = load_driver(host);
  if (loaded || loaded.error().code != ErrorCode::command || !driver_modules(host).empty()) return loaded;
  log::info("no driver is loaded until the reboot: {}",
            loaded.error().message);  // not all of the driver is restored yet
  return {};
}

/// Loads the installed driver for the stopped services, unless it is on trial: then its load is a step of its own.
Result<void> run_rests(Host& host) {
  if (!host.live() || !host.files().exists(kStoppedServices)) return {};
  if (driver_modules(host).empty() && !host.files().exists(kTrialBan)) {
    auto loaded = load_driver(host);
    if (!loaded && loaded.error().code == ErrorCode::interrupted) return loaded;
    if (!loaded) log::info("no driver is loaded: {}", loaded.error().message);
  }
  return start_services(host, !driver_modules(host).empty());
}

}  // namespace

extern const Action kModulesUnloadAction = {
    .id = "modules-unload",
    .topic = "modules",
    .does = "unloads the modules of the old driver, or leaves that to the reboot",
    .parameters = kParameters,
    .effect = Effect::reboot,
    .reboot_suffices = true,
    .describe = describe,
    .apply = apply,
    .undo = undo,
    .run_rests = run_rests,
};

}  // namespace p2pd
