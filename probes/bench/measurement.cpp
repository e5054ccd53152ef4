// SPDX-License-Identifier: MIT
#include "probes/bench/measurement.hpp"

#include <array>

// What was not measured is null. The library knows std::optional from 3.12 on only.
template <class Value>
struct nlohmann::adl_serializer<std::optional<Value>> {
  static void to_json(json& json, const std::optional<Value>& value) {
    json = value ? nlohmann::json(*value) : nlohmann::json(nullptr);
  }
  static void from_json(const json& json, std::optional<Value>& value) {
    value = json.is_null() ? std::nullopt : std::optional<Value>(json.get<Value>());
  }
};

namespace p2pd::bench {
namespace {

constexpr std::array<std::string_view, 10> kWrongKinds = {
    "lost", "dropped", "unsupported-request", "alias", "misroute", "stale", "mirror", "late", "guard", "garbled"};
static_assert(kWrongKinds.size() == static_cast<std::size_t>(WrongKind::garbled) + 1);

/// Calls `visit` with each member and its name; both directions of JSON walk the same list.
template <class Whole, class Visit>
void each_member(Whole& whole, Visit visit) requires std::is_same_v<std::remove_const_t<Whole>, Collectives> {
  visit("not_run", whole.not_run);
  visit("version", whole.version);
  visit("transports", whole.transports);
  visit("p2p_level", whole.p2p_level);
  visit("results", whole.results);
}

template <class Whole, class Visit>
void each_member(Whole& whole, Visit visit) requires std::is_same_v<std::remove_const_t<Whole>, Measurement> {
  visit("driver", whole.driver);
  visit("mode", whole.mode);
  visit("seed", whole.seed);
  visit("fault", whole.fault);
  visit("gpus", whole.gpus);
  visit("pairs", whole.pairs);
  visit("wrong", whole.wrong);
  visit("atomics", whole.atomics);
  visit("all_to_all_gb_s", whole.all_to_all_gb_s);
  visit("swept_bytes", whole.swept_bytes);
  visit("not_run", whole.not_run);
  visit("collectives", whole.collectives);
  visit("phases", whole.phases);
  visit("wall_ms", whole.wall_ms);
  visit("expendable_process", whole.expendable_process);
  visit("host_peak_bytes", whole.host_peak_bytes);
}

template <class Whole>
void write(nlohmann::json& json, const Whole& whole) {
  json = nlohmann::json::object();
  each_member(whole, [&](const char* key, const auto& member) { json[key] = member; });
}

template <class Whole>
void read(const nlohmann::json& json, Whole& whole) {
  each_member(whole, [&](const char* key, auto& member) { json.at(key).get_to(member); });
}

}  // namespace

std::string_view to_string(WrongKind kind) { return kWrongKinds.at(static_cast<std::size_t>(kind)); }

void to_json(nlohmann::json& json, const WrongKind& kind) { json = to_string(kind); }
void from_json(const nlohmann::json& json, WrongKind& kind) {
  static const nlohmann::json kNumbers = [] {
    nlohmann::json numbers = nlohmann::json::object();
    for (std::size_t i = 0; i < kWrongKinds.size(); ++i) numbers[std::string(kWrongKinds[i])] = i;
    return numbers;
  }();
  kind = static_cast<WrongKind>(kNumbers.at(json.get<std::string>()).get<int>());  // at: throws json::exception
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Figure, median, low, high, repetitions)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Gpu, index, uuid, address, name, sm_major, sm_minor, multiprocessors, memory_bytes,
                                   free_bytes, arena_bytes, in_use, nvlink_gb_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Wrong, test, from, to, bytes, offset, words, kind, detail, seen, wanted)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Pair, from, to, access, native_atomics, refused, nvlink_gb_s, verified_bytes,
                                   not_run, copy_gb_s, copy_both_gb_s, store_gb_s, load_gb_s, staged_gb_s, busy_gb_s,
                                   chase_ns, ping_pong_ns, staged_ns)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Atomics, from, to, exact, problem)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Collective, name, p2p, bytes, bus_gb_s, time_ns, wrong)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Phase, name, start_ms, length_ms)

void to_json(nlohmann::json& json, const Collectives& collectives) { write(json, collectives); }
void from_json(const nlohmann::json& json, Collectives& collectives) { read(json, collectives); }
void to_json(nlohmann::json& json, const Measurement& measurement) { write(json, measurement); }
void from_json(const nlohmann::json& json, Measurement& measurement) { read(json, measurement); }

}  // namespace p2pd::bench
