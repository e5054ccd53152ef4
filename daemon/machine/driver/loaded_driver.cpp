// SPDX-License-Identifier: MIT
#include "machine/driver/loaded_driver.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "base/log.hpp"
#include "machine/driver/gpu_services.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/modules/loaded_modules.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "machine/modules/own_place.hpp"

namespace p2pd {
namespace {

constexpr std::array<std::string_view, 6> kUnloadOrder = {"nvidia_drm",     "nvidia_peermem", "nvidia_uvm",
                                                          "nvidia_modeset", "nvidia",         "nouveau"};
constexpr std::chrono::minutes kRemovalDeadline{2};  // a module that waits for a hung GPU is never unloaded

/// Checks that nouveau drives only GPUs that take no part in P2P: a card for the display.
bool nouveau_is_elsewhere(const Host& host) {
  bool elsewhere = false;
  for (const PciDevice& device : pci_devices(host).value_or(std::vector<PciDevice>())) {
    if (!device.is_nvidia_gpu() || pci_driver(host, device.address) != "nouveau") continue;
    if (device.takes_part()) return false;
    elsewhere = true;
  }
  return elsewhere;
}

Result<void> take_out(Host& host, const std::vector<std::string>& services) {
  TRY(stop_services(host, services));
  for (const DriverModule& module : driver_modules(host))
    TRY(host.run({{"rmmod", module.name}, {}, {}, kRemovalDeadline}));
  return {};
}

}  // namespace

std::vector<DriverModule> driver_modules(const Host& host) {
  std::vector<DriverModule> modules;
  for (const std::string_view name : kUnloadOrder) {
    if (!host.files().exists(fmt::format("/sys/module/{}/initstate", name)))
      continue;  // a built-in module has no such file
    if (name == "nouveau" && nouveau_is_elsewhere(host)) continue;
    modules.push_back({std::string(name), loaded_identity(host, name)});
  }
  return modules;
}

Result<std::string> unload_driver(Host& host) {
  if (driver_modules(host).empty()) return std::string();
  const GpuUsers users = TRY(gpu_users(host));
  if (!users.others.empty()) return fmt::format("GPUs are in use by {}", fmt::join(users.others, ", "));
  const auto out = take_out(host, users.services);
  if (out) return std::string();
  if (out.error().code == ErrorCode::interrupted) return Failure(out.error());
  TRY(load_driver(host));  // restores modules that were unloaded already, too
  if (const auto started = start_services(host, true); !started) {
    if (started.error().code == ErrorCode::interrupted) return Failure(started.error());
    log::warning("{}", started.error().text());
  }
  return out.error().message;
}

Command load_command(const Host& host, std::string_view module) {
  Command command{{"modprobe"}, {}, {}, kRemovalDeadline};
  if (!host.files().exists(kTrialBan)) {
    command.argv.emplace_back(module);
    return command;
  }
  // skips the ban, and with it the packages' install lines, which name the file and its options
  const std::string name = name_here(host, module).value_or(std::string(module));
  command.argv.insert(command.argv.end(), {"--ignore-install", name});
  if (kernel_name(name) == kernel_name(module)) return command;
  for (const ModuleOption& option : module_options(host).value_or(std::vector<ModuleOption>()))
    if (const std::string quote = option.value.find(' ') == std::string::npos ? "" : "\"";
        option.module == kernel_name(module))
      command.argv.push_back(fmt::format("{0}={2}{1}{2}", option.name, option.value, quote));
  return command;
}

Result<void> load_driver(Host& host) {
  for (const std::string_view module : kLoadOrder) TRY(host.run(load_command(host, module)));
  return {};
}

}  // namespace p2pd
