// SPDX-License-Identifier: MIT
// Fitness of a machine for each use of P2P, from the tests that the use depends on. P2P may work in part: on some
// boards kernels load wrong data from a peer while copies and stores are right, so that NCCL is exact and vLLM's
// all-reduce is not. Reference: NCCL, src/transport/p2p.cc (stores into the receiver's buffer; loads only with
// NCCL_P2P_READ_ENABLE); vLLM, csrc/custom_all_reduce.cuh (flags are stored, data is loaded, in CUDA graphs); NVSHMEM,
// its requirement of native atomics. Managed and compressible memory are tested only on request.
// Verdict on a measurement: one small function per rule, each remark with its numbers.
// Bytes come first, without tolerance: a test that did not run proves nothing. Speed is judged against the payload
// limit of the path's slowest link, from below, and against the raw link, from above: broken P2P has been seen to
// report twice the rate of the link. Faster staged copies are advice: across sockets that is normal on healthy hosts.
#include "probes/bench/report/judge.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/signatures.hpp"
#include "machine/hardware/gpus.hpp"
#include "probes/bench/measure/asked.hpp"
#include "probes/bench/report/text.hpp"

namespace p2pd::bench {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::string_view kCopyEngine[] = {"copy-push", "copy-pull"};
constexpr std::string_view kCopiesToo[] = {"copy-timed", "copy-both-timed", "ipc-copy"};
constexpr std::string_view kStores[] = {"store"};
constexpr std::string_view kNcclToo[] = {kHostMemory,      "store-timed",  "store-writer-reads",
                                         "handshake-push", "handshake-ll", "vmm",
                                         "ipc-vmm",        "pool",         kCollectives};
constexpr std::string_view kLoads[] = {"store", "load"};
constexpr std::string_view kCustomToo[] = {"store-timed",    "store-writer-reads", "load-plain", "load-timed",
                                           "handshake-push", "handshake-pull",     "ipc-store",  "pool",
                                           "chase",          kGraphReduce};
constexpr std::string_view kAtomics[] = {"atomics"};
constexpr std::string_view kManagedMemory[] = {kManaged};
constexpr std::string_view kCompressibleMemory[] = {kCompressible};

/// Use, and the tests, or rules, that it depends on: those that must have run, and others that must not be wrong. Every
/// use depends on copies, too: every program needs them.
struct UseRow {
  P2pUse use;
  Names essential;
  Names others;
};
constexpr UseRow kUseRows[] = {
    {P2pUse::copies, kCopyEngine, kCopiesToo},       {P2pUse::nccl, kStores, kNcclToo},
    {P2pUse::custom_all_reduce, kLoads, kCustomToo}, {P2pUse::atomics, kAtomics, {}},
    {P2pUse::managed_memory, kManagedMemory, {}},    {P2pUse::compressible_memory, kCompressibleMemory, {}},
};
static_assert(std::size(kUseRows) == std::size(kP2pUses));

const UseRow& row_of_use(P2pUse use) { return kUseRows[static_cast<std::size_t>(use)]; }

bool names(const UseRow& row, std::string_view test) {
  return std::ranges::find(row.essential, test) != row.essential.end() ||
         std::ranges::find(row.others, test) != row.others.end();
}

const UseRow& copies() { return row_of_use(P2pUse::copies); }

/// Reservation about a machine that is fit for NCCL; empty: there is none, or NCCL was not asked for.
std::string nccl_note(const Measurement& run) {
  if (!run.collectives) return {};
  if (run.collectives->results.empty()) return "NCCL itself was not tested: " + run.collectives->not_run;
  const std::size_t without = pairs_without_p2p(*run.collectives);
  if (without == 0) return {};
  return fmt::format("NCCL {} did not use P2P on {} of {}", run.collectives->version, without,
                     count_name(run.collectives->pairs.size(), "pair"));
}

Fitness fitness_of(const UseRow& row, const Measurement& run, const std::vector<Remark>& remarks) {
  const std::string use(to_string(row.use));
  for (const Remark& remark : remarks)
    if (remark.grade == Grade::fail && concerns(remark, row.use)) return {use, Fitness::Kind::unfit, remark.text};
  if (!run.tests.empty()) return {use, Fitness::Kind::not_tested, "only some tests were requested"};
  for (const Pair& pair : run.pairs)
    for (const std::string_view test : essential_tests({row.use}))
      if (may_be_peers(run, pair.from, pair.to) && !has_run(run, pair, test))
        return {use, Fitness::Kind::not_tested, why_not_run(run, pair, test)};
  return {use, Fitness::Kind::fit, row.use == P2pUse::nccl ? nccl_note(run) : ""};
}

/// One ordered pair with the inputs of the rules. A rule adds a remark if it finds a fault.
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

std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

bool in_use(const Case& c) {
  const auto busy = [&](int gpu) { return c.run.gpus[static_cast<std::size_t>(gpu)].in_use; };
  return busy(c.pair.from) || busy(c.pair.to);
}

std::string busy_gpus(const Measurement& run) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < run.gpus.size(); ++i) {
    if (run.gpus[i].in_use) names.push_back(fmt::format("GPU {}", i));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void judge_tested(const Case& c, std::string_view test) {
  const auto is_it = [&](const Wrong& w) { return w.test == test && w.from == c.pair.from && w.to == c.pair.to; };
  if (std::ranges::any_of(c.run.wrong, is_it) || has_run(c.run, c.pair, test))
    return;  // wrong bytes have remarks of their own
  const std::string reason = why_not_run(c.run, c.pair, test);
  c.remark(Grade::fail, "bytes", fmt::format("{} was not tested{}{}", test, reason.empty() ? "" : ": ", reason), test);
}

/// Thresholds for the kind of a path; the most lenient ones for an unknown path.
Shares shares_of(const Path& path, const Thresholds& limits) {
  switch (path.kind) {
    case PathKind::nvlink: return limits.nvlink;
    case PathKind::pcie_switch: return limits.pcie_switch;
    case PathKind::one_socket: return path.intel_root ? limits.one_socket_intel : limits.one_socket;
    case PathKind::cross_socket:
    case PathKind::unknown: return limits.cross_socket;
  }
  return limits.cross_socket;
}

void judge_share(const Case& c) {
  if (!c.pair.copy_gb_s || c.path.payload_gb_s <= 0) return;
  const Shares shares = shares_of(c.path, c.limits);
  const double share = c.pair.copy_gb_s->median / c.path.payload_gb_s;
  if (share >= shares.warn && share >= shares.fail) return;
  const bool fails = !(share >= shares.fail);  // NaN fails
  c.remark(fails ? Grade::fail : Grade::warn, "copy",
           fmt::format("{:.1f} GB/s is {} of {:.1f} GB/s ({}); {} below {}", c.pair.copy_gb_s->median, percent(share),
                       c.path.payload_gb_s, c.path.arithmetic, fails ? "fails" : "warns",
                       percent(fails ? shares.fail : shares.warn)));
}

void judge_ceiling(const Case& c, const char* test, const std::optional<Figure>& rate, int ways) {
  if (!rate || c.path.raw_gb_s <= 0) return;
  const double raw = ways * c.path.raw_gb_s;
  const double payload = ways * c.path.payload_gb_s;
  const char* both = ways == 2 ? " both ways" : "";
  if (rate->median > c.limits.over_raw * raw) {
    c.remark(Grade::fail, test,
             fmt::format(
                 "{:.1f} GB/s is {} of the raw {:.1f} GB/s{} ({}); fails above {}: faster than the link: the data "
                 "did not take it",
                 rate->median, percent(rate->median / raw), raw, both, c.path.arithmetic, percent(c.limits.over_raw)));
  } else if (rate->median > payload) {
    c.remark(Grade::warn, test,
             fmt::format("{:.1f} GB/s is above {:.1f} GB/s{}, all that packets leave for data ({})", rate->median,
                         payload, both, c.path.arithmetic));
  }
}

/// Judges rates against their ceilings. Completions of loads have shorter headers: a rate between payload limit and raw
/// rate is valid.
void judge_ceilings(const Case& c) {
  judge_ceiling(c, "copy", c.pair.copy_gb_s, 1);
  judge_ceiling(c, "store", c.pair.store_gb_s, 1);
  judge_ceiling(c, "busy", c.pair.busy_gb_s, 1);
  judge_ceiling(c, "both", c.pair.copy_both_gb_s, 2);
  if (c.pair.load_gb_s && c.pair.load_gb_s->median > c.limits.over_raw * c.path.raw_gb_s) {
    judge_ceiling(c, "load", c.pair.load_gb_s, 1);
  }
}

void judge_both_ways(const Case& c) {
  if (!c.pair.copy_gb_s || !c.pair.copy_both_gb_s || c.pair.copy_gb_s->median <= 0) return;
  const double ratio = c.pair.copy_both_gb_s->median / c.pair.copy_gb_s->median;
  if (ratio >= c.limits.both_over_one) return;
  c.remark(Grade::warn, "both",
           fmt::format("{:.1f} GB/s both ways is {:.2f} x the {:.1f} GB/s one way; warns below {:.2f}{}",
                       c.pair.copy_both_gb_s->median, ratio, c.pair.copy_gb_s->median, c.limits.both_over_one,
                       c.path.kind == PathKind::nvlink
                           ? ""
                           : ": ACS redirection on a port between them does that, both ways share its uplink then"));
}

/// Adds the remark to the slower direction.
void judge_asymmetry(const Case& c) {
  if (c.back == nullptr || !c.pair.copy_gb_s || !c.back->copy_gb_s) return;
  const double slow = c.pair.copy_gb_s->median;
  const double fast = c.back->copy_gb_s->median;
  if (slow >= fast) return;
  if (c.path.raw_gb_s > 0 && fast > c.limits.over_raw * c.path.raw_gb_s)
    return;  // the other direction is the faulty one
  const double difference = (fast - slow) / fast;
  if (difference <= c.limits.asymmetry_warn && difference <= c.limits.asymmetry_fail) return;
  const bool fails = difference > c.limits.asymmetry_fail;
  c.remark(
      fails ? Grade::fail : Grade::warn, "asymmetry",
      fmt::format("{:.1f} GB/s, and {:.1f} GB/s the other way: {} less; {} above {}", slow, fast, percent(difference),
                  fails ? "fails" : "warns", percent(fails ? c.limits.asymmetry_fail : c.limits.asymmetry_warn)));
}

void judge_chase(const Case& c) {
  if (!c.pair.chase_ns) return;
  const bool unseen = c.path.kind == PathKind::unknown;
  const bool far = unseen || c.path.kind == PathKind::cross_socket;
  const double most = far ? c.limits.chase_cross_ns : c.limits.chase_ns;
  if (c.pair.chase_ns->median <= most) return;
  const char* where = unseen ? " (path not known)" : far ? " (across sockets)" : "";
  c.remark(Grade::fail, "chase",
           fmt::format("a dependent load takes {:.2f} us; fails above {:.2f} us{}", c.pair.chase_ns->median / 1000,
                       most / 1000, where));
}

void judge_staged(const Case& c) {
  if (!c.pair.copy_gb_s || !c.pair.staged_gb_s) return;
  if (c.pair.copy_gb_s->median >= c.pair.staged_gb_s->median) return;
  c.remark(Grade::warn, "staged",
           fmt::format("{:.1f} GB/s is less than the {:.1f} GB/s of a copy through host memory",
                       c.pair.copy_gb_s->median, c.pair.staged_gb_s->median));
}

void Case::remark(Grade grade, const char* test, const std::string& text, std::string_view transfer) const {
  remarks.push_back(
      {grade, pair.from, pair.to, test, pair_name(pair.from, pair.to) + ": " + text, std::string(transfer)});
}

/// False if the pair has no peer access: no other rule applies then.
bool judge_access(const Case& c) {
  if (c.pair.access && c.pair.refused.empty()) return true;
  const std::string text = c.pair.access ? "peer access was refused" : "the driver says there is no peer access";
  const auto known = program_failure(c.pair.refused);
  c.remark(Grade::fail, "access",
           text + (c.pair.refused.empty() ? "" : ": " + c.pair.refused) +
               (known ? fmt::format(": {}. {}", known->cause, known->fix) : ""));
  return false;
}

/// Requires each test that a wanted use depends on; wrong bytes have remarks of their own.
void judge_bytes(const Case& c) {
  if (!c.run.tests.empty()) return;  // see judge_requested
  for (const std::string_view test : essential_tests(c.wanted))
    if (c.run.mode != "quick" || (test != "atomics" && test != kManaged && test != kCompressible))
      judge_tested(c, test);  // a quick run leaves these out
}

void judge_atomics(const Case& c) {
  const auto is_it = [&](const Atomics& a) { return a.from == c.pair.from && a.to == c.pair.to; };
  const auto found = std::ranges::find_if(c.run.atomics, is_it);
  if (found != c.run.atomics.end() && !found->exact)
    c.remark(Grade::fail, "atomics", "atomics failed: " + found->problem);
}

/// Judges rates against the path and each other, and latency; skipped if other processes compute on one of the GPUs.
void judge_speed(const Case& c) {
  if (in_use(c)) return;
  judge_share(c);
  judge_ceilings(c);
  judge_both_ways(c);
  judge_asymmetry(c);
  judge_chase(c);
  judge_staged(c);
}

/// Reason why the copy rate is not judged against the path; empty: it is.
std::string unjudged(const Case& c) {
  if (in_use(c)) return "others compute on " + busy_gpus(c.run);
  if (!c.pair.copy_gb_s) {
    const std::string reason = why_not_run(c.run, c.pair, "copy");
    const bool left_out = c.run.mode == "quick" || !c.run.tests.empty();
    return left_out && reason.empty() ? "" : "no copy was timed" + (reason.empty() ? "" : ": " + reason);
  }
  if (c.path.payload_gb_s <= 0) return "the rate of the path is not known, " + c.path.arithmetic;
  return {};
}

/// Meaning of a wrong word, by WrongKind.
constexpr std::array<std::string_view, 10> kMeanings = {"the old data is still there",
                                                        "read back as zeros",
                                                        "all ones, as a PCIe root port answers for a missing device",
                                                        "data of another offset",
                                                        "data of another pair",
                                                        "data of an earlier transfer",
                                                        "the writer sees its data, the owner does not",
                                                        "correct only some 10 ms later",
                                                        "written beyond the end",
                                                        "unrecognised data"};
static_assert(kMeanings.size() == static_cast<std::size_t>(WrongKind::faulted));

/// Tests of the second process, whose end concerns only the uses that depend on them.
bool runs_apart(std::string_view test) { return test == kManaged || test == kCompressible || test == kGraphReduce; }

/// Managed memory and the all-reduce have a process of their own: a fault there concerns nothing else, unless the
/// kernel log or a later transfer shows that the GPUs are down.
void judge_end(const Wrong& wrong, std::vector<Remark>& remarks) {
  remarks.push_back({Grade::fail, wrong.from, wrong.to, std::string(to_string(wrong.kind)),
                     end_name(wrong) + ": " + wrong.detail, runs_apart(wrong.test) ? wrong.test : ""});
}

void judge_wrong(const Wrong& wrong, std::vector<Remark>& remarks) {
  if (is_end(wrong.kind)) return judge_end(wrong, remarks);
  std::string text = wrong.test + ": ";
  if (wrong.words > 0)
    text += fmt::format("{} in {}, one at byte {}: {} ({}){}", count_name(wrong.words, "wrong word"),
                        size_name(wrong.bytes), wrong.offset, to_string(wrong.kind),
                        kMeanings.at(static_cast<std::size_t>(wrong.kind)), wrong.detail.empty() ? "" : "; ");
  text += wrong.detail;
  if (!wrong.seen.empty()) text += fmt::format("; {} in place of {}", wrong.seen, wrong.wanted);
  remarks.push_back({Grade::fail, wrong.from, wrong.to, "bytes", pair_name(wrong.from, wrong.to) + ": " + text,
                     wrong.kind == WrongKind::guard ? "" : wrong.test});  // other data there may have any owner
}

Path path_of(const Measurement& run, const Pair& pair, const std::vector<std::vector<Path>>& paths) {
  const auto from = static_cast<std::size_t>(pair.from);
  const auto to = static_cast<std::size_t>(pair.to);
  if (const double rate = nvlink_gb_s(run, pair); rate > 0) return nvlink_path(rate);
  if (from < paths.size() && to < paths[from].size()) return paths[from][to];
  Path unknown;
  unknown.arithmetic = "path not determined";
  return unknown;
}

using Pairs = std::map<std::pair<int, int>, const Pair*>;

const Pair* find(const Pairs& pairs, int from, int to) {
  const auto found = pairs.find({from, to});
  return found == pairs.end() ? nullptr : found->second;
}

/// Judges every ordered pair of the GPUs, measured or not.
void judge_pairs(const Measurement& run, const std::vector<std::vector<Path>>& paths, const Thresholds& limits,
                 const Uses& wanted, Judgement& judgement) {
  Pairs pairs;
  for (const Pair& pair : run.pairs) pairs.emplace(std::pair(pair.from, pair.to), &pair);
  std::map<std::string, std::size_t> reasons;
  const int gpus = static_cast<int>(run.gpus.size());
  for (int from = 0; from < gpus; ++from) {
    for (int to = 0; to < gpus; ++to) {
      if (from == to) continue;
      const Pair* pair = find(pairs, from, to);
      if (pair == nullptr && !may_be_peers(run, from, to)) {
        judgement.grades[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] = Grade::not_judged;
        continue;
      }
      if (pair == nullptr) {
        judgement.remarks.push_back({Grade::fail, from, to, "bytes", pair_name(from, to) + ": was not tested"});
        continue;
      }
      const Case c{run, *pair, find(pairs, to, from), path_of(run, *pair, paths), limits, wanted, judgement.remarks};
      if (!judge_access(c)) continue;
      judge_bytes(c);
      judge_atomics(c);
      judge_speed(c);
      if (const std::string reason = unjudged(c); !reason.empty()) {
        ++reasons[reason];
        judgement.grades[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] = Grade::not_judged;
      }
    }
  }
  for (const auto& [reason, count] : reasons) {
    judgement.remarks.push_back({Grade::not_judged, -1, -1, "speed",
                                 fmt::format("speed of {} not judged: {}", count_name(count, "pair"), reason)});
  }
}

/// Judges NCCL's own runs. Without P2P wrong data is a warning: it says nothing about P2P.
void judge_collectives(const Measurement& run, std::vector<Remark>& remarks) {
  if (!run.collectives) return;
  for (const Collective& one : run.collectives->results) {
    if (one.wrong == 0) continue;
    remarks.push_back({one.p2p ? Grade::fail : Grade::warn, -1, -1, kCollectives,
                       fmt::format("NCCL {} of {}, P2P {}: {}", one.name, size_name(one.bytes), one.p2p ? "on" : "off",
                                   count_name(one.wrong, "wrong element"))});
  }
  const std::string failure = nccl_failure(*run.collectives);
  if (!failure.empty() && largest_all_reduce(*run.collectives, true) == nullptr)
    remarks.push_back({Grade::fail, -1, -1, kCollectives, nccl_line(*run.collectives)});
}

/// Judges the counters of a soak, whose wrong bytes have remarks of their own.
void judge_soak(const Measurement& run, std::vector<Remark>& remarks) {
  if (!run.soak) return;
  const SoakState state = soak_state(*run.soak, 0);
  for (const std::string& link : state.links)
    remarks.push_back({Grade::warn, -1, -1, "soak", "a link became slower in the soak: " + link});
  if (state.replays.value_or(0) == 0 && state.aer.value_or(0) == 0) return;
  remarks.push_back({Grade::warn, -1, -1, "soak",
                     fmt::format("the links had errors in the soak, which they repaired: {} replays, {} AER errors",
                                 state.replays.value_or(0), state.aer.value_or(0))});
}

/// Judges host memory, without which NCCL's path through shared memory fails, and in the end every CUDA context.
void judge_host_memory(const Measurement& run, std::vector<Remark>& remarks) {
  for (const HostMemory& memory : run.host_memory) {
    const std::string where = fmt::format("host memory of NUMA node {}", memory.node);
    if (memory.wrong > 0)
      remarks.push_back({Grade::fail, -1, -1, "bytes",
                         fmt::format("{}: {} in {}, stored by one GPU and loaded by another", where,
                                     count_name(memory.wrong, "wrong word"), size_name(memory.bytes)),
                         kHostMemory});
    if (memory.problem.empty()) continue;
    const bool confined = memory.bytes < 4ULL << 30 && memory.wanted_bytes > 4ULL << 30;
    remarks.push_back({Grade::warn, -1, -1, kHostMemory,
                       fmt::format("{}: {} of {} could be had: {}{}", where, size_name(memory.bytes),
                                   size_name(memory.wanted_bytes), memory.problem,
                                   confined ? "; HMM may confine it to 4 GiB, which uvm_disable_hmm=1 of module "
                                              "nvidia_uvm ends"
                                            : "")});
  }
}

/// True if the test ran, on some pair at least.
bool has_run(const Measurement& run, std::string_view test) {
  if (test == "sweep") return !run.swept_bytes.empty();
  if (test == kHostMemory) return !run.host_memory.empty();
  if (test == kCollectives) return run.collectives && !run.collectives->results.empty();
  return std::ranges::any_of(run.pairs, [&](const Pair& pair) { return has_run(run, pair, test); });
}

/// Requires each requested test; wrong bytes have remarks of their own.
void judge_requested(const Measurement& run, std::vector<Remark>& remarks) {
  for (const std::string& test : run.tests) {
    if (has_run(run, test) || std::ranges::find(run.wrong, test, &Wrong::test) != run.wrong.end()) continue;
    std::string why = run.pairs.empty() ? "" : why_not_run(run, run.pairs.front(), test);
    if (test == kCollectives && run.collectives) why = run.collectives->not_run;
    remarks.push_back(
        {Grade::fail, -1, -1, test, fmt::format("{} was not tested{}{}", test, why.empty() ? "" : ": ", why)});
  }
}

/// Judges the run as a whole: faults that invalidate it regardless of its pairs.
void judge_run(const Measurement& run, const std::vector<std::string>& kernel_log, std::vector<Remark>& remarks) {
  for (const std::string& line : kernel_log)
    remarks.push_back({Grade::fail, -1, -1, "kernel-log", "the kernel reported a fault while it ran: " + line});
  if (const auto why = run.not_run.find(kEverything); why != run.not_run.end()) {
    remarks.push_back({Grade::fail, -1, -1, "gpus", why->second});
  } else if (run.gpus.size() < 2) {
    remarks.push_back({Grade::fail, -1, -1, "gpus",
                       run.gpus.empty() ? "no GPU: there is nothing to prove"
                                        : "one GPU (" + run.gpus.front().name + "): there is no pair to prove"});
  }
  const auto groups = groups_of(run);
  if (run.gpus.size() > 1 && groups.front().size() < 2)
    remarks.push_back({Grade::fail, -1, -1, "gpus", "no two of the GPUs can be peers: there is no pair to prove"});
  if (!run.fault.empty()) {
    remarks.push_back({Grade::fail, -1, -1, "fault", "fault \"" + run.fault + "\" was seeded: the run proves nothing"});
  }
}

/// True for a remark on GPUs of two groups, between which nothing has to work.
bool is_unexpected(const Measurement& run, const Remark& remark) {
  const int gpus = static_cast<int>(run.gpus.size());
  const bool of_pair = remark.from >= 0 && remark.to >= 0 && remark.from < gpus && remark.to < gpus;
  return of_pair && !may_be_peers(run, remark.from, remark.to);
}

/// " in 2 groups (2 x RTX 4090, 2 x RTX 3090)"; empty for one group.
std::string groups_text(const Measurement& run) {
  const std::vector<std::vector<int>> groups = groups_of(run);
  if (groups.size() < 2) return {};
  std::vector<std::string> texts;
  for (const std::vector<int>& group : groups) {
    std::map<std::string, int> counts;
    for (const int gpu : group) ++counts[short_name(run.gpus[static_cast<std::size_t>(gpu)].name)];
    std::vector<std::string> names;
    for (const auto& [name, count] : counts) names.push_back(fmt::format("{} x {}", count, name));
    texts.push_back(fmt::format("{}", fmt::join(names, " + ")));
  }
  return fmt::format(" in {} groups ({})", groups.size(), fmt::join(texts, ", "));
}

std::string proof(const Measurement& run) {
  std::uint64_t bytes = 0, pairs = 0;
  std::vector<double> rates;
  for (const Pair& pair : run.pairs) {
    if (!may_be_peers(run, pair.from, pair.to)) continue;
    ++pairs;
    for (const auto& [test, verified] : pair.verified_bytes) bytes += verified;
    if (pair.copy_gb_s) rates.push_back(pair.copy_gb_s->median);
  }
  std::string text = fmt::format("proven{}: {}, {} of correct bytes", groups_text(run),
                                 count_name(pairs, "ordered pair"), size_name(bytes));
  if (rates.empty()) return text;
  return fmt::format("{}, {} GB/s", text, range_name(rates));
}

std::string summary_of(const Judgement& judgement, const Measurement& run) {
  const auto count = [&](Grade grade) {
    return static_cast<std::size_t>(std::ranges::count(judgement.remarks, grade, &Remark::grade));
  };
  if (judgement.fails()) {
    const std::size_t more = count(Grade::fail) - 1;
    return (judgement.limited ? fit_line(judgement) : "not proven") + ": " + judgement.remarks.front().text +
           (more > 0 ? fmt::format(" (and {} more)", more) : "");
  }
  std::string text = run.tests.empty()
                         ? proof(run)
                         : fmt::format("right in what was tested: {}; not a proof", fmt::join(run.tests, ", "));
  if (const std::size_t warnings = count(Grade::warn); warnings > 0) text += "; " + count_name(warnings, "warning");
  if (count(Grade::not_judged) > 0) text += "; speed not judged everywhere";
  if (!run.collectives) return text;
  return text + "; " + (run.collectives->results.empty() ? "NCCL: not tested" : nccl_line(*run.collectives));
}

}  // namespace

