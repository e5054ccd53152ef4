// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "probes/bench/report/judge.hpp"

namespace p2pd::bench {

/// One ordered pair with all that a rule looks at. A rule adds a remark where something is to be said.
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

/// False where the pair has no peer access: no other rule has anything to look at then.
bool judge_access(const Case& c);
/// Each test that a wanted use rests on must have run; wrong bytes have remarks of their own.
void judge_bytes(const Case& c);
void judge_atomics(const Case& c);
/// Rates against the path, against each other, and latency; nothing where others compute on one of the GPUs.
void judge_speed(const Case& c);
/// Why the copy rate is not judged against the path; empty when it is.
std::string unjudged(const Case& c);

}  // namespace p2pd::bench
