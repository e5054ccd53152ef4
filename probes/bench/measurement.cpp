// SPDX-License-Identifier: MIT
#include "probes/bench/measurement.hpp"

#include <algorithm>
#include <array>
#include <tuple>

#include "base/json_members.hpp"

// A missing measurement is null. The library supports std::optional only from 3.12 on.
template <class Value>
struct nlohmann::adl_serializer<std::optional<Value>> {
  static void to_json(json& json, const std::optional<Value>& value) {
    json = value ? nlohmann::json(*value) : nlohmann::json(nullptr);
  }
};

namespace p2pd::bench {
namespace {

constexpr std::array<std::string_view, 12> kWrongKinds = {
    "lost",    "dropped", "unsupported-request", "alias", "misroute", "stale", "mirror", "late", "guard", "garbled",
    "faulted", "hung"};
static_assert(kWrongKinds.size() == static_cast<std::size_t>(WrongKind::hung) + 1);

// Lists of members for both directions of JSON.
template <class Whole>
constexpr auto kMembers = nullptr;
template <>
constexpr auto kMembers<Figure> = std::tuple(std::pair("median", &Figure::median), std::pair("low", &Figure::low),
                                             std::pair("high", &Figure::high),
                                             std::pair("repetitions", &Figure::repetitions));
template <>
constexpr auto kMembers<Gpu> =
    std::tuple(std::pair("index", &Gpu::index), std::pair("uuid", &Gpu::uuid), std::pair("address", &Gpu::address),
               std::pair("name", &Gpu::name), std::pair("group", &Gpu::group), std::pair("sm_major", &Gpu::sm_major),
               std::pair("sm_minor", &Gpu::sm_minor), std::pair("multiprocessors", &Gpu::multiprocessors),
               std::pair("memory_bytes", &Gpu::memory_bytes), std::pair("free_bytes", &Gpu::free_bytes),
               std::pair("arena_bytes", &Gpu::arena_bytes), std::pair("in_use", &Gpu::in_use),
               std::pair("nvlink_gb_s", &Gpu::nvlink_gb_s));
template <>
constexpr auto kMembers<Wrong> = std::tuple(std::pair("test", &Wrong::test), std::pair("from", &Wrong::from),
                                            std::pair("to", &Wrong::to), std::pair("bytes", &Wrong::bytes),
                                            std::pair("offset", &Wrong::offset), std::pair("words", &Wrong::words),
                                            std::pair("kind", &Wrong::kind), std::pair("detail", &Wrong::detail),
                                            std::pair("seen", &Wrong::seen), std::pair("wanted", &Wrong::wanted));
template <>
constexpr auto kMembers<Pair> =
    std::tuple(std::pair("from", &Pair::from), std::pair("to", &Pair::to), std::pair("access", &Pair::access),
               std::pair("native_atomics", &Pair::native_atomics), std::pair("refused", &Pair::refused),
               std::pair("nvlink_gb_s", &Pair::nvlink_gb_s), std::pair("verified_bytes", &Pair::verified_bytes),
               std::pair("not_run", &Pair::not_run), std::pair("copy_gb_s", &Pair::copy_gb_s),
               std::pair("copy_both_gb_s", &Pair::copy_both_gb_s), std::pair("store_gb_s", &Pair::store_gb_s),
               std::pair("load_gb_s", &Pair::load_gb_s), std::pair("staged_gb_s", &Pair::staged_gb_s),
               std::pair("busy_gb_s", &Pair::busy_gb_s), std::pair("chase_ns", &Pair::chase_ns),
               std::pair("ping_pong_ns", &Pair::ping_pong_ns), std::pair("staged_ns", &Pair::staged_ns));
template <>
constexpr auto kMembers<Atomics> = std::tuple(std::pair("from", &Atomics::from), std::pair("to", &Atomics::to),
                                              std::pair("exact", &Atomics::exact),
                                              std::pair("problem", &Atomics::problem));
template <>
constexpr auto kMembers<AllReduce> = std::tuple(std::pair("from", &AllReduce::from), std::pair("to", &AllReduce::to),
                                                std::pair("bytes", &AllReduce::bytes),
                                                std::pair("replays", &AllReduce::replays),
                                                std::pair("time_ns", &AllReduce::time_ns),
                                                std::pair("wrong", &AllReduce::wrong));
template <>
constexpr auto kMembers<Collective> = std::tuple(std::pair("name", &Collective::name),
                                                 std::pair("p2p", &Collective::p2p),
                                                 std::pair("bytes", &Collective::bytes),
                                                 std::pair("bus_gb_s", &Collective::bus_gb_s),
                                                 std::pair("time_ns", &Collective::time_ns),
                                                 std::pair("wrong", &Collective::wrong));
template <>
constexpr auto kMembers<Collectives> =
    std::tuple(std::pair("not_run", &Collectives::not_run), std::pair("version", &Collectives::version),
               std::pair("library", &Collectives::library), std::pair("transports", &Collectives::transports),
               std::pair("pairs", &Collectives::pairs), std::pair("p2p_level", &Collectives::p2p_level),
               std::pair("notes", &Collectives::notes), std::pair("results", &Collectives::results));
template <>
constexpr auto kMembers<Phase> = std::tuple(std::pair("name", &Phase::name), std::pair("start_ms", &Phase::start_ms),
                                            std::pair("length_ms", &Phase::length_ms));
template <>
constexpr auto kMembers<HostMemory> = std::tuple(std::pair("node", &HostMemory::node),
                                                 std::pair("wanted_bytes", &HostMemory::wanted_bytes),
                                                 std::pair("bytes", &HostMemory::bytes),
                                                 std::pair("problem", &HostMemory::problem),
                                                 std::pair("verified_bytes", &HostMemory::verified_bytes),
                                                 std::pair("wrong", &HostMemory::wrong));
template <>
constexpr auto kMembers<SoakGpu> = std::tuple(std::pair("link_gt_s", &SoakGpu::link_gt_s),
                                              std::pair("link_width", &SoakGpu::link_width),
                                              std::pair("temperature_c", &SoakGpu::temperature_c),
                                              std::pair("replays", &SoakGpu::replays),
                                              std::pair("throttle", &SoakGpu::throttle));
template <>
constexpr auto kMembers<SoakSample> = std::tuple(std::pair("seconds", &SoakSample::seconds),
                                                 std::pair("rounds", &SoakSample::rounds),
                                                 std::pair("checked_bytes", &SoakSample::checked_bytes),
                                                 std::pair("wrong", &SoakSample::wrong),
                                                 std::pair("slowest_gb_s", &SoakSample::slowest_gb_s),
                                                 std::pair("aer", &SoakSample::aer),
                                                 std::pair("gpus", &SoakSample::gpus));
template <>
constexpr auto kMembers<Soak> = std::tuple(std::pair("minutes", &Soak::minutes), std::pair("ended", &Soak::ended),
                                           std::pair("samples", &Soak::samples));
template <>
constexpr auto kMembers<Measurement> = std::tuple(
    std::pair("driver", &Measurement::driver), std::pair("mode", &Measurement::mode),
    std::pair("seed", &Measurement::seed), std::pair("fault", &Measurement::fault),
    std::pair("gpus", &Measurement::gpus), std::pair("pairs", &Measurement::pairs),
    std::pair("wrong", &Measurement::wrong), std::pair("atomics", &Measurement::atomics),
    std::pair("all_reduces", &Measurement::all_reduces), std::pair("host_memory", &Measurement::host_memory),
    std::pair("all_to_all_gb_s", &Measurement::all_to_all_gb_s), std::pair("swept_bytes", &Measurement::swept_bytes),
    std::pair("not_run", &Measurement::not_run), std::pair("collectives", &Measurement::collectives),
    std::pair("soak", &Measurement::soak), std::pair("phases", &Measurement::phases),
    std::pair("wall_ms", &Measurement::wall_ms), std::pair("expendable_process", &Measurement::expendable_process),
    std::pair("host_peak_bytes", &Measurement::host_peak_bytes));

/// Members that reports of earlier versions lack: a saved one is still compared with.
template <class Whole>
constexpr std::array<std::string_view, 0> kAdded{};
template <>
constexpr std::array<std::string_view, 3> kAdded<Measurement> = {"all_reduces", "host_memory", "soak"};
template <>
constexpr std::array<std::string_view, 1> kAdded<Gpu> = {"group"};
template <>
constexpr std::array<std::string_view, 3> kAdded<Collectives> = {"library", "pairs", "notes"};

template <class Whole>
concept HasMembers = !std::is_null_pointer_v<std::remove_const_t<decltype(kMembers<Whole>)>>;

/// Calls `visit` with the name of each member and the member, until it returns false.
template <class Whole, class Visit>
bool each_member(Whole& whole, Visit visit) {
  return std::apply([&](const auto&... row) { return (visit(row.first, whole.*row.second) && ...); },
                    kMembers<std::remove_const_t<Whole>>);
}

/// Reads JSON from another process or a file; names the first invalid value.
class Reader {
 public:
  const std::string& where() const { return where_; }

