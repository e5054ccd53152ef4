// SPDX-License-Identifier: MIT
// Control groups name what a process belongs to: systemd puts every unit into one of its own, container runtimes every
// container. Formats: proc(5), cgroups(7), systemd.unit(5); the runtimes' cgroup drivers "systemd" and "cgroupfs".
#include "base/driver/gpu_holders.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <set>
#include <sstream>

namespace p2pd {
namespace {

constexpr std::size_t kContainerId = 64;  // hexadecimal digits
constexpr std::size_t kShortId = 12;      // as "docker ps" prints them
constexpr std::array<std::string_view, 5> kKinds = {"display", "persistenced", "container", "unit", "process"};

/// Programs that draw on a screen, as /proc/PID/comm cuts them.
constexpr std::string_view kDisplayPrograms[] = {
    "Xorg",   "X",        "Xwayland", "gnome-shell", "kwin_wayland", "kwin_x11",    "sway",
    "weston", "Hyprland", "wayfire",  "labwc",       "mutter",       "cosmic-comp", "gnome-session-b",
    "gdm",    "gdm3",     "sddm",     "lightdm",     "lxdm",         "xdm",         "plasmashell"};
constexpr std::string_view kOwnUnits[] = {"p2pd-walk.service", "p2pd-job.service", "p2pd-prove.service"};
constexpr std::string_view kDisplayUnits[] = {"display-manager.service", "gdm.service", "gdm3.service", "sddm.service",
                                              "lightdm.service",         "lxdm.service"};

/// How a runtime marks its groups; the first row that fits counts.
struct Runtime {
  std::string_view mark;
  std::string_view name;
};
constexpr Runtime kRuntimes[] = {{"libpod", "podman"}, {"cri-containerd", "containerd"},
                                 {"crio", "cri-o"},    {"kubepods", "kubernetes"},
                                 {"docker", "docker"}, {"containerd", "containerd"}};

std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

/// The first run of exactly 64 hexadecimal digits; empty when there is none.
std::string_view container_id(std::string_view path) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (std::size_t at = path.find_first_of(kDigits); at < path.size(); at = path.find_first_of(kDigits, at)) {
    const std::size_t end = std::min(path.find_first_not_of(kDigits, at), path.size());
    if (end - at == kContainerId) return path.substr(at, kContainerId);
    at = end;
  }
  return {};
}

/// "docker 3f2a91b0c4d5", "lxc NAME", "machine NAME"; empty outside of containers.
std::string container_of(std::string_view path) {
  if (const std::string_view id = container_id(path); !id.empty()) {
    const auto runtime =
        std::ranges::find_if(kRuntimes, [&](const Runtime& r) { return path.find(r.mark) != path.npos; });
    return fmt::format("{} {}", runtime != std::end(kRuntimes) ? runtime->name : "container", id.substr(0, kShortId));
  }
  for (const auto& [mark, name] :
       {Runtime{"/lxc.payload.", "lxc"}, Runtime{"/lxc/", "lxc"}, Runtime{"/machine-", "machine"}}) {
    const std::size_t at = path.find(mark);
    if (at == path.npos) continue;
    const std::string_view rest = path.substr(at + mark.size());
    return fmt::format("{} {}", name, rest.substr(0, rest.find_first_of("/.")));
  }
  return {};
}

/// The innermost unit: "ollama.service"; empty where only slices are.
std::string unit_of(std::string_view path) {
  while (!path.empty()) {
    const std::string_view last = path.substr(path.rfind('/') + 1);
    if (last.ends_with(".service") || last.ends_with(".scope")) return std::string(last);
    path = path.substr(0, path.size() - std::min(last.size() + 1, path.size()));
  }
  return {};
}

template <class Table>
bool among(const Table& table, std::string_view name) {
  return std::ranges::find(table, name) != std::end(table);
}

/// Nodes of the NVIDIA GPUs in /dev/dri: "/dev/dri/renderD128".
std::set<std::string> render_nodes(const Host& host) {
  std::set<std::string> nodes;
  for (const std::string& name : host.files().list("/sys/class/drm").value_or(std::vector<std::string>())) {
    const bool node = name.find('-') == std::string::npos && (name.starts_with("card") || name.starts_with("renderD"));
    if (node && host.line("/sys/class/drm/" + name + "/device/vendor").value_or("") == "0x10de")
      nodes.insert("/dev/dri/" + name);
  }
  return nodes;
}

/// The devices that a process has open. An Error: only root may see that, or the process has ended.
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

std::string_view to_string(HolderKind kind) { return kKinds.at(static_cast<std::size_t>(kind)); }

void classify(GpuHolder& holder, std::string_view cgroups) {
  std::string container, unit;
  std::istringstream lines{std::string(cgroups)};
  for (std::string line;
       std::getline(lines, line);) {  // "0::/system.slice/x.service"; version 1 has a line a controller
    const std::size_t colon = line.find(':', line.find(':') + 1);
    if (line.find(':') == std::string::npos || colon == std::string::npos) continue;
    const std::string_view path = std::string_view(line).substr(colon + 1);
    if (container.empty()) container = container_of(path);
    if (unit.empty()) unit = unit_of(path);
  }
  const bool display = among(kDisplayPrograms, holder.comm) || among(kDisplayUnits, unit);
  const bool service = unit.ends_with(".service") && cgroups.find(":/user.slice/") == cgroups.npos;
  holder.own = service && container.empty() && among(kOwnUnits, unit);
  if (!container.empty()) {
    holder.kind = HolderKind::container;
    holder.name = printable(container);
  } else if (holder.comm == "nvidia-persiste" || unit == "nvidia-persistenced.service") {
    holder.kind = HolderKind::persistenced;
    holder.name = "nvidia-persistenced.service";
  } else {
    holder.kind = display ? HolderKind::display : service ? HolderKind::unit : HolderKind::process;
    holder.name = printable(unit);
  }
}

void read_stat(const Host& host, GpuHolder& holder) {
  constexpr int kFlags = 9, kPending = 31;  // fields of proc(5), from 1
  constexpr unsigned long kExiting = 0x4, kKilled = 1UL << (SIGKILL - 1);
  const std::string stat = host.line(fmt::format("/proc/{}/stat", holder.pid)).value_or("");
  std::istringstream fields(stat.substr(std::min(stat.rfind(") ") + 2, stat.size())));  // the name may hold anything
  char state = '?';
  int parent = 0;
  if (!(fields >> state >> parent)) return;
  holder.dying = state == 'Z' || state == 'X';
  long value = 0;
  for (int field = 5; field <= kPending && fields >> value; ++field)
    if ((field == kFlags && (value & kExiting) != 0) || (field == kPending && (value & kKilled) != 0)) holder.dying = true;
  holder.own |= host.live() && parent == ::getpid();
}

bool is_service(const Host& host, const GpuHolder& holder) {
  if (holder.kind != HolderKind::container)
    return holder.kind == HolderKind::persistenced || holder.kind == HolderKind::display;
  const std::size_t space = holder.name.find(' ');
  const std::string runtime = holder.name.substr(0, space);
  if (runtime != "docker" && runtime != "podman") return false;
  const auto policy = host.query(
      {{runtime, "inspect", "--format", "{{.HostConfig.RestartPolicy.Name}}", holder.name.substr(space + 1)}, {}, {}});
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
    if (!devices && !host.files().exists(process)) continue;  // ended meanwhile
    ++holders.processes;
    if (!devices) ++holders.unreadable;
    if (!devices || devices->empty()) continue;
    holder.devices.assign(devices->begin(), devices->end());
    holder.comm = printable(host.line(process + "/comm").value_or("?"));
    classify(holder, host.files().read(process + "/cgroup").value_or(""));
    read_stat(host, holder);
    holders.found.push_back(std::move(holder));
  }
  std::ranges::sort(holders.found, {}, &GpuHolder::pid);
  return holders;
}

}  // namespace p2pd
