// SPDX-License-Identifier: MIT
// modules-load: loads the installed NVIDIA modules by name, one after another.
// Until P2P is proven modprobe.d bans the new modules, for devices and by name, so that nothing else loads them: a
// module that hangs the machine hangs it once, during a journal entry that records it. `modprobe --ignore-install`
// ignores the ban for its module only, not for the dependencies: these are loaded first. Writes only the drivers' files
// in /dev. Undo unloads the modules, or leaves that to a reboot. Reference: modprobe(8), --ignore-install;
// modprobe.d(5), install; README.md of NVIDIA open-gpu-kernel-modules (names and order).

#include "base/action.hpp"
#include "base/log.hpp"
#include "machine/driver/loaded_driver.hpp"

namespace p2pd {
namespace {

Result<Description> describe(const Host& host, const Parameters&) {
  Description description;
  description.summary = "load the installed NVIDIA modules";
  for (const std::string_view module : kLoadOrder) description.commands.push_back(load_command(host, module).text());
  return description;
}

Result<void> apply(Host& host, const Parameters&) {
  if (!host.live()) return {};
  TRY(host.will_change("/sys/module/nvidia", Restore::by_action));
  return load_driver(host);
}

Result<void> undo(Host& host, const Parameters&) {
  if (!host.live()) return {};
  const std::string why = TRY(unload_driver(host));
  if (!why.empty()) log::info("the modules stay until the reboot: {}", why);
  return {};
}

}  // namespace

extern const Action kModulesLoadAction = {
    .id = "modules-load",
    .topic = "modules",
    .does = "loads the installed NVIDIA modules by name, even if modprobe.d bans them",
    .hazard = true,
    .describe = describe,
    .apply = apply,
    .undo = undo,
};

}  // namespace p2pd
