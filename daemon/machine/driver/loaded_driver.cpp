// SPDX-License-Identifier: MIT
#include "machine/driver/loaded_driver.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "base/log.hpp"
#include "machine/driver/gpu_holders.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/modules/loaded_modules.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "machine/modules/own_place.hpp"

namespace p2pd {
namespace {

constexpr std::array<std::string_view, 5> kUnloadOrder = {"nvidia_drm", "nvidia_peermem", "nvidia_uvm",
                                                          "nvidia_modeset", "nvidia"};
constexpr std::array<std::string_view, 2> kLinuxPciDrivers = {"NovaCore", "nouveau"};  // of kLinuxDrivers
constexpr std::chrono::minutes kRemovalDeadline{2};  // a module that waits for a hung GPU is never unloaded

bool is_of_linux(std::string_view driver) { return std::ranges::count(kLinuxPciDrivers, driver) > 0; }

/// Checks that a driver of Linux, by module, has only GPUs that take no part in P2P: a card for the display. Nova may
/// also be loaded without any, beside nvidia, which has them.
bool is_elsewhere(const Host& host, std::string_view module) {
  bool elsewhere = false;
  for (const PciDevice& device : pci_devices(host).value_or(std::vector<PciDevice>())) {
    if (!device.is_nvidia_gpu()) continue;
    const std::string driver = pci_driver(host, device.address);
    if (driver == "nvidia" && module.starts_with("nova")) elsewhere = true;
    if (!is_of_linux(driver) || (driver == "nouveau") != (module == "nouveau")) continue;
    if (device.takes_part()) return false;
    elsewhere = true;
  }
  return elsewhere;
}

Result<void> take_out(Host& host, const std::vector<std::string>& services) {
  TRY(note_services(host, services));
  for (const std::string& service : services) TRY(host.run(service_command("stop", service)));
  for (const DriverModule& module : driver_modules(host))
    TRY(host.run({.argv = {"rmmod", module.name}, .deadline = kRemovalDeadline}));
  return {};
}

}  // namespace

Result<std::map<std::string, std::string>> drivers_of_gpus(const Host& host) {
  std::map<std::string, std::string> drivers;
  for (const PciDevice& device : TRY(pci_devices(host)))
    if (device.takes_part()) drivers[device.address] = pci_driver(host, device.address);
  return drivers;
}

std::string taken_by_linux(const std::map<std::string, std::string>& drivers) {
  const auto taken = [](const auto& gpu) { return is_of_linux(gpu.second); };
  const auto first = std::ranges::find_if(drivers, taken);
  if (first == drivers.end()) return {};
  const auto more = std::ranges::count_if(drivers, taken) - 1;
  return fmt::format("{} drives {}{}", first->second, first->first, more == 0 ? "" : fmt::format(" and {} more", more));
}

std::vector<DriverModule> driver_modules(const Host& host) {
  std::vector<DriverModule> modules;
  const auto add = [&](std::string_view name) {  // a built-in module has no such file
    if (host.files().exists(fmt::format("/sys/module/{}/initstate", name)))
      modules.push_back({std::string(name), loaded_identity(host, name)});
  };
  for (const std::string_view name : kUnloadOrder) add(name);
  for (const std::string_view name : kLinuxDrivers)
    if (!is_elsewhere(host, name)) add(name);
  return modules;
}

bool keeps_gpus_until_reboot(const std::vector<DriverModule>& modules) {
  return std::ranges::any_of(modules, [](const DriverModule& module) { return module.name.starts_with("nova"); });
}

Result<std::string> unload_driver(Host& host) {
  const std::vector<DriverModule> modules = driver_modules(host);
  if (modules.empty()) return std::string();
  if (keeps_gpus_until_reboot(modules)) return std::string("only a reboot takes the GPUs from Nova");
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
  Command command{.argv = {"modprobe"}, .deadline = kRemovalDeadline};
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
