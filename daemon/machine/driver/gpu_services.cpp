// SPDX-License-Identifier: MIT
#include "machine/driver/gpu_services.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "machine/driver/gpu_holders.hpp"
#include "machine/driver/logind_files.hpp"
#include "machine/driver/persistenced.hpp"

namespace p2pd {
namespace {

constexpr std::chrono::minutes kServiceDeadline{2};

void add(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

bool is_container(const std::string& service) { return service.find(' ') != std::string::npos; }

bool is_active(const Host& host, std::string_view unit) {
  const auto answer = host.run_readonly({{"systemctl", "is-active", std::string(unit)}, {}, {}, kServiceDeadline});
  return answer && answer->status == 0;
}

std::vector<std::string> noted(const Host& host) {
  std::vector<std::string> names;
  std::istringstream lines(host.files().read(kStoppedServices).value_or(""));
  for (std::string line; std::getline(lines, line);) names.push_back(std::move(line));
  return names;
}

Result<void> note(Host& host, const std::vector<std::string>& names) {
  if (names.empty()) return host.remove_tree(kStoppedServices);
  TRY(host.create(kStoppedServices, fmt::format("{}\n", fmt::join(names, "\n"))));
  return {};
}

}  // namespace

Result<GpuUsers> gpu_users(const Host& host) {
  GpuUsers users;
  std::vector<std::string> containers;
  bool display = false;
  for (const GpuHolder& holder : TRY(gpu_holders(host)).found) {
    display |= holder.kind == HolderKind::display;
    if (!is_service(host, holder))
      add(users.others,
          holder.kind == HolderKind::process ? fmt::format("{} (process {})", holder.comm, holder.pid) : holder.name);
    else if (holder.kind == HolderKind::container)
      add(containers, holder.name);
  }
  for (const GpuHolder& container : TRY(containers_with_gpus(host)))
    if (is_service(host, container)) add(containers, container.name);
  if (is_active(host, kPersistencedService)) users.services.emplace_back(kPersistencedService);
  if (display && is_active(host, kDisplayManager)) users.services.emplace_back(kDisplayManager);
  users.services.insert(users.services.end(), containers.begin(), containers.end());
  if (display)
    for (const SeatSession& session : TRY(seat_sessions(host)))
      if (!session.greeter) add(users.others, session.text());
  return users;
}

Command service_command(const std::string& verb, const std::string& service) {
  if (!is_container(service)) return {{"systemctl", verb, service}, {}, {}, kServiceDeadline};
  const std::size_t space = service.find(' ');
  return {{service.substr(0, space), verb, service.substr(space + 1)}, {}, {}, kServiceDeadline};
}

Result<void> note_services(Host& host, const std::vector<std::string>& services) {
  std::vector<std::string> names = noted(host);  // includes those of a start that was killed
  for (const std::string& service : services) add(names, service);
  return note(host, names);
}

Result<void> stop_services(Host& host, const std::vector<std::string>& services) {
  TRY(note_services(host, services));
  for (const std::string& service : services) TRY(host.run(service_command("stop", service)));
  return {};
}

Result<void> start_services(Host& host, bool containers) {
  const std::vector<std::string> names = noted(host);
  std::vector<std::string> left = names, failed, commands;
  for (const std::string& name : names) {
    const Command start = service_command("start", name);
    if (is_container(name) && !containers) {
      failed.push_back(name + " (no NVIDIA driver is loaded)");
      commands.push_back(start.text());
      continue;
    }
    const auto started = host.run(start);
    if (!started && started.error().code == ErrorCode::interrupted) return Failure(started.error());
    if (!started) {
      failed.push_back(fmt::format("{} ({})", name, started.error().message));
      commands.push_back(start.text());
    }
    std::erase(left, name);
    TRY(note(host, left));
  }
  if (failed.empty()) return {};
  return fail(ErrorCode::command, fmt::format("not started again: {}", fmt::join(failed, "; ")),
              fmt::format("Find out why, then run: {}", fmt::join(commands, "; ")));
}

}  // namespace p2pd