std::vector<std::string_view> essential_tests(const Uses& uses) {
  std::vector<std::string_view> tests(copies().essential.begin(), copies().essential.end());
  for (const P2pUse use : uses)
    for (const std::string_view test : row_of_use(use).essential)
      if (std::ranges::find(tests, test) == tests.end()) tests.push_back(test);
  return tests;
}

bool concerns(const Remark& remark, P2pUse use) {
  const std::string& what = remark.transfer.empty() ? remark.test : remark.transfer;
  const bool general = std::ranges::none_of(kUseRows, [&](const UseRow& row) { return names(row, what); });
  return general || names(copies(), what) || names(row_of_use(use), what);
}

std::vector<Fitness> fitness(const Measurement& run, const std::vector<Remark>& remarks) {
  std::vector<Fitness> all;
  for (const UseRow& row : kUseRows) all.push_back(fitness_of(row, run, remarks));
  return all;
}

std::string why_not_run(const Measurement& run, const Pair& pair, std::string_view test) {
  const std::string name(test);
  if (const auto own = pair.not_run.find(name); own != pair.not_run.end()) return own->second;
  if (const auto whole = run.not_run.find(name); whole != run.not_run.end()) return whole->second;
  return {};
}

bool has_run(const Measurement& run, const Pair& pair, std::string_view test) {
  const std::string name(test);
  if (pair.not_run.contains(name) || run.not_run.contains(name)) return false;
  const auto is_it = [&](const auto& one) { return one.from == pair.from && one.to == pair.to; };
  if (test == "atomics") return std::ranges::any_of(run.atomics, is_it);
  if (const NamedTest* row = test_named(test); row != nullptr && row->figure != nullptr)
    return (pair.*row->figure).has_value();
  const auto verified = pair.verified_bytes.find(name);
  return verified != pair.verified_bytes.end() && verified->second > 0;
}

