// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "base/descriptor.hpp"
#include "base/json.hpp"
#include "base/result.hpp"

namespace p2pd::bench {

/// Message between two processes over a SOCK_SEQPACKET socket: JSON, and file descriptors.
struct Message {
  nlohmann::json body;
  std::vector<Descriptor> descriptors;  ///< at most 16
};

/// Never waits: if the reader is blocked, returns an Error.
Result<void> send_message(int socket, const nlohmann::json& body, const std::vector<int>& descriptors = {});

/// Waits up to `patience`, without it endlessly. not_found: the other end is closed.
Result<Message> receive_message(int socket, std::optional<std::chrono::milliseconds> patience);

}  // namespace p2pd::bench
