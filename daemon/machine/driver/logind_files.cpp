// SPDX-License-Identifier: MIT
// Reads logind's files. Format: logind-session.c, session_save(), logind-dbus.c, update_schedule_file();
// pam_systemd(8), classes.
#include "machine/driver/logind_files.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sstream>

namespace p2pd {
namespace {

constexpr std::string_view kSessions = "/run/systemd/sessions";
constexpr std::string_view kScheduled = "/run/systemd/shutdown/scheduled";
constexpr std::string_view kGraphical[] = {"x11", "wayland", "mir"};
constexpr std::size_t kSessionFileLimit = 64U << 10;  // bytes

std::string shown_name(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c <= ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace

std::map<std::string, std::string> logind_fields(const std::string& text) {
  std::map<std::string, std::string> fields;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find('=');
    if (at != std::string::npos) fields[line.substr(0, at)] = line.substr(at + 1);
  }
  return fields;
}

Result<std::vector<SeatSession>> seat_sessions(const Host& host) {
  std::vector<SeatSession> found;
  const auto ids = host.files().list(kSessions);
  if (!ids && ids.error().code == ErrorCode::not_found) return found;  // logind does not run here
  for (const std::string& id : TRY(Result<std::vector<std::string>>(ids))) {
    if (id.ends_with(".ref")) continue;  // a pipe: the session lives as long as its other end
    const auto text = host.files().read(std::string(kSessions) + "/" + id, kSessionFileLimit);
    if (!text && text.error().code == ErrorCode::not_found) continue;  // the session ended meanwhile
    auto session = logind_fields(TRY(Result<std::string>(text)));
    const bool person = session["CLASS"].starts_with("user"), greeter = session["CLASS"] == "greeter";
    const bool graphical = std::ranges::find(kGraphical, session["TYPE"]) != std::end(kGraphical);
    if (!graphical || session["SEAT"].empty() || session["STATE"] == "closing" || (!person && !greeter)) continue;
    const std::string& user = session["USER"].empty() ? session["UID"] : session["USER"];
    found.push_back({shown_name(id), session["UID"], shown_name(user), shown_name(session["SEAT"]), greeter});
  }
  return found;
}

std::string scheduled_text(std::string_view kind, std::uint64_t when_us) {
  const auto when = std::chrono::floor<std::chrono::seconds>(
      std::chrono::sys_time<std::chrono::microseconds>(std::chrono::microseconds(when_us)));
  return fmt::format("somebody else has scheduled a {} for {:%Y-%m-%d %H:%M:%S} UTC (\"shutdown -c\" cancels it)", kind,
                     fmt::gmtime(std::chrono::system_clock::to_time_t(when)));
}

std::string scheduled_shutdown(const RootReader& files) {
  const auto text = files.read(kScheduled, kSessionFileLimit);
  if (!text) return {};
  auto fields = logind_fields(*text);
  return scheduled_text(fields["MODE"].empty() ? "shutdown" : shown_name(fields["MODE"]),
                        std::strtoull(fields["USEC"].c_str(), nullptr, 10));
}

}  // namespace p2pd
