// SPDX-License-Identifier: MIT
#include "base/result.hpp"

namespace p2pd {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::io: return "io";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::invalid: return "invalid";
    case ErrorCode::denied: return "denied";
    case ErrorCode::timeout: return "timeout";
    case ErrorCode::command: return "command";
    case ErrorCode::interrupted: return "interrupted";
    case ErrorCode::busy: return "busy";
    case ErrorCode::state: return "state";
    case ErrorCode::set_aside: return "set_aside";
  }
  return "io";
}

}  // namespace p2pd
