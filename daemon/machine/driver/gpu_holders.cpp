// SPDX-License-Identifier: MIT
// Finds processes that use a GPU. Control groups identify them: systemd puts every unit into one of its own, container
// runtimes every container. Formats: proc(5), cgroups(7), systemd.unit(5); the runtimes' cgroup drivers "systemd" and
// "cgroupfs".
#include "machine/driver/gpu_holders.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

#include "machine/driver/logind_files.hpp"
#include "machine/driver/persistenced.hpp"
#include "machine/driver/proxmox.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kShortId = 12;  // digits that "docker ps" prints
constexpr std::array<std::string_view, 6> kServiceKinds = {"display", "persistenced", "container",
                                                           "unit",    "process",      "session"};

constexpr std::chrono::minutes kServiceDeadline{2};

constexpr std::string_view kDisplayManager = "display-manager.service";  // alias of the unit in use
constexpr std::string_view kOwnUnits[] = {"p2pd-worker.service", "p2pd-job.service", "p2pd-prove.service"};
constexpr std::string_view kDisplayUnits[] = {kDisplayManager, "gdm.service",     "gdm3.service",
                                              "sddm.service",  "lightdm.service", "lxdm.service"};
// Units that run jobs of others: stopping one does not end a job. Without pam_systemd a login stays in ssh.service.
constexpr std::string_view kStartOthers[] = {"ssh.service",   "sshd.service", "cron.service",
                                             "crond.service", "atd.service",  "slurmd.service"};
constexpr std::string_view kUserSlice = "/user.slice/";

/// Mark of a runtime's control groups; the first row that fits counts.
struct Runtime {
  std::string_view mark;
  std::string_view name;
};
constexpr Runtime kRuntimes[] = {{"libpod", "podman"}, {"cri-containerd", "containerd"},
                                 {"crio", "cri-o"},    {"kubepods", "kubernetes"},
                                 {"docker", "docker"}, {"containerd", "containerd"}};

/// First run of exactly 64 hexadecimal digits; empty if there is none.
std::string container_id(std::string_view path) {
  static const std::regex kId("(^|[^0-9a-f])([0-9a-f]{64})([^0-9a-f]|$)");
  std::cmatch found;
  return std::regex_search(path.begin(), path.end(), found, kId) ? found[2].str() : "";
}

constexpr std::string_view kLxc = "/lxc/", kLxcPayload = "/lxc.payload.";

/// First component of `path` behind `mark`.
std::string_view component_behind(std::string_view path, std::size_t mark) {
  return path.substr(mark, path.find_first_of("/.", mark) - mark);
}

/// Container: "docker 3f2a91b0c4d5", "lxc NAME", "machine NAME"; empty outside of containers. LXC's is the outermost:
/// docker inside of it is not this system's.
std::string container_of(std::string_view path) {
  for (const std::string_view mark : {kLxcPayload, kLxc})
    if (path.starts_with(mark)) return fmt::format("lxc {}", component_behind(path, mark.size()));
  if (const std::string id = container_id(path); !id.empty()) {
    const auto runtime =
        std::ranges::find_if(kRuntimes, [&](const Runtime& r) { return path.find(r.mark) != path.npos; });
    return fmt::format("{} {}", runtime != std::end(kRuntimes) ? runtime->name : "container", id.substr(0, kShortId));
  }
  for (const auto& [mark, name] : {Runtime{kLxcPayload, "lxc"}, Runtime{kLxc, "lxc"}, Runtime{"/machine-", "machine"}})
    if (const std::size_t at = path.find(mark); at != path.npos)
      return fmt::format("{} {}", name, component_behind(path, at + mark.size()));
  return {};
}

/// Unit of systemd, "ollama.service": the first component that is no slice, since programs in a unit choose the names
/// below it (cg_path_get_unit() of systemd); empty if there are only slices.
std::string unit_of(std::string_view path) {
  while (path.starts_with('/')) {
    path.remove_prefix(1);
    const std::string_view component = path.substr(0, path.find('/'));
    if (component.ends_with(".service") || component.ends_with(".scope")) return std::string(component);
    if (!component.ends_with(".slice")) break;
    path.remove_prefix(component.size());
  }
  return {};
}

/// Unit of a user's own manager, in a path below its unit "user@1000.service".
std::string user_unit_of(std::string_view path, const std::string& manager) {
  std::string unit = manager.starts_with("user@") ? unit_of(path.substr(path.find(manager) + manager.size())) : "";
  return unit.empty() ? manager : unit;
}

