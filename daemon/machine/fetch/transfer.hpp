// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "machine/fetch/download.hpp"

namespace p2pd {

/// Server's description of the body that it sends.
struct Answer {
  long status = 0;          ///< status of HTTP; 0 for file://
  std::string url;          ///< address after redirects
  std::string validator;    ///< strong ETag, else Last-Modified: identifies these bytes; may be empty
  std::uint64_t from = 0;   ///< position of the body in the whole file
  std::uint64_t total = 0;  ///< bytes of the whole file; 0: not known
};

/// One exchange with a server.
struct Transfer {
  /// Receives each piece of the body; an Error ends the exchange and is its result.
  using Sink = std::function<Result<void>(const Answer&, std::string_view)>;

  const Download& what;
  std::chrono::steady_clock::time_point until;
  int stop_fd;                  ///< readable: ends with ErrorCode::interrupted; -1 for never
  std::string range = {};      ///< "100-"; empty: the whole file
  std::string validator = {};  ///< requests the range of these bytes only, else the whole file; may be empty

  /// Returns the answer whose body was passed to `sink`. ErrorCode::busy if another attempt may succeed.
  Result<Answer> run(const Sink& sink) const;
};

}  // namespace p2pd
