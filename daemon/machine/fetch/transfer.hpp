// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "machine/fetch/download.hpp"

namespace p2pd {

/// What a server says of the body that it sends.
struct Answer {
  long status = 0;          ///< of HTTP; 0 for file://
  std::string url;          ///< after redirects
  std::string validator;    ///< strong ETag, else Last-Modified: names these bytes; may be empty
  std::uint64_t from = 0;   ///< where the body begins in the whole
  std::uint64_t total = 0;  ///< bytes of the whole; 0: not told
};

/// One exchange with a server.
struct Transfer {
  /// Hears each piece of the body; an Error ends the exchange and is its result.
  using Sink = std::function<Result<void>(const Answer&, std::string_view)>;

  const Download& what;
  std::chrono::steady_clock::time_point until;
  int stop_fd;                  ///< readable: end with ErrorCode::interrupted; -1 for never
  std::string range = {};      ///< "100-"; empty: the whole
  std::string validator = {};  ///< the range is wanted of these bytes only, else the whole; may be empty

  /// The answer whose body went into `sink`. ErrorCode::busy where another attempt may do better.
  Result<Answer> run(const Sink& sink) const;
};

}  // namespace p2pd
