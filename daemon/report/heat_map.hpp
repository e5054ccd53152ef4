// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/json.hpp"

namespace p2pd::ctl {

/// Content of one map of a measurement: a grid [from][to] of numbers.
struct HeatMap {
  std::string title;
  std::string unit;
  const nlohmann::json& cells;
  const nlohmann::json& limits;  ///< limits of the paths, in `unit`; null: none, then the colour shows the value alone
  const nlohmann::json& grades;  ///< "warn" and "fail" are marked; null: not judged
  double most = 0;               ///< value with the strongest colour, if there are no limits
};

/// Figure of HTML: rows send, columns receive. Seven steps of one colour; each cell has its number, its share of the
/// limit, and a mark if it was judged bad, so that no information depends on colour alone.
std::string heat_map(const HeatMap& map);

/// Map of words: result of the byte check of each pair.
std::string word_map(const std::string& title, const nlohmann::json& cells);

/// Legend of the colours.
std::string heat_legend();

}  // namespace p2pd::ctl
