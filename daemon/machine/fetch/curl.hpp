// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "machine/fetch/download.hpp"

namespace p2pd {

/// Headers of a server's answer that are needed here.
struct Answer {
  long status = 0;          ///< of HTTP; 0: no answer so far, or a file
  std::string validator;    ///< strong ETag, else Last-Modified: names these bytes; may be empty
  std::uint64_t total = 0;  ///< bytes of the whole; 0: not known

  /// Takes one line of the headers; those of a later answer, as after a redirect, replace the earlier ones.
  void read(std::string_view line);
};

/// One request by curl(1), which appends the missing bytes to `file`.
///
/// No URL or password is in argv, and no ~/.curlrc is read. The file never has more than the limit of `what`.
struct Curl {
  const Host& host;
  const Download& what;
  std::chrono::steady_clock::time_point until;
  std::filesystem::path file;  ///< path on this machine
  bool first_byte = false;     ///< requests one byte, whose answer reports the size of the file
  std::string validator = {};  ///< of the bytes in the file; may be empty
  Answer answer = {};          ///< answer to the last run(), also to a failed one

  /// Errors as fetch_file(), and ErrorCode::state if the server does not continue the bytes that are there.
  Result<void> run();

 private:
  std::uint64_t limit() const { return first_byte ? 1 : what.limit_bytes; }
  std::string configuration(const std::string& url, std::uint64_t from) const;
  Result<void> judge(const CommandResult& ended, std::uint64_t from) const;
};

/// Size of `file` in bytes; 0 if it does not exist.
std::uint64_t bytes_in(const std::filesystem::path& file);

Failure too_large(const Download& what);

/// Proxy variables of this process, for the environment of a command.
std::map<std::string, std::string> proxy_variables();

}  // namespace p2pd