  template <JsonNumber Number>
  bool read(const nlohmann::json& json, Number& number) {
    const auto found = json_number<Number>(json);
    number = found.value_or(0);
    return found.has_value();
  }
  bool read(const nlohmann::json& json, bool& value) {
    value = json == true;
    return json.is_boolean();
  }
  bool read(const nlohmann::json& json, std::string& text) {
    if (json.is_string()) text = json;
    return json.is_string();
  }
  bool read(const nlohmann::json& json, WrongKind& kind) {
    std::string text;
    const auto* const found = read(json, text) ? std::ranges::find(kWrongKinds, text) : kWrongKinds.end();
    kind = static_cast<WrongKind>(found - kWrongKinds.begin());
    return found != kWrongKinds.end();
  }
  template <class Value>
  bool read(const nlohmann::json& json, std::optional<Value>& value) {
    return json.is_null() || read(json, value.emplace());
  }
  template <class Value>
  bool read(const nlohmann::json& json, std::vector<Value>& values) {
    return json.is_array() && std::ranges::all_of(json, [&](const nlohmann::json& item) {
             const std::string number = std::to_string(values.size());
             return at(number, item, values.emplace_back());
           });
  }
  template <class Value>
  bool read(const nlohmann::json& json, std::map<std::string, Value>& values) {
    if (!json.is_object()) return false;
    for (const auto& [key, item] : json.items())
      if (!at(key, item, values[key])) return false;
    return true;
  }
  template <HasMembers Whole>
  bool read(const nlohmann::json& json, Whole& whole) {
    return json.is_object() && each_member(whole, [&](const char* name, auto& member) {
             const auto found = json.find(name);
             if (found == json.end() && std::ranges::count(kAdded<Whole>, name) > 0) return true;
             return at(name, found == json.end() ? nlohmann::json(nlohmann::json::value_t::discarded) : *found, member);
           });
  }

