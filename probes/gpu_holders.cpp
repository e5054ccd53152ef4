// SPDX-License-Identifier: MIT
// gpu-holders: no process uses an NVIDIA GPU, so that its kernel modules can be replaced, and no user has a desktop
// open at a seat, which a restart or a stop of the display manager would end with its unsaved data.
// A module in use stays: rmmod refuses, and an installer that continues tests the old driver. The kernel shows its
// users in the open files of every process; users without these (a framebuffer console, a container's processes seen
// from inside another) appear in the modules' reference counts. Control groups and logind identify the owner of a
// process, never its name. Reads /proc/PID/{fd,comm,cgroup,stat}, never a command line; /proc/modules;
// /run/systemd/sessions; /etc/pve/lxc. Reference: proc(5); sd_session_get_class(3); tinygrad/open-gpu-kernel-modules
// PR 20, aikitoria/open-gpu-kernel-modules issue 10.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "base/probe.hpp"
#include "machine/driver/gpu_holders.hpp"
#include "machine/driver/logind_files.hpp"
#include "machine/modules/loaded_modules.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    {"ignore_services", Parameter::Type::boolean, false,
     "nvidia-persistenced, the display manager and containers with a restart policy do not count: they are stopped and "
     "started again; nor do p2pd's own processes, and those that are ending"},
    {"sessions", Parameter::Type::string, false,
     "busy (the default): a desktop at a seat blocks a restart; end: the restart ends the desktop"},
};
constexpr std::size_t kNamed = 6;     // shown in a summary
constexpr std::size_t kListed = 100;  // shown in the facts: a container may have thousands

std::string says(const GpuHolder& holder) {
  switch (holder.kind) {
    case HolderKind::container: return "container " + holder.name;
    case HolderKind::unit:
    case HolderKind::persistenced:
    case HolderKind::session: return holder.name;
    case HolderKind::display: return "display server " + holder.comm;
    case HolderKind::process: break;
  }
  return fmt::format("{} (process {})", holder.comm, holder.pid);
}

std::string how_to_stop(const GpuHolder& holder) {
  switch (holder.kind) {
    case HolderKind::container: return holder.stop.empty() ? "stop container " + holder.name : holder.stop;
    case HolderKind::unit:
    case HolderKind::persistenced: return "systemctl stop " + holder.name;
    case HolderKind::display: return "systemctl stop display-manager, or log out of the desktop";
    case HolderKind::session: return "log out of " + holder.name;
    case HolderKind::process: break;
  }
  return fmt::format("end {} (process {})", holder.comm, holder.pid);
}

/// Result of `tell` for each holder, without duplicates.
std::vector<std::string> each_once(const std::vector<GpuHolder>& holders, std::string (*tell)(const GpuHolder&)) {
  std::vector<std::string> told;
  for (const GpuHolder& holder : holders) {
    std::string text = tell(holder);
    if (std::ranges::find(told, text) == told.end()) told.push_back(std::move(text));
  }
  return told;
}

/// First results, joined by `glue`.
std::string listing(const std::vector<GpuHolder>& holders, std::string (*tell)(const GpuHolder&),
                    std::string_view glue) {
  std::vector<std::string> told = each_once(holders, tell);
  const std::size_t more = told.size() - std::min(told.size(), kNamed);
  told.resize(told.size() - more);
  return fmt::format("{}{}", fmt::join(told, glue), more > 0 ? fmt::format(" and {} more", more) : "");
}

/// NVIDIA modules among the loaded ones.
Result<std::vector<LoadedModule>> nvidia_modules(const Host& host) {
  auto modules = loaded_modules(host);
  if (!modules && modules.error().code != ErrorCode::not_found) return modules;
  std::vector<LoadedModule> nvidia = modules ? *std::move(modules) : std::vector<LoadedModule>();
  std::erase_if(nvidia, [](const LoadedModule& m) { return m.name != "nvidia" && !m.name.starts_with("nvidia_"); });
  return nvidia;
}

nlohmann::json facts_of(const std::vector<GpuHolder>& holders) {
  nlohmann::json listed = nlohmann::json::array();
  for (const GpuHolder& holder : std::span(holders).first(std::min(holders.size(), kListed)))
    listed.push_back({{"pid", holder.pid},
                      {"comm", holder.comm},
                      {"kind", to_string(holder.kind)},
                      {"name", holder.name},
                      {"devices", holder.devices}});
  return {{"holders", std::move(listed)}, {"holder_count", holders.size()}};
}

/// "nvidia_drm (2)": modules with references that no module accounts for. Nothing: there are no counts.
std::optional<std::string> other_uses(const std::vector<LoadedModule>& modules) {
  std::vector<std::string> held;
  for (const LoadedModule& module : modules) {
    const auto others = module.other_references();
    if (!others) return std::nullopt;
    if (*others > 0) held.push_back(fmt::format("{} ({})", module.name, *others));
  }
  return modules.empty() ? std::nullopt : std::optional(fmt::format("{}", fmt::join(held, ", ")));
}

