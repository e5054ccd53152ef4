// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.hpp"

namespace p2pd {

/// What to fetch, and the bounds that hold whatever a server does.
///
/// Schemes are https, http and file; at most five redirects are followed, never to another scheme. Proxies are those of
/// the environment (https_proxy, http_proxy, no_proxy). Certificates are those that the system trusts.
struct Download {
  std::string url;
  std::uint64_t limit_bytes = std::uint64_t{2} << 30;
  std::string sha256;                                         ///< that it must have; empty: not known
  std::chrono::milliseconds deadline{std::chrono::hours(2)};  ///< for everything, retries included
  std::chrono::seconds stall{30};  ///< without a connection or a byte; then it is tried again
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};  ///< bytes; total 0: not told
};

struct Downloaded {
  std::string url;  ///< after redirects
  std::uint64_t bytes = 0;
  std::string sha256;
};

// Each takes `stop_fd`, that of the Host or of the command runner: readable ends it with ErrorCode::interrupted within a
// second; -1 for never. It has no default, so that no caller forgets it.

/// Fetches into `file`, which appears, durably, only when it is whole and has the right sum.
///
/// Until then the bytes lie in FILE.part. A connection that is cut or stalls is taken up where it ended, as long as it
/// brings bytes; so is the FILE.part of an earlier call where `sha256` is given, because only that can tell whether the
/// halves belong together; it stays where the call is interrupted. Errors: not_found, denied (what the server says), timeout, invalid (too large, another sum,
/// another scheme), busy (FILE.part is in use by another process), interrupted, io.
Result<Downloaded> fetch_file(const Download& what, const std::filesystem::path& file, int stop_fd);

/// The text at an address, in one attempt; more than `what.limit_bytes` is an error.
Result<std::string> fetch_text(const Download& what, int stop_fd);

/// The size in bytes of what lies at an address, which is not fetched. Not told is ErrorCode::invalid.
Result<std::uint64_t> remote_bytes(const Download& what, int stop_fd);

}  // namespace p2pd
