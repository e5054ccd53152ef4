// SPDX-License-Identifier: MIT
#include "base/driver/loaded_driver.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "base/driver/gpu_holders.hpp"
#include "base/log.hpp"

namespace p2pd {
namespace {

constexpr std::array<std::string_view, 6> kUnloadOrder = {"nvidia_drm",     "nvidia_peermem", "nvidia_uvm",
                                                          "nvidia_modeset", "nvidia",         "nouveau"};
constexpr std::array<const char*, 2> kServices = {"nvidia-persistenced.service", "display-manager.service"};
constexpr std::chrono::minutes kDeadline{2};  // a module that waits for a hung GPU never comes out

/// `who` is a unit, or a container as GpuHolder names it: "docker 3f2a91b0c4d5".
Command service(const std::string& verb, const std::string& who) {
  const std::size_t space = who.find(' ');
  if (space == std::string::npos) return {{"systemctl", verb, who}, {}, {}, kDeadline};
  return {{who.substr(0, space), verb, who.substr(space + 1)}, {}, {}, kDeadline};
}

/// The services that run and hold a GPU, or are there to.
Result<std::vector<std::string>> services(const Host& host) {
  std::vector<std::string> found;
  for (const char* unit : kServices)
    if (const auto answer = host.ask(service("is-active", unit)); answer && answer->status == 0) found.emplace_back(unit);
  for (const GpuHolder& holder : TRY(gpu_holders(host)).found)
    if (holder.kind == HolderKind::container && is_service(host, holder) && std::ranges::count(found, holder.name) == 0)
      found.push_back(holder.name);
  return found;
}

/// Writes down what is stopped before it is stopped, beside what a start that was killed had stopped already.
Result<void> stop_services(Host& host) {
  std::string stopped = host.files().read(kStoppedServices).value_or("");
  const std::vector<std::string> running = TRY(services(host));
  if (running.empty()) return {};
  for (const std::string& who : running)
    if (stopped.find(who) == std::string::npos) stopped += who + "\n";
  TRY(host.create(kStoppedServices, stopped));
  for (const std::string& who : running) TRY(host.run(service("stop", who)));
  return {};
}

/// Every one of them is tried; the first that does not start is the Error.
Result<void> start_services(Host& host) {
  if (!host.files().exists(kStoppedServices)) return {};
  std::istringstream stopped(TRY(host.files().read(kStoppedServices)));
  Result<void> done;
  for (std::string who; std::getline(stopped, who);)
    if (const auto started = host.run(service("start", who)); !started && done) done = Failure(started.error());
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