Result<void> judge(Finding& finding, const GpuHolders& holders, const std::vector<LoadedModule>& modules) {
  const std::optional<std::string> held = other_uses(modules);
  if (!holders.found.empty()) {
    finding.set(Verdict::fail, "GPUs are in use by " + listing(holders.found, says, ", "),
                "Stop what uses them: " + listing(holders.found, how_to_stop, "; ") + ".");
  } else if (holders.processes == 0) {
    finding.set(Verdict::not_applicable, "this system is not running: no process holds a GPU");
  } else if (!held) {
    return fail(ErrorCode::not_found,
                "no process was found that holds a GPU, but this kernel does not count uses of modules",
                "Reboot before the modules are changed.");
  } else if (!held->empty() && holders.unreadable > 0) {
    return fail(ErrorCode::denied,
                fmt::format("in use: {}; only root can see the processes ({} of {} are unreadable)", *held,
                            holders.unreadable, holders.processes),
                "Run p2pctl doctor as root.");
  } else if (!held->empty()) {
    finding.set(Verdict::fail, "in use by no visible process: " + *held,
                "A framebuffer console holds nvidia_drm; a process outside of this container holds the others. Stop it "
                "from there, or reboot.");
  } else {
    finding.set(Verdict::pass, fmt::format("none of {} processes holds a GPU", holders.processes));
    if (holders.unreadable > 0) finding.summary += ": the NVIDIA modules are used by each other only";
  }
  return {};
}

/// Removes from `holders` those for which `is` is true, and returns them.
template <class Is>
std::vector<GpuHolder> take(std::vector<GpuHolder>& holders, Is is) {
  const auto rest =
      std::stable_partition(holders.begin(), holders.end(), [&](const GpuHolder& holder) { return !is(holder); });
  std::vector<GpuHolder> taken(rest, holders.end());
  holders.erase(rest, holders.end());
  return taken;
}

void add_evidence(Finding& finding, const GpuHolders& holders, const std::vector<LoadedModule>& modules) {
  for (const GpuHolder& holder : std::span(holders.found).first(std::min(holders.found.size(), kNamed)))
    finding.saw(fmt::format("/proc/{}/fd", holder.pid),
                fmt::format("{}: {}", holder.comm, fmt::join(holder.devices, ", ")));
  for (const LoadedModule& module : modules)
    finding.saw("/proc/modules",
                fmt::format("{}: {} references, used by {} modules", module.name,
                            module.references ? std::to_string(*module.references) : "?", module.users.size()));
}

/// Finding about processes that use the GPUs, except those of users' desktops, which are reported by session.
Result<Finding> look_at_holders(const Host& host, bool ignore_services) {
  const std::vector<LoadedModule> modules = TRY(nvidia_modules(host));
  if (modules.empty() && !host.files().exists("/sys/module/nvidia"))
    return not_applicable("no NVIDIA kernel module is loaded");
  GpuHolders holders = TRY(gpu_holders(host));
  const auto desktops = take(holders.found, [](const GpuHolder& holder) { return holder.kind == HolderKind::session; });
  const auto services = take(holders.found, [&](const GpuHolder& holder) {
    return ignore_services && (holder.own || holder.dying || is_service(host, holder));
  });
  Finding finding;
  finding.facts = facts_of(holders.found);
  add_evidence(finding, holders, modules);
  if (!holders.found.empty() || desktops.size() + services.size() == 0) {
    TRY(judge(finding, holders, modules));
  } else if (services.empty()) {  // here and below the holders explain the references
    finding.set(Verdict::pass, "only desktops hold GPUs");
  } else {
    const bool ending =
        std::ranges::any_of(services, [](const GpuHolder& holder) { return holder.own || holder.dying; });
    finding.set(Verdict::pass,
                fmt::format("only services hold GPUs, which are stopped and started again{}: {}",
                            ending ? ", and processes that are ending" : "", listing(services, says, ", ")));
    finding.facts["ends"] = each_once(services, says);
  }
  return finding;
}

/// Adds users' desktops at the seats to the finding.
void add_sessions(Finding& finding, const std::vector<SeatSession>& sessions, bool end) {
  for (const SeatSession& session : sessions) {
    finding.saw("/run/systemd/sessions/" + session.id, session.text());
    if (end) {
      finding.facts["ends"].push_back(session.text());
      if (finding.verdict != Verdict::fail)
        finding.summary += fmt::format("; {} ends with the restart", session.text());
      continue;
    }
    const std::string open = session.text() + " is open: a restart would end it";
    finding.summary = finding.verdict == Verdict::fail ? finding.summary + "; " + open : open;
    finding.next += fmt::format("{}Log out there; or give this step \"sessions: end\", which ends it with the restart.",
                                finding.verdict == Verdict::fail && !finding.next.empty() ? " " : "");
    finding.verdict = Verdict::fail;
  }
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  Finding finding = TRY(look_at_holders(host, parameters.value("ignore_services", false)));
  std::vector<SeatSession> sessions = TRY(seat_sessions(host));
  std::erase_if(sessions, [](const SeatSession& session) { return session.greeter; });
  add_sessions(finding, sessions, parameters.value("sessions", "") == "end");
  return finding;
}

Result<void> validate(const Parameters& parameters) {
  const auto sessions = parameters.value("sessions", std::string("busy"));
  if (sessions == "busy" || sessions == "end") return {};
  return fail(ErrorCode::invalid, "sessions: '" + sessions + "' is neither busy nor end");
}

}  // namespace

extern const Probe kGpuHolders = {
    .id = "gpu-holders",
    .asserts = "no process uses an NVIDIA GPU, and no person has a desktop open at a seat",
    .parameters = kParameters,
    .validate = validate,
    .check = check,
    .transient = true,
    .skip_on_image = true,
};

}  // namespace p2pd
