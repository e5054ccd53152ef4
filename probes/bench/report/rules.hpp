// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "probes/bench/report/judge.hpp"

namespace p2pd::bench {

/// One ordered pair with the inputs of the rules. A rule adds a remark if it finds a fault.
struct Case {
  const Measurement& run;
  const Pair& pair;
  const Pair* back;  ///< the other direction; may be null
  Path path;
  const Thresholds& limits;
  const Uses& wanted;
  std::vector<Remark>& remarks;

  void remark(Grade grade, const char* test, const std::string& text, std::string_view transfer = {}) const;
};

/// False if the pair has no peer access: no other rule applies then.
bool judge_access(const Case& c);
/// Requires each test that a wanted use depends on; wrong bytes have remarks of their own.
void judge_bytes(const Case& c);
void judge_atomics(const Case& c);
/// Judges rates against the path and each other, and latency; skipped if other processes compute on one of the GPUs.
void judge_speed(const Case& c);
/// Reason why the copy rate is not judged against the path; empty: it is.
std::string unjudged(const Case& c);

}  // namespace p2pd::bench
