// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "machine/hardware/measurement.hpp"
#include "probes/bench/device/pattern.hpp"

namespace p2pd::bench {

/// One transfer: its pair and test, and the key that makes its data unique.
struct Transfer {
  std::string_view test;  ///< a literal
  int from = 0;
  int to = 0;
  u64 key = 0;
  u64 poison = 0;  ///< content of the destination before
  Slots slots{};
};

/// Draws keys from the run's nonce and records their transfers.
class Keys {
 public:
  explicit Keys(u64 nonce) : nonce_(nonce) {}
  /// New transfer, with a key and a poison of its own.
  Transfer next(std::string_view test, int from, int to, const Slots& slots);
  const std::vector<Transfer>& known() const { return known_; }
  void forget() { known_.clear(); }  ///< no word can be of an earlier transfer any more
  u64 nonce() const { return nonce_; }

 private:
  u64 nonce_;
  u64 drawn_ = 0;
  std::vector<Transfer> known_;
};

/// Fault that no wrong word shows.
Wrong wrong_of(std::string_view test, int from, int to, u64 bytes, WrongKind kind, std::string detail);

/// Explains a wrong word; `at` is its byte offset in the strip. Pure.
Wrong explain(const Transfer& transfer, u64 at, u64 value, const std::vector<Transfer>& known);

/// Explains a transfer: its wrong words, one of them explained. `seen.wrong` must not be 0.
Wrong explain(const Transfer& transfer, const Seen& seen, const std::vector<Transfer>& known);

/// Payload bytes in all slots.
u64 payload_bytes(const Slots& slots);

/// Compares `bytes` of the strip from `begin` on (a multiple of 8) as read by the host; returns the first wrong word.
std::optional<std::pair<u64, u64>> first_wrong(const Transfer& transfer, u64 begin, const std::uint8_t* data,
                                               u64 bytes);

}  // namespace p2pd::bench
