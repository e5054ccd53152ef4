// SPDX-License-Identifier: MIT
#include "machine/hardware/measurement.hpp"

#include <algorithm>
#include <cmath>

#include "base/json_struct.hpp"

namespace p2pd {

using namespace bench;

template <>
constexpr auto kLast<WrongKind> = WrongKind::hung;
template <>
constexpr auto kLast<Fitness::Kind> = Fitness::Kind::unfit;
template <>
constexpr auto kLast<Grade> = Grade::fail;
template <>
constexpr auto kLast<PathKind> = PathKind::unknown;

template <>
constexpr auto kFields<Figure> = std::tuple(field("median", &Figure::median), field("low", &Figure::low),
                                            field("high", &Figure::high), field("repetitions", &Figure::repetitions));
template <>
constexpr auto kFields<Gpu> = std::tuple(field("index", &Gpu::index), field("uuid", &Gpu::uuid),
                                         field("address", &Gpu::address), field("name", &Gpu::name),
                                         added_field("group", &Gpu::group), field("sm_major", &Gpu::sm_major),
                                         field("sm_minor", &Gpu::sm_minor),
                                         field("multiprocessors", &Gpu::multiprocessors),
                                         field("memory_bytes", &Gpu::memory_bytes),
                                         field("free_bytes", &Gpu::free_bytes), field("arena_bytes", &Gpu::arena_bytes),
                                         field("in_use", &Gpu::in_use), field("nvlink_gb_s", &Gpu::nvlink_gb_s));
template <>
constexpr auto kFields<Wrong> = std::tuple(field("test", &Wrong::test), field("from", &Wrong::from),
                                           field("to", &Wrong::to), field("bytes", &Wrong::bytes),
                                           field("offset", &Wrong::offset), field("words", &Wrong::words),
                                           field("kind", &Wrong::kind), field("detail", &Wrong::detail),
                                           field("seen", &Wrong::seen), field("wanted", &Wrong::wanted));
template <>
constexpr auto kFields<Pair> =
    std::tuple(field("from", &Pair::from), field("to", &Pair::to), field("access", &Pair::access),
               field("native_atomics", &Pair::native_atomics), field("refused", &Pair::refused),
               field("nvlink_gb_s", &Pair::nvlink_gb_s), field("verified_bytes", &Pair::verified_bytes),
               field("not_run", &Pair::not_run), field("copy_gb_s", &Pair::copy_gb_s),
               field("copy_both_gb_s", &Pair::copy_both_gb_s), field("store_gb_s", &Pair::store_gb_s),
               field("load_gb_s", &Pair::load_gb_s), field("staged_gb_s", &Pair::staged_gb_s),
               field("busy_gb_s", &Pair::busy_gb_s), field("chase_ns", &Pair::chase_ns),
               field("ping_pong_ns", &Pair::ping_pong_ns), field("staged_ns", &Pair::staged_ns));
template <>
constexpr auto kFields<Atomics> = std::tuple(field("from", &Atomics::from), field("to", &Atomics::to),
                                             field("exact", &Atomics::exact), field("problem", &Atomics::problem));
template <>
constexpr auto kFields<AllReduce> = std::tuple(field("from", &AllReduce::from), field("to", &AllReduce::to),
                                               field("bytes", &AllReduce::bytes), field("replays", &AllReduce::replays),
                                               field("time_ns", &AllReduce::time_ns),
                                               field("wrong", &AllReduce::wrong));
template <>
constexpr auto kFields<Collective> = std::tuple(field("name", &Collective::name), field("p2p", &Collective::p2p),
                                                field("bytes", &Collective::bytes),
                                                field("bus_gb_s", &Collective::bus_gb_s),
                                                field("time_ns", &Collective::time_ns),
                                                field("wrong", &Collective::wrong));
template <>
constexpr auto kFields<Collectives> =
    std::tuple(field("not_run", &Collectives::not_run), field("version", &Collectives::version),
               added_field("library", &Collectives::library), field("transports", &Collectives::transports),
               added_field("pairs", &Collectives::pairs), field("p2p_level", &Collectives::p2p_level),
               added_field("notes", &Collectives::notes), added_field("summary", &Collectives::summary),
               field("results", &Collectives::results));
template <>
constexpr auto kFields<Phase> = std::tuple(field("name", &Phase::name), field("start_ms", &Phase::start_ms),
                                           field("length_ms", &Phase::length_ms));
template <>
constexpr auto kFields<HostMemory> = std::tuple(field("node", &HostMemory::node),
                                                field("wanted_bytes", &HostMemory::wanted_bytes),
                                                field("bytes", &HostMemory::bytes),
                                                field("problem", &HostMemory::problem),
                                                field("verified_bytes", &HostMemory::verified_bytes),
                                                field("wrong", &HostMemory::wrong));
template <>
constexpr auto kFields<SoakGpu> = std::tuple(field("link_gt_s", &SoakGpu::link_gt_s),
                                             field("link_width", &SoakGpu::link_width),
                                             field("temperature_c", &SoakGpu::temperature_c),
                                             field("replays", &SoakGpu::replays),
                                             field("throttle", &SoakGpu::throttle));
template <>
constexpr auto kFields<SoakSample> = std::tuple(field("seconds", &SoakSample::seconds),
                                                field("rounds", &SoakSample::rounds),
                                                field("checked_bytes", &SoakSample::checked_bytes),
                                                field("wrong", &SoakSample::wrong),
                                                field("slowest_gb_s", &SoakSample::slowest_gb_s),
                                                field("aer", &SoakSample::aer), field("gpus", &SoakSample::gpus));
template <>
constexpr auto kFields<Soak> = std::tuple(field("minutes", &Soak::minutes), field("ended", &Soak::ended),
                                          field("samples", &Soak::samples));
template <>
constexpr auto kFields<Measurement> = std::tuple(
    field("driver", &Measurement::driver), field("mode", &Measurement::mode), field("seed", &Measurement::seed),
    field("fault", &Measurement::fault), added_field("tests", &Measurement::tests), field("gpus", &Measurement::gpus),
    field("pairs", &Measurement::pairs), field("wrong", &Measurement::wrong), field("atomics", &Measurement::atomics),
    added_field("all_reduces", &Measurement::all_reduces), added_field("host_memory", &Measurement::host_memory),
    field("all_to_all_gb_s", &Measurement::all_to_all_gb_s), field("swept_bytes", &Measurement::swept_bytes),
    field("not_run", &Measurement::not_run), field("collectives", &Measurement::collectives),
    added_field("soak", &Measurement::soak), field("phases", &Measurement::phases),
    field("wall_ms", &Measurement::wall_ms), field("expendable_process", &Measurement::expendable_process),
    field("host_peak_bytes", &Measurement::host_peak_bytes));

template <>
constexpr auto kFields<Link> = std::tuple(field("address", &Link::address), field("generation", &Link::generation),
                                          field("width", &Link::width),
                                          field("generation_most", &Link::generation_most),
                                          field("max_payload_bytes", &Link::max_payload_bytes));
template <>
constexpr auto kFields<Path> = std::tuple(field("kind", &Path::kind), field("intel_root", &Path::intel_root),
                                          field("links", &Path::links), field("shared", &Path::shared),
                                          field("raw_gb_s", &Path::raw_gb_s),
                                          field("payload_gb_s", &Path::payload_gb_s),
                                          field("arithmetic", &Path::arithmetic));
template <>
constexpr auto kFields<Fitness> = std::tuple(field("use", &Fitness::use), field("fit", &Fitness::kind),
                                             field("why", &Fitness::why));
template <>
constexpr auto kFields<Remark> = std::tuple(field("grade", &Remark::grade), field("from", &Remark::from),
                                            field("to", &Remark::to), field("test", &Remark::test),
                                            field("transfer", &Remark::transfer), field("text", &Remark::text));
template <>
constexpr auto kFields<Judgement> = std::tuple(field("proven", &Judgement::proven),
                                               field("limited", &Judgement::limited), field("fit", &Judgement::fit),
                                               field("summary", &Judgement::summary),
                                               field("grades", &Judgement::grades),
                                               field("remarks", &Judgement::remarks));
template <>
constexpr auto kFields<BenchReport> = std::tuple(field("paths", &BenchReport::paths),
                                                 field("judgement", &BenchReport::judgement),
                                                 field("kernel_log", &BenchReport::kernel_log),
                                                 field("gain", &BenchReport::gain),
                                                 field("side_by_side", &BenchReport::side_by_side),
                                                 field("advice", &BenchReport::advice));

namespace bench {

double median(std::vector<double> values) { return figure(std::move(values)).median; }

Figure figure(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back(), static_cast<int>(values.size())};
}

std::optional<double> median_of(const std::optional<Figure>& figure) {
  if (!figure || !std::isfinite(figure->median) || figure->median <= 0) return std::nullopt;
  return figure->median;
}

const Quantity& quantity(std::string_view id) { return *std::ranges::find(kQuantities, id, &Quantity::id); }

bool is_measured(const Measurement& run, int from, int to) {
  return std::ranges::any_of(run.pairs, [&](const Pair& pair) { return pair.from == from && pair.to == to; });
}

std::vector<Pair> pairs_as_in(const Measurement& run, const Measurement& earlier) {
  std::map<int, int> numbers;
  for (const Gpu& gpu : earlier.gpus)
    if (const auto here = std::ranges::find(run.gpus, gpu.uuid, &Gpu::uuid); here != run.gpus.end())
      numbers[gpu.index] = here->index;
  std::vector<Pair> pairs;
  for (Pair pair : earlier.pairs) {
    const auto from = numbers.find(pair.from), to = numbers.find(pair.to);
    if (from == numbers.end() || to == numbers.end()) continue;
    pair.from = from->second;
    pair.to = to->second;
    pairs.push_back(std::move(pair));
  }
  return pairs;
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

std::vector<std::string> Judgement::uses(Fitness::Kind kind) const {
  std::vector<std::string> uses;
  for (const Fitness& one : fit)
    if (one.kind == kind) uses.push_back(one.use);
  return uses;
}

std::string_view to_string(WrongKind kind) {
  constexpr std::string_view kNames[] = {
      "lost",    "dropped", "unsupported-request", "alias", "misroute", "stale", "mirror", "late", "guard", "garbled",
      "faulted", "hung"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(WrongKind::hung) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}
std::string_view to_string(Fitness::Kind kind) {
  constexpr std::string_view kNames[] = {"not_tested", "fit", "unfit"};
  return kNames[static_cast<std::size_t>(kind)];
}
std::string_view to_string(Grade grade) {
  constexpr std::string_view kNames[] = {"pass", "not_judged", "warn", "fail"};
  return kNames[static_cast<std::size_t>(grade)];
}

nlohmann::json json_of(const Measurement& measurement) { return JsonWriter::json(measurement); }
nlohmann::json json_of(const Collectives& collectives) { return JsonWriter::json(collectives); }
nlohmann::json json_of(const SoakSample& sample) { return JsonWriter::json(sample); }
nlohmann::json json_of(const BenchReport& report) {
  nlohmann::json document = JsonWriter::json(report);
  document.update(JsonWriter::json(report.measurement));
  return document;
}

Result<Measurement> measurement_from(const nlohmann::json& json) { return struct_from<Measurement>(json); }
Result<SoakSample> soak_sample_from(const nlohmann::json& json) { return struct_from<SoakSample>(json); }
Result<Collectives> collectives_from(const nlohmann::json& json) { return struct_from<Collectives>(json); }

BenchReport bench_report_from(const nlohmann::json& json) {
  constexpr std::size_t kMostGpus = 64;
  BenchReport report;
  Measurement& run = report.measurement;
  JsonReader reader(false);
  reader.read(json, run);
  reader.read(json, report);
  if (run.gpus.size() > kMostGpus) run.gpus.resize(kMostGpus);
  for (std::size_t i = 0; i < run.gpus.size(); ++i) run.gpus[i].index = static_cast<int>(i);
  const auto is_gpu = [&](int number) { return number >= 0 && static_cast<std::size_t>(number) < run.gpus.size(); };
  const auto is_none = [&](const auto& pair) { return !is_gpu(pair.from) || !is_gpu(pair.to) || pair.from == pair.to; };
  std::erase_if(run.pairs, is_none);
  for (Wrong& wrong : run.wrong)
    if (is_none(wrong)) wrong.from = wrong.to = -1;
  return report;
}

}  // namespace bench
}  // namespace p2pd