std::string fit_line(const Judgement& judgement) {
  constexpr std::pair<Fitness::Kind, const char*> kParts[] = {{Fitness::Kind::fit, "fit for"},
                                                              {Fitness::Kind::unfit, "not for"},
                                                              {Fitness::Kind::not_tested, "not tested for"}};
  std::vector<std::string> parts;
  for (const auto& [kind, words] : kParts)
    if (const std::vector<std::string> uses = judgement.uses(kind); !uses.empty())
      parts.push_back(fmt::format("{} {}", words, fmt::join(uses, ", ")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

Judgement judge(const Measurement& measurement, const std::vector<std::vector<Path>>& paths,
                const Thresholds& thresholds, const std::vector<std::string>& kernel_log, const Uses& wanted) {
  const std::size_t gpus = measurement.gpus.size();
  Judgement judgement;
  judgement.grades.assign(gpus, std::vector<Grade>(gpus, Grade::pass));
  for (std::size_t i = 0; i < gpus; ++i) judgement.grades[i][i] = Grade::not_judged;
  for (const Wrong& wrong : measurement.wrong) judge_wrong(wrong, judgement.remarks);
  if (!measurement.not_run.contains(kEverything)) judge_pairs(measurement, paths, thresholds, wanted, judgement);
  judge_collectives(measurement, judgement.remarks);
  judge_soak(measurement, judgement.remarks);
  judge_host_memory(measurement, judgement.remarks);
  judge_run(measurement, kernel_log, judgement.remarks);
  judge_requested(measurement, judgement.remarks);
  for (Remark& remark : judgement.remarks)
    if (remark.grade == Grade::fail && is_unexpected(measurement, remark)) remark.grade = Grade::warn;
  judgement.fit = fitness(measurement, judgement.remarks);
  const bool all = measurement.tests.empty();
  for (Remark& remark : judgement.remarks)
    if (all && remark.grade == Grade::fail &&
        std::ranges::none_of(wanted, [&](P2pUse use) { return concerns(remark, use); }))
      remark.grade = Grade::warn;
  std::ranges::stable_sort(judgement.remarks, std::greater(), &Remark::grade);
  for (const Remark& remark : judgement.remarks) {
    const auto from = static_cast<std::size_t>(remark.from);  // -1 and invalid numbers are outside of the matrix
    const auto to = static_cast<std::size_t>(remark.to);
    if (from >= gpus || to >= gpus) continue;
    Grade& grade = judgement.grades[from][to];
    grade = std::max(grade, remark.grade);
  }
  judgement.proven = all && !judgement.fails();
  judgement.limited =
      judgement.fails() && std::ranges::find(judgement.fit, Fitness::Kind::fit, &Fitness::kind) != judgement.fit.end();
  judgement.summary = summary_of(judgement, measurement);
  return judgement;
}

}  // namespace p2pd::bench
