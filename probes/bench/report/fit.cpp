// SPDX-License-Identifier: MIT
// Fitness of a machine for each use of P2P, from the tests that the use depends on. P2P may work in part: on some
// boards kernels load wrong data from a peer while copies and stores are right, so that NCCL is exact and vLLM's
// all-reduce is not. Reference: NCCL, src/transport/p2p.cc (stores into the receiver's buffer; loads only with
// NCCL_P2P_READ_ENABLE); vLLM, csrc/custom_all_reduce.cuh (flags are stored, data is loaded, in CUDA graphs); NVSHMEM,
// its requirement of native atomics. Managed and compressible memory are tested only on request.
#include "probes/bench/report/fit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "probes/bench/report/judge.hpp"
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

constexpr std::string_view kFitnessNames[] = {"fit", "unfit", "not_tested"};

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
  for (const Remark& remark : remarks)
    if (remark.grade == Grade::fail && concerns(remark, row.use)) return {row.use, Fitness::Kind::unfit, remark.text};
  for (const Pair& pair : run.pairs)
    for (const std::string_view test : essential_tests({row.use}))
      if (may_be_peers(run, pair.from, pair.to) && !has_run(run, pair, test))
        return {row.use, Fitness::Kind::not_tested, why_not_run(run, pair, test)};
  return {row.use, Fitness::Kind::fit, row.use == P2pUse::nccl ? nccl_note(run) : ""};
}

}  // namespace

std::string_view to_string(Fitness::Kind kind) { return kFitnessNames[static_cast<std::size_t>(kind)]; }

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
  const auto verified = pair.verified_bytes.find(name);
  return verified != pair.verified_bytes.end() && verified->second > 0;
}

std::string fit_line(const std::vector<Fitness>& all) {
  const auto names = [&](Fitness::Kind kind) {
    std::vector<std::string_view> found;
    for (const Fitness& one : all)
      if (one.kind == kind) found.push_back(to_string(one.use));
    return fmt::format("{}", fmt::join(found, ", "));
  };
  std::vector<std::string> parts;
  if (const std::string fit = names(Fitness::Kind::fit); !fit.empty()) parts.push_back("fit for " + fit);
  if (const std::string unfit = names(Fitness::Kind::unfit); !unfit.empty()) parts.push_back("not for " + unfit);
  if (const std::string open = names(Fitness::Kind::not_tested); !open.empty())
    parts.push_back("not tested for " + open);
  return fmt::format("{}", fmt::join(parts, "; "));
}

nlohmann::json to_json(const Fitness& fitness) {
  return {{"use", to_string(fitness.use)}, {"fit", to_string(fitness.kind)}, {"why", fitness.why}};
}

}  // namespace p2pd::bench
