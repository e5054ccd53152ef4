// SPDX-License-Identifier: MIT
#include "report/figures.hpp"

#include <algorithm>
#include <map>

#include "report/fields.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

/// Figure of a pair, and the figure that replaces it without P2P.
struct Kind {
  const char* id;
  const char* title;
  const char* unit;
  const char* figure;
  const char* staged;  ///< null: none; not compared with an earlier report
  double divisor;      ///< from the measured value to `unit`
  double limits;       ///< multiple of the limit of the path; 0: no limit
};
constexpr Kind kKinds[] = {
    {"copy", "Copy, one way", "GB/s", "copy_gb_s", "staged_gb_s", 1, 1},
    {"latency", "Latency of a load", "µs", "chase_ns", "staged_ns", 1000, 0},
    {"both", "Copies both ways at once, sum", "GB/s", "copy_both_gb_s", nullptr, 1, 2},
    {"busy", "Copy while every pair copies", "GB/s", "busy_gb_s", nullptr, 1, 1},
    {"store", "Stores by a kernel", "GB/s", "store_gb_s", nullptr, 1, 1},
    {"load", "Loads by a kernel", "GB/s", "load_gb_s", nullptr, 1, 1},
    {"ping_pong", "Ping-pong, there and back", "µs", "ping_pong_ns", nullptr, 1000, 0},
    {"staged", "Copy through host memory, without P2P", "GB/s", "staged_gb_s", nullptr, 1, 0},
};
constexpr std::size_t kMostGpus = 64;  // limit also for a forged file

std::size_t size_of(const json& bench) { return std::min(list_of(bench, "gpus").size(), kMostGpus); }

json grid(std::size_t size) { return json(size, json(size, nullptr)); }

/// Position of each GPU of a report in the grid, by its number in the report.
using Places = std::map<std::size_t, std::size_t>;

/// Number of a GPU; any other value counts as absent.
std::size_t index_of(const json& object, const char* key) {
  const double number = number_of(object, key).value_or(-1);
  return number >= 0 && number < kMostGpus ? static_cast<std::size_t>(number) : kMostGpus;
}

Places own_places(const json& bench) {
  Places places;
  for (std::size_t i = 0; i < size_of(bench); ++i) places[i] = i;
  return places;
}

/// Positions of an earlier report's GPUs by UUID: a driver may renumber the GPUs.
Places places_in(const json& bench, const json& earlier) {
  std::map<std::string, std::size_t> by_uuid;
  for (std::size_t i = 0; i < size_of(bench); ++i) by_uuid[text_of(list_of(bench, "gpus")[i], "uuid")] = i;
  Places places;
  for (std::size_t i = 0; i < size_of(earlier); ++i) {
    const auto found = by_uuid.find(text_of(list_of(earlier, "gpus")[i], "uuid"));
    if (found != by_uuid.end()) places[i] = found->second;
  }
  return places;
}

/// Calls `put` with the position of every ordered pair, and the pair.
template <class Put>
void each_pair(const json& bench, const Places& places, Put put) {
  for (const json& pair : list_of(bench, "pairs")) {
    const auto from = places.find(index_of(pair, "from"));
    const auto to = places.find(index_of(pair, "to"));
    if (from != places.end() && to != places.end() && from != to) put(from->second, to->second, pair);
  }
}

std::optional<double> median_of(const json& pair, const char* figure) {
  return number_of(field_of(pair, figure), "median");
}

struct Grid {
  json cells;
  bool any = false;
  bool staged = false;  ///< some values are of copies through host memory
};

Grid figures_of(const json& bench, const Places& places, std::size_t size, const Kind& kind, bool stand_in) {
  Grid out{grid(size)};
  each_pair(bench, places, [&](std::size_t from, std::size_t to, const json& pair) {
    std::optional<double> value = median_of(pair, kind.figure);
    const bool staged = !value && stand_in && kind.staged != nullptr;
    if (staged) value = median_of(pair, kind.staged);
    if (!value) return;
    out.cells[from][to] = *value / kind.divisor;
    out.any = true;
    out.staged |= staged;
  });
  return out;
}

/// True for GPUs of two groups of peers, between which nothing is expected.
bool is_unexpected(const json& bench, std::size_t from, std::size_t to) {
  const json& gpus = list_of(bench, "gpus");
  return text_of(gpus[from], "group") != text_of(gpus[to], "group");
}

json limits_of(const json& bench, double times) {
  json cells = grid(size_of(bench));
  bool any = false;
  for (std::size_t from = 0; from < cells.size(); ++from) {
    for (std::size_t to = 0; to < cells.size(); ++to) {
      const double limit = number_of(cell_of(list_of(bench, "paths"), from, to), "payload_gb_s").value_or(0);
      if (from == to || limit <= 0 || is_unexpected(bench, from, to)) continue;
      cells[from][to] = limit * times;
      any = true;
    }
  }
  return any && times > 0 ? cells : json();
}

}  // namespace

json matrices_of(const json& bench, const json& earlier) {
  json matrices = json::array();
  for (const Kind& kind : kKinds) {
    const Grid after = figures_of(bench, own_places(bench), size_of(bench), kind, false);
    const Grid before =
        kind.staged == nullptr ? Grid() : figures_of(earlier, places_in(bench, earlier), size_of(bench), kind, true);
    if (!after.any && !before.any) continue;
    matrices.push_back({{"id", kind.id},
                        {"title", kind.title},
                        {"unit", kind.unit},
                        {"after", after.any ? after.cells : json()},
                        {"before", before.any ? before.cells : json()},
                        {"before_by", before.any && before.staged ? "through host memory" : ""},
                        {"limits", limits_of(bench, kind.limits)}});
  }
  return matrices;
}

json bytes_of(const json& bench) {
  json cells = grid(size_of(bench));
  for (std::size_t from = 0; from < cells.size(); ++from)
    for (std::size_t to = 0; to < cells.size(); ++to)
      if (is_unexpected(bench, from, to)) cells[from][to] = kNotExpected;
  each_pair(bench, own_places(bench), [&](std::size_t from, std::size_t to, const json& pair) {
    const json& verified = field_of(pair, "verified_bytes");
    cells[from][to] = !flag_of(pair, "access")                    ? "no peer access"
                      : !text_of(pair, "refused").empty()         ? "refused"
                      : !verified.is_object() || verified.empty() ? "not tested"
                                                                  : "ok";
  });
  const Places places = own_places(bench);
  each_pair({{"pairs", list_of(bench, "wrong")}}, places,
            [&](std::size_t from, std::size_t to, const json& wrong) { cells[from][to] = text_of(wrong, "kind"); });
  return cells;
}

bool is_bench_report(const json& report) {
  return text_of(report, "schema") == "p2pd.bench/1" && !list_of(report, "gpus").empty();
}

}  // namespace p2pd::ctl
