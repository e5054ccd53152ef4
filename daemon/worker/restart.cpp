// SPDX-License-Identifier: MIT
#include "worker/restart.hpp"

#include <fmt/format.h>

#include <fstream>
#include <thread>

#include "base/command.hpp"
#include "base/directories.hpp"
#include "base/log.hpp"
#include "base/root.hpp"
#include "machine/driver/logind_files.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kMessageOfTheDay = "/run/motd.d/p2pd";
constexpr std::string_view kRequired = "/run/reboot-required";
constexpr std::string_view kRequiredBy = "/run/reboot-required.pkgs";
constexpr std::chrono::minutes kShutdownPatience{10};  // time that a shutdown may take

/// Writes a notice. A failure is logged, and does not prevent the restart.
void put(std::string_view path, std::string text) {
  FileState file;
  file.kind = FileState::Kind::regular;
  file.mode = 0644;
  file.content = std::move(text);
  Result<Root> root = Root::open("/");
  const Result<void> done = root ? root->put(path, file) : Failure(root.error());
  if (!done) log::warning("{}", done.error().message);
}

void take_away(std::string_view path) {
  if (Result<Root> root = Root::open("/"); root) (void)!root->remove(path).has_value();
}

void require_by_files() {
  const Result<Root> root = Root::open("/");
  std::string packages = root ? root->read(kRequiredBy).value_or("") : "";
  if (("\n" + packages).find("\np2pd\n") == std::string::npos) packages += "p2pd\n";
  put(kRequiredBy, packages);
  put(kRequired, "*** System restart required ***\n");
}

/// RUNTIME/restart: schedule made by p2pd, "KIND WHEN". Written before the call to logind, so that after a kill between
/// the two p2pd still recognises its schedule.
std::string schedule_file() { return runtime_directory() + "/restart"; }

Logind::Schedule our_schedule() {
  Logind::Schedule ours;
  std::ifstream(schedule_file()) >> ours.kind >> ours.when;
  return ours;
}

}  // namespace

std::string Restart::in_the_way() {
  if (const Result<bool> down = logind_.going_down(); down && *down) return "this machine is going down";
  const auto found = logind_.scheduled();
  if (!found) {  // without a bus the file has the schedule
    const Result<Root> root = Root::open("/");
    return root ? scheduled_shutdown(*root) : "";
  }
  return *found && **found != our_schedule() ? scheduled_text((*found)->kind, (*found)->when) : "";
}

Result<void> Restart::cancel_ours() {
  const auto found = TRY(logind_.scheduled());
  if (found && *found == our_schedule()) TRY(logind_.cancel());
  take_away(schedule_file());
  return {};
}

Result<Rebooter::Outcome> Restart::reboot(RebootPolicy policy, std::string_view reason, bool rolling_back) {
  if (policy == RebootPolicy::external) {
    require_by_files();
    put(kMessageOfTheDay, fmt::format("p2pd waits for a restart of this machine: {}\n", reason));
    return Outcome::under_way;
  }
  if (const std::string other = in_the_way(); !other.empty()) {
    put(kMessageOfTheDay, fmt::format("p2pd continues after the next boot: {}; {}\n", reason, other));
    log::warning("p2pd does not restart this machine itself: {}", other);
    return Outcome::under_way;
  }
  const std::string text = fmt::format("p2pd restarts this machine in {} s: {}. {}\"shutdown -c\" stops it.",
                                       delay_.count(), reason, rolling_back ? "" : "\"p2pctl pause\" or ");
  put(kMessageOfTheDay, text + "\n");
  std::ofstream("/dev/console") << "\r\n" << text << "\r\n";
  log::info("{}", text);
  Result<Outcome> outcome = wait(text);
  if (!outcome || *outcome == Outcome::called_off) take_away(kMessageOfTheDay);
  return outcome;
}

void Restart::cancel_announced_reboot() {
  const Result<Root> root = Root::open("/");
  if (!root || !root->exists(kMessageOfTheDay)) return;
  take_away(kMessageOfTheDay);
  if (const Result<void> cancelled = cancel_ours(); !cancelled) log::warning("{}", cancelled.error().message);
  std::string packages = "\n" + root->read(kRequiredBy).value_or("");
  const std::size_t ours = packages.find("\np2pd\n");
  if (ours == std::string::npos) return;
  packages.erase(ours + 1, std::string_view("p2pd\n").size());
  if (packages == "\n") {
    take_away(kRequiredBy);
    take_away(kRequired);
  } else {
    put(kRequiredBy, packages.substr(1));
  }
}

Result<Rebooter::Outcome> Restart::wait(std::string_view text) {
  const auto at = std::chrono::duration_cast<std::chrono::microseconds>(
      (std::chrono::system_clock::now() + delay_).time_since_epoch());
  const Logind::Schedule ours{"reboot", static_cast<std::uint64_t>(at.count())};
  put(schedule_file(), fmt::format("{} {}\n", ours.kind, ours.when));
  const Result<void> scheduled = logind_.schedule(ours, std::string(text));
  if (!scheduled && scheduled.error().code != ErrorCode::not_found) return Failure(scheduled.error());
  if (!scheduled) {  // no bus: restart without an announcement
    const Command command{{"systemctl", "reboot"}};
    TRY(require_success(command, TRY_IN("cannot restart", ProcessRunner().run(command))));
    return Outcome::under_way;
  }
  const auto due = std::chrono::steady_clock::now() + delay_;
  for (auto now = due - delay_; now < due + kShutdownPatience; now = std::chrono::steady_clock::now()) {
    if (mailbox_.stopping()) return Outcome::under_way;
    if (mailbox_.asked()) {
      TRY(cancel_ours());
      mailbox_.done_with(Event::pause);  // a cancel is still to be handled
      return Outcome::called_off;
    }
    // at the scheduled time logind may no longer report the schedule
    if (now < due - std::chrono::seconds(1) && TRY(logind_.scheduled()) != ours && !TRY(logind_.going_down()))
      return Outcome::called_off;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  return fail(ErrorCode::timeout, "the announced restart did not happen",
              "Restart this machine: \"systemctl reboot\".");
}

}  // namespace p2pd
