// SPDX-License-Identifier: MIT
#include "base/loaded_driver.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <sstream>

namespace p2pd {
namespace {

constexpr std::array<std::string_view, 6> kUnloadOrder = {"nvidia_drm",     "nvidia_peermem", "nvidia_uvm",
                                                          "nvidia_modeset", "nvidia",         "nouveau"};
constexpr std::array<const char*, 2> kServices = {"nvidia-persistenced.service", "display-manager.service"};
constexpr std::chrono::minutes kDeadline{2};  // a module that waits for a hung GPU never comes out

Command systemctl(const char* verb, const std::string& service) { return {{"systemctl", verb, service}, {}, {}, kDeadline}; }

bool is_active(const Host& host, const char* service) {
  const auto answer = host.ask(systemctl("is-active", service));
  return answer && answer->status == 0;
}

/// Writes down what is stopped before it is stopped, beside what a start that was killed had stopped already.
Result<void> stop_services(Host& host) {
  std::string stopped = host.files().read(kStoppedServices).value_or("");
  std::vector<std::string> active;
  for (const char* service : kServices) {
    if (!is_active(host, service)) continue;
    active.emplace_back(service);
    if (stopped.find(service) == std::string::npos) stopped += active.back() + "\n";
  }
  if (active.empty()) return {};
  TRY(host.create(kStoppedServices, stopped));
  for (const std::string& service : active) TRY(host.run(systemctl("stop", service)));
  return {};
}

/// Every one of them is tried; the first that does not start is the Error.
Result<void> start_services(Host& host) {
  if (!host.files().exists(kStoppedServices)) return {};
  std::istringstream services(TRY(host.files().read(kStoppedServices)));
  Result<void> done;
  for (std::string service; std::getline(services, service);)
    if (const auto started = host.run(systemctl("start", service)); !started && done) done = Failure(started.error());
  if (done) done = host.discard(kStoppedServices);
  return done;
}

Result<void> take_out(Host& host) {
  TRY(stop_services(host));
  for (const DriverModule& module : driver_modules(host)) TRY(host.run({{"rmmod", module.name}, {}, {}, kDeadline}));
  return {};
}

}  // namespace

std::vector<DriverModule> driver_modules(const Host& host) {
  std::vector<DriverModule> modules;
  for (const std::string_view name : kUnloadOrder) {
    const std::string directory = fmt::format("/sys/module/{}", name);
    if (host.files().exists(directory + "/initstate"))  // a built-in one has no such file
      modules.push_back({std::string(name), host.line(directory + "/srcversion").value_or("")});
  }
  return modules;
}

Result<std::string> unload_driver(Host& host) {
  if (driver_modules(host).empty()) return std::string();
  const auto out = take_out(host);
  if (out) return std::string();
  if (out.error().code == ErrorCode::interrupted) return Failure(out.error());
  TRY(load_driver(host));  // what had come out already, too: as it was
  return out.error().message;
}

Result<void> load_driver(Host& host) {
  for (const std::string_view module : kLoadOrder)
    TRY(host.run({{"modprobe", std::string(module)}, {}, {}, kDeadline}));
  return start_services(host);
}

}  // namespace p2pd
