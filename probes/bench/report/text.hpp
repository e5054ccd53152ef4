// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "probes/bench/measurement.hpp"
#include "probes/bench/report/judge.hpp"

namespace p2pd::bench {

/// `text` as one line of printable ASCII: names come from a driver, log lines from anywhere, and a terminal obeys them.
std::string plain(std::string_view text);

/// At most `most` of `lines`; where some had to go, the last one counts them.
std::vector<std::string> limited(std::vector<std::string> lines, std::size_t most);

/// "GPU 0 -> GPU 1"
std::string pair_name(int from, int to);
/// "512 MiB", "4 B", "1.5 GiB"
std::string size_name(std::uint64_t bytes);
/// "1 pair", "12 pairs"
std::string count_name(std::size_t count, std::string_view noun);

/// The median, where there is one that a ratio can be made of.
std::optional<double> median_of(const std::optional<Figure>& figure);

/// The grade of an ordered pair; not_judged where the judgement has none.
Grade grade_of(const Judgement& judgement, int from, int to);
/// Orders grades: the higher, the worse; not judged is worse than a pass.
int severity(Grade grade);

/// A member of the machine's facts as text: lists joined by ", "; empty when absent, null or empty.
std::string fact(const nlohmann::json& facts, const char* key);
/// The facts of GPU `address`, an empty object when there are none.
nlohmann::json gpu_facts(const nlohmann::json& machine, const std::string& address);

/// What did not run and why, "sweep not run: ..."; equal reasons of several pairs in one line.
std::vector<std::string> not_run_lines(const Measurement& measurement);

/// What a run tells about atomics between its GPUs.
struct AtomicsState {
  std::size_t pairs = 0;
  std::size_t native = 0;  ///< ordered pairs whose atomics the driver vouches for
  std::size_t exact = 0;   ///< ordered pairs whose sums and tickets came out right
  std::string problem;     ///< the first pair where they did not, and how
};
AtomicsState atomics_state(const Measurement& measurement);
/// One line on atomics, with what "NS" means; empty where there was nothing to ask.
std::string atomics_line(const Measurement& measurement);

/// "P2P/CUMEM x 24, SHM/direct x 8"
std::string transports_name(const Collectives& collectives);

}  // namespace p2pd::bench
