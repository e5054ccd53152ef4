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

/// Assignments of a file that logind keeps below /run/systemd: "KEY=value" lines; others are passed over.
std::map<std::string, std::string> logind_fields(const std::string& text);

/// A graphical session at a seat that is not being closed.
struct SeatSession {
  std::string id;        ///< of logind's: "2", "c1"
  std::string uid;       ///< of its user
  std::string user;
  std::string seat;      ///< "seat0"
  bool greeter = false;  ///< a login screen, nobody's; else a person's desktop

  std::string text() const { return "session " + id + " of " + user + " on " + seat; }
};

/// Reads /run/systemd/sessions, as sd_session_get_class(3) and its kin do; anybody may.
Result<std::vector<SeatSession>> seat_sessions(const Host& host);

/// "somebody else has scheduled a poweroff for ...": of a shutdown that logind is to make at `when_us` (since 1970).
std::string scheduled_text(std::string_view kind, std::uint64_t when_us);

/// The same of the one that is scheduled now, as /run/systemd/shutdown/scheduled has it; empty: none is.
std::string scheduled_shutdown(const RootReader& files);

}  // namespace p2pd
