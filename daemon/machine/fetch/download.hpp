// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// File to fetch, and the bounds that hold for any server.
///
/// Schemes are https, http and file, which names a file of the host; at most five redirects are followed, never to
/// another scheme. curl(1) of this machine fetches, also for an image. Proxies are those of the environment
/// (https_proxy, http_proxy, no_proxy). Certificates are those that the system trusts.
struct Download {
  std::string url;
  std::uint64_t limit_bytes = std::uint64_t{2} << 30;
  std::string sha256;                                         ///< expected sum; empty: not known
  std::chrono::milliseconds deadline{std::chrono::hours(2)};  ///< limit for everything, retries included
  std::chrono::seconds stall{30};  ///< time without a connection or a byte; then it is tried again
  std::function<void(std::uint64_t done, std::uint64_t total)> progress =
      {};  ///< bytes, each second; total 0: not known
};

struct Downloaded {
  std::uint64_t bytes = 0;
  std::string sha256;
};

// Each function ends with ErrorCode::interrupted within a second after Host::stop_fd() becomes readable.

/// Fetches into `file` of the host, which appears, durably, only when it is complete and has the right sum.
///
/// Until then the bytes are in FILE.part. A connection that is cut or stalls is resumed where it ended, as long as it
/// brings bytes. The FILE.part of an earlier call is resumed if `sha256` is given, because only that shows that the
/// parts belong together; it stays if the call is interrupted. Errors: not_found, denied (by the server), timeout,
/// invalid (too large, another sum, another scheme), busy (FILE.part is in use by another process), interrupted, io,
/// command (no curl).
Result<Downloaded> fetch_file(Host& host, const Download& what, const std::string& file);

/// Fetches the text at an address, in one attempt; more than `what.limit_bytes` is an error.
Result<std::string> fetch_text(const Host& host, const Download& what);

/// Size in bytes of the file at an address, which is not fetched. ErrorCode::invalid if not known.
Result<std::uint64_t> remote_bytes(const Host& host, const Download& what);

/// Proxy variables of this process, for the environment of a command.
std::map<std::string, std::string> proxy_variables();

}  // namespace p2pd
