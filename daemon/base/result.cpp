// SPDX-License-Identifier: MIT
#include "base/result.hpp"

#include <cstring>

namespace p2pd {

std::string_view to_string(ErrorCode code) {
  constexpr std::string_view kNames[] = {"io",         "not_found",   "invalid", "denied", "timeout",
                                         "command",    "interrupted", "busy",    "state",  "database_quarantined",
                                         "unconfirmed"};
  return kNames[static_cast<std::size_t>(code)];
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
