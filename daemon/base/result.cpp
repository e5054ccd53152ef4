// SPDX-License-Identifier: MIT
#include "base/result.hpp"

#include <cstring>

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
    case ErrorCode::database_quarantined: return "database_quarantined";
  }
  return "io";
}

Failure fail(ErrorCode code, std::string message, std::string next) {
  return Failure(Error{code, std::move(message), std::move(next)});
}

Failure fail_errno(std::string_view context, int error) {
  const ErrorCode code = error == ENOENT || error == ENOTDIR ? ErrorCode::not_found
                         : error == EACCES || error == EPERM ? ErrorCode::denied
                                                             : ErrorCode::io;
  return fail(code, std::string(context) + ": " + std::strerror(error),
              error == EROFS ? "See why it is read-only (findmnt, dmesg), \"mount -o remount,rw\" it, then try again."
              : error == ENOSPC ? "Make room there, then try again."
                                : "");
}

}  // namespace p2pd
