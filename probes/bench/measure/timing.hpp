// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "probes/bench/figure.hpp"
#include "probes/bench/measure/worker.hpp"

namespace p2pd::bench {

inline constexpr int kRepetitions = 3;

/// Events of one GPU, made on first use.
class Events {
 public:
  explicit Events(const Driver& driver) : driver_(driver) {}
  ~Events();
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  /// Records a new event on `stream`, whose GPU must be in use().
  Result<cuda::CUevent> record(cuda::CUstream stream);
  Result<double> milliseconds(cuda::CUevent from, cuda::CUevent to);

 private:
  const Driver& driver_;
  std::vector<cuda::CUevent> all_;
};

/// Repeated operation on one stream: `samples` times `inner` operations between two events each, after warm-ups.
struct Series {
  const OpenGpu* gpu = nullptr;
  cuda::CUstream stream = nullptr;
  int warm = 1;
  int samples = kRepetitions;
  int inner = 1;
  double amount = 0;                     ///< bytes of one operation, for rates
  std::function<Result<void>()> once{};  ///< enqueues one operation
  std::vector<cuda::CUevent> marks{};
};

/// Times series, each on its own stream.
class Stopwatch {
 public:
  explicit Stopwatch(const Bench& bench) : events_(bench.driver) {}

  Result<void> enqueue(Series& series);
  /// Times of one operation in nanoseconds, by sample; after everything has finished.
  Result<std::vector<double>> times_ns(const Series& series);
  /// Rate in GB/s: bytes per nanosecond.
  Result<Figure> rate(const Series& series);

 private:
  Events events_;
};

/// Data for a timed transfer, checked afterwards by the GPU that received it.
class Timed {
 public:
  Timed(Bench& bench, std::string_view test) : bench_(bench), test_(test) {}

  Result<void> prepare(int from, int to, u64 bytes);
  Result<void> verify();

 private:
  Bench& bench_;
  std::string_view test_;
  std::vector<Transfer> all_;
};

/// Length that takes a few milliseconds at this rate; `most` if that is too short over NVLink.
u64 adaptive_bytes(double gb_s, u64 most);

/// Largest size of one transfer between the two.
u64 most_bytes(const Bench& bench, int from, int to);

/// Measures every ordered pair at once: the effect of shared hops.
Result<void> everything_at_once(Bench& bench);

}  // namespace p2pd::bench
