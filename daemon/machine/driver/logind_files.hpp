// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// Assignments of a file that logind keeps below /run/systemd: "KEY=value" lines; other lines are skipped.
std::map<std::string, std::string> logind_fields(const std::string& text);

/// A graphical session at a seat that is not being closed.
struct SeatSession {
  std::string id;   ///< id from logind: "2", "c1"
  std::string uid;  ///< id of its user
  std::string user;
  std::string seat;      ///< "seat0"
  bool greeter = false;  ///< a login screen; else a person's desktop

  std::string text() const { return "session " + id + " of " + user + " on " + seat; }
};

/// Reads /run/systemd/sessions, as sd_session_get_class(3) and its like do; every user may.
Result<std::vector<SeatSession>> seat_sessions(const Host& host);

/// "somebody else has scheduled a poweroff for ...": text for a shutdown that logind will make at `when_us` (since
/// 1970).
std::string scheduled_text(std::string_view kind, std::uint64_t when_us);

/// Text for the shutdown that is scheduled now, from /run/systemd/shutdown/scheduled; empty: none is.
std::string scheduled_shutdown(const RootReader& files);

}  // namespace p2pd
