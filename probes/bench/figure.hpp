// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <vector>

#include "probes/bench/measurement.hpp"

namespace p2pd::bench {

/// Median of at least one value, with its spread.
inline Figure figure(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back(), static_cast<int>(values.size())};
}

}  // namespace p2pd::bench