 private:
  template <class Value>
  bool at(const std::string& key, const nlohmann::json& json, Value& value) {
    const bool sound = read(json, value);
    if (!sound) where_.insert(0, "/" + key);
    return sound;
  }

  std::string where_;
};

template <class Whole>
Result<Whole> whole_from(const nlohmann::json& json) {
  Whole whole;
  Reader reader;
  if (reader.read(json, whole)) return whole;
  return fail(ErrorCode::invalid, reader.where().empty()
                                      ? "not an object"
                                      : reader.where() + " is missing, or not a value that it can have");
}

}  // namespace

bool is_measured(const Measurement& run, int from, int to) {
  return std::ranges::any_of(run.pairs, [&](const Pair& pair) { return pair.from == from && pair.to == to; });
}

std::vector<std::vector<int>> groups_of(const Measurement& run) {
  std::vector<std::vector<int>> groups;
  for (const Gpu& gpu : run.gpus) {
    auto known =
        std::ranges::find_if(groups, [&](const auto& group) { return may_be_peers(run, group[0], gpu.index); });
    if (known == groups.end()) known = groups.insert(known, std::vector<int>());
    known->push_back(gpu.index);
  }
  std::ranges::stable_sort(groups, std::greater(), [](const auto& group) { return group.size(); });
  return groups;
}

std::string_view to_string(WrongKind kind) { return kWrongKinds.at(static_cast<std::size_t>(kind)); }

void to_json(nlohmann::json& json, const WrongKind& kind) { json = to_string(kind); }

/// Serializes all of them; a template that is found by the namespace of its argument.
template <HasMembers Whole>
void to_json(nlohmann::json& json, const Whole& whole) {
  json = nlohmann::json::object();
  each_member(whole, [&](const char* name, const auto& member) {
    json[name] = member;
    return true;
  });
}
void to_json(nlohmann::json& json, const Collectives& collectives) { bench::to_json<Collectives>(json, collectives); }
void to_json(nlohmann::json& json, const SoakSample& sample) { bench::to_json<SoakSample>(json, sample); }
void to_json(nlohmann::json& json, const Measurement& measurement) { bench::to_json<Measurement>(json, measurement); }

Result<Collectives> collectives_from(const nlohmann::json& json) { return whole_from<Collectives>(json); }
Result<SoakSample> soak_sample_from(const nlohmann::json& json) { return whole_from<SoakSample>(json); }
Result<Measurement> measurement_from(const nlohmann::json& json) { return whole_from<Measurement>(json); }

}  // namespace p2pd::bench
