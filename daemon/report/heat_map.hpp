// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/json.hpp"

namespace p2pd::ctl {

/// What one map of a measurement shows: a grid [from][to] of numbers.
struct HeatMap {
  std::string title;
  std::string unit;
  const nlohmann::json& cells;
  const nlohmann::json& limits;  ///< of the paths, in `unit`; null: none, then the colour tells the value alone
  const nlohmann::json& grades;  ///< "warn" and "fail" are marked; null: it is not judged
  double most = 0;               ///< the value with the strongest colour, where there are no limits
};

/// A figure of HTML: rows send, columns receive. Seven steps of one colour; each cell has its number, its share of the
/// limit, and a mark where it was judged bad, so that nothing is told by colour alone.
std::string heat_map(const HeatMap& map);

/// The same for words: whether the bytes of each pair were right.
std::string word_map(const std::string& title, const nlohmann::json& cells);

/// What the colours mean.
std::string heat_legend();

}  // namespace p2pd::ctl