template <class Table>
bool among(const Table& table, std::string_view name) {
  return std::ranges::find(table, name) != std::end(table);
}

bool starts_others(std::string_view unit) {
  return among(kStartOthers, unit) || unit.starts_with("ssh@") || unit.starts_with("sshd@");
}

/// Unit that the display manager's alias names; empty if there is none.
std::string display_unit(const Host& host) {
  const std::string target = host.files().read_link("/etc/systemd/system/display-manager.service").value_or("");
  return target.substr(target.rfind('/') + 1);  // npos + 1 is 0
}

/// Graphical session at a seat that a process below user.slice belongs to: by its scope, or by the user whose manager
/// runs it.
Result<std::optional<SeatSession>> session_of(const Host& host, std::string_view path, const std::string& unit) {
  for (const SeatSession& session : TRY(seat_sessions(host)))
    if (unit == "session-" + session.id + ".scope" ||
        (path.starts_with(fmt::format("{}user-{}.slice/user@", kUserSlice, session.uid))))
      return session;
  return std::nullopt;
}

/// Nodes of the NVIDIA GPUs in /dev/dri: "/dev/dri/renderD128".
std::set<std::string> render_nodes(const Host& host) {
  std::set<std::string> nodes;
  for (const std::string& name : host.names("/sys/class/drm")) {
    const bool node = name.find('-') == std::string::npos && (name.starts_with("card") || name.starts_with("renderD"));
    if (node && host.line("/sys/class/drm/" + name + "/device/vendor").value_or("") == "0x10de")
      nodes.insert("/dev/dri/" + name);
  }
  return nodes;
}

/// NVIDIA devices that a process has open. An Error: only root may see them, or the process has ended.
Result<std::set<std::string>> open_devices(const Host& host, const std::string& process,
                                           const std::set<std::string>& render) {
  std::set<std::string> devices;
  for (const std::string& fd : TRY(host.files().list(process + "/fd"))) {
    const auto target = host.files().read_link(process + "/fd/" + fd);
    if (!target && target.error().code == ErrorCode::denied) return tl::unexpected(target.error());
    if (target && (target->starts_with("/dev/nvidia") || render.contains(*target))) devices.insert(*target);
  }
  return devices;
}

}  // namespace

std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

std::string_view to_string(HolderKind kind) { return kServiceKinds.at(static_cast<std::size_t>(kind)); }

Result<void> classify(const Host& host, GpuHolder& holder, std::string_view cgroups) {
  std::string container, unit, user_path, proxmox;
  std::istringstream lines{std::string(cgroups)};
  for (std::string line;
       std::getline(lines, line);) {  // "0::/system.slice/x.service"; version 1 has a line for each controller
    const std::size_t colon = line.find(':', line.find(':') + 1);
    if (line.find(':') == std::string::npos || colon == std::string::npos) continue;
    const std::string_view path = std::string_view(line).substr(colon + 1);
    if (container.empty()) container = container_of(path);
    if (proxmox.empty() && path.starts_with(kLxc)) proxmox = component_behind(path, kLxc.size());
    if (unit.empty()) unit = unit_of(path);
    if (user_path.empty() && path.starts_with(kUserSlice)) user_path = path;
  }
  holder.of_user = !user_path.empty();
  holder.kind = HolderKind::process;
  if (!container.empty()) {
    holder.kind = HolderKind::container;
    holder.name = printable(container);
    if (host.files().exists(fmt::format("/etc/pve/lxc/{}.conf", proxmox))) {
      const ProxmoxGuest guest = proxmox_container(host, proxmox);
      holder.name = guest.text().substr(guest.text().find(' ') + 1);
      holder.stop = guest.shutdown();
    }
  } else if (holder.of_user) {
    const auto session = TRY(session_of(host, user_path, unit));
    if (session) holder.kind = session->greeter ? HolderKind::display : HolderKind::session;
    holder.name = !session           ? printable(user_unit_of(user_path, unit))
                  : session->greeter ? std::string(kDisplayManager)
                                     : session->text();
  } else {
    if (unit == kPersistencedService)
      holder.kind = HolderKind::persistenced;
    else if (among(kDisplayUnits, unit) || (!unit.empty() && unit == display_unit(host)))
      holder.kind = HolderKind::display;
    else if (unit.ends_with(".service") && !starts_others(unit))
      holder.kind = HolderKind::unit;
    holder.own = holder.kind == HolderKind::unit && among(kOwnUnits, unit);
    holder.name = printable(unit);
  }
  return {};
}

