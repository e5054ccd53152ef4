// SPDX-License-Identifier: MIT
#pragma once

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

}  // namespace p2pd
