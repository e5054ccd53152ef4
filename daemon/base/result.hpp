// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace p2pd {

/// Reason of a failure, precise enough to branch on.
enum class ErrorCode {
  io,                    ///< the operating system refused a file or process operation
  not_found,             ///< the file, command or name does not exist
  invalid,               ///< input that breaks its format
  denied,                ///< permission missing; root has it
  timeout,               ///< a deadline passed
  command,               ///< a command ran and failed
  interrupted,           ///< stop was requested
  busy,                  ///< used by another program
  state,                 ///< the run is not in a state that allows this
  database_quarantined,  ///< the state database was unusable and is quarantined
  unconfirmed,           ///< a change that nobody has agreed to
};

/// Stable lower-case name of `code`, as printed in JSON.
std::string_view to_string(ErrorCode code);

/// An error says what failed and why; each layer puts its own context in front.
struct Error {
  ErrorCode code = ErrorCode::io;
  std::string message;
  std::string next;  ///< next step for the operator; may be empty

  [[nodiscard]] Error in(std::string_view context) && {
    message.insert(0, std::string(context) + ": ");
    return std::move(*this);
  }
  /// Message and next step in one line.
  std::string text() const { return next.empty() ? message : message + "; next: " + next; }
};

/// A value or an Error; must be used.
template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;

  /// Moves the value out; only if there is one.
  T take() && {
    if constexpr (!std::is_void_v<T>) return std::move(**this);
  }
};

using Failure = tl::unexpected<Error>;

/// Makes an Error that a function returns.
Failure fail(ErrorCode code, std::string message, std::string next = {});

/// Makes the Error of a failed system call: `context`, then the meaning of errno.
Failure fail_errno(std::string_view context, int error = errno);

}  // namespace p2pd

/// Yields the value of a Result, or leaves the enclosing function with its Error. Never inside a braced list: GCC does
/// not destroy the elements before it there.
#define TRY(...) P2PD_TRY_AS(P2PD_UNIQUE(try_, __COUNTER__), , __VA_ARGS__)

/// Does the same as TRY, with `context` in front of the Error's message.
#define TRY_IN(context, ...) P2PD_TRY_AS(P2PD_UNIQUE(try_, __COUNTER__), .in(context), __VA_ARGS__)

#define P2PD_TRY_AS(name, add, ...)                                 \
  __extension__({                                                   \
    auto name = (__VA_ARGS__);                                      \
    if (!name) return ::p2pd::Failure(std::move(name).error() add); \
    std::move(name).take();                                         \
  })
#define P2PD_UNIQUE(prefix, number) P2PD_UNIQUE_PASTE(prefix, number)
#define P2PD_UNIQUE_PASTE(prefix, number) prefix##number