void read_stat(const Host& host, GpuHolder& holder) {
  constexpr int kFlags = 9, kPending = 31;  // fields of proc(5), from 1
  constexpr unsigned long kExiting = 0x4, kKilled = 1UL << (SIGKILL - 1);
  const std::string stat = host.line(fmt::format("/proc/{}/stat", holder.pid)).value_or("");
  std::istringstream fields(stat.substr(std::min(stat.rfind(") ") + 2, stat.size())));  // the name may contain anything
  char state = '?';
  int parent = 0;
  if (!(fields >> state >> parent)) return;
  holder.dying = state == 'Z' || state == 'X';
  std::string word;  // other fields are negative, or too large for a long (25, rsslim: no limit)
  for (int field = 5; field <= kPending && fields >> word; ++field) {
    if (field != kFlags && field != kPending) continue;
    if ((std::strtoul(word.c_str(), nullptr, 10) & (field == kFlags ? kExiting : kKilled)) != 0) holder.dying = true;
  }
  holder.own |= host.live() && parent == ::getpid();
}

bool is_service(const Host& host, const GpuHolder& holder) {
  if (holder.kind != HolderKind::container)
    return holder.kind == HolderKind::persistenced || holder.kind == HolderKind::display;
  if (holder.of_user) return false;  // the id may be of another container
  const std::size_t space = holder.name.find(' ');
  const std::string runtime = holder.name.substr(0, space);
  if (runtime != "docker" && runtime != "podman") return false;
  const auto policy = host.output_of(
      {{runtime, "inspect", "--format", "{{.HostConfig.RestartPolicy.Name}}", holder.name.substr(space + 1)}});
  return policy && (policy->starts_with("always") || policy->starts_with("unless-stopped"));
}

Result<GpuHolders> gpu_holders(const Host& host) {
  GpuHolders holders;
  const auto names = host.files().list("/proc");
  if (!names && names.error().code == ErrorCode::not_found) return holders;
  if (!names) return tl::unexpected(names.error());
  const std::set<std::string> render = render_nodes(host);
  for (const std::string& name : *names) {
    GpuHolder holder;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), holder.pid);
    if (error != std::errc() || end != name.data() + name.size() || holder.pid <= 0) continue;
    const std::string process = "/proc/" + name;
    const auto devices = open_devices(host, process, render);
    if (!devices && !host.files().exists(process)) continue;  // the process ended meanwhile
    ++holders.processes;
    if (!devices) ++holders.unreadable;
    if (!devices || devices->empty()) continue;
    holder.devices.assign(devices->begin(), devices->end());
    holder.comm = printable(host.line(process + "/comm").value_or("?"));
    TRY(classify(host, holder, host.files().read(process + "/cgroup").value_or("")));
    read_stat(host, holder);
    holders.found.push_back(std::move(holder));
  }
  std::ranges::sort(holders.found, {}, &GpuHolder::pid);
  return holders;
}

namespace {

/// Containers that were given GPUs, each once, whether they use one now or not: the driver's libraries or device files
/// are mounted in them.
Result<std::vector<GpuHolder>> containers_with_gpus(const Host& host) {
  constexpr std::string_view kMounted[] = {" /dev/nvidia", "/libcuda.so.", "/libnvidia-ml.so."};
  std::vector<GpuHolder> found;
  for (const std::string& name : host.names("/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string mounts = host.files().read("/proc/" + name + "/mountinfo").value_or("");
    if (std::ranges::none_of(kMounted, [&](std::string_view text) { return mounts.find(text) != mounts.npos; }))
      continue;
    GpuHolder holder;
    TRY(classify(host, holder, host.files().read("/proc/" + name + "/cgroup").value_or("")));
    if (holder.kind == HolderKind::container && !std::ranges::count(found, holder.name, &GpuHolder::name))
      found.push_back(std::move(holder));
  }
  return found;
}

void add(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

bool is_container(const std::string& service) { return service.find(' ') != std::string::npos; }

bool is_active(const Host& host, std::string_view unit) {
  const auto answer =
      host.run_readonly({.argv = {"systemctl", "is-active", std::string(unit)}, .deadline = kServiceDeadline});
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
  if (!is_container(service)) return {.argv = {"systemctl", verb, service}, .deadline = kServiceDeadline};
  const std::size_t space = service.find(' ');
  return {.argv = {service.substr(0, space), verb, service.substr(space + 1)}, .deadline = kServiceDeadline};
}

Result<void> note_services(Host& host, const std::vector<std::string>& services) {
  std::vector<std::string> names = noted(host);  // includes those of a start that was killed
  for (const std::string& service : services) add(names, service);
  return note(host, names);
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
