// SPDX-License-Identifier: MIT
#include "tests/sim/liar/lies.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

namespace p2pd::liar {

namespace {

struct LieRow {
  Lie lie;
  const char* name;
  const char* option;  ///< of p2p-bench, without which it cannot see the lie, or with which it does so soonest
  const char* text;
};

/// The lies. A copy is one of A's memory to B's, a store one by a kernel of A to B's memory, a load one by a kernel of
/// B from A's memory: A is GPU P2PD_LIE_FROM, B is GPU P2PD_LIE_TO.
constexpr LieRow kLies[] = {
    {Lie::none, "none", "--full", "everything is forwarded"},
    {Lie::corrupt_byte, "corrupt-byte", "--quick", "each copy has one wrong byte, every time at another offset"},
    {Lie::sometimes_corrupt, "sometimes-corrupt", "--quick", "each sixteenth copy has one wrong byte"},
    {Lie::drop_copies, "drop-copies", "--quick", "copies return success and do nothing"},
    {Lie::partial_copy, "partial-copy", "--quick", "the last 64 KiB of longer copies are missing"},
    {Lie::swapped_halves, "swapped-halves", "--quick",
     "the halves of copies of 8 KiB and more land in each other's place"},
    {Lie::elsewhere, "elsewhere", "--quick", "copies land in another buffer of B"},
    {Lie::overrun, "overrun", "--quick", "copies write 64 bytes more than they were asked to"},
    {Lie::stale, "stale", "--quick", "a copy of up to 1 MiB brings what the last one of its length brought"},
    {Lie::late, "late", "--quick", "copies are reported complete 5 ms before they begin"},
    {Lie::staged, "staged", "", "copies go through host memory; their bytes are right"},
    {Lie::slow, "slow", "", "each copy is made eight times; its bytes are right"},
    {Lie::skip_repeats, "skip-repeats", "", "a copy that repeats the one before it is not made; the bytes are right"},
    {Lie::half_times, "half-times", "", "events on streams of A are half as far apart as they were"},
    {Lie::tenth_times, "tenth-times", "", "events on streams of A are a tenth as far apart as they were"},
    {Lie::own_memory, "own-memory", "--quick", "copies by B and loads by B read B's own memory, at the same offset"},
    {Lie::zero_reads, "zero-reads", "--quick", "copies by B and loads by B bring zeros"},
    {Lie::ones_reads, "ones-reads", "--quick",
     "copies by B and loads by B bring ones, as from a PCIe function that is gone"},
    {Lie::drop_stores, "drop-stores", "--quick",
     "kernels of A that store to B are launched with success and do not run"},
    {Lie::mirror_stores, "mirror-stores", "--quick",
     "stores to B land in memory of A, where A's loads of the same strip find them"},
    {Lie::shifted_stores, "shifted-stores", "--quick", "stores land 4 KiB before their place"},
    {Lie::no_wait, "no-wait", "--quick", "streams of B do not wait for events of A, whose own copies begin late"},
    {Lie::no_sync, "no-sync", "--quick",
     "cuStreamSynchronize does not wait for streams of A and B that wait for each other"},
    {Lie::claims_peers, "claims-peers", "--quick", "A is told that it has peer access to B, and has none"},
    {Lie::vmm_claims, "vmm-claims", "", "cuMemSetAccess for A on mapped memory of B returns success and does nothing"},
    {Lie::pool_claims, "pool-claims", "", "cuMemPoolSetAccess for A on a pool of B returns success and does nothing"},
    {Lie::copy_fault, "copy-fault", "--quick",
     "a copy is enqueued with success, then the context of its GPU has an illegal address"},
    {Lie::store_fault, "store-fault", "--quick",
     "a store is launched with success, then the context of A has an illegal address"},
    {Lie::load_fault, "load-fault", "--quick",
     "a load is launched with success, then the context of B has an illegal address"},
    {Lie::stall_copy, "stall-copy", "--quick", "cuStreamSynchronize does not return after a copy"},
    {Lie::stall_store, "stall-store", "--quick", "cuStreamSynchronize does not return after a store"},
    {Lie::stall_load, "stall-load", "--quick", "cuStreamSynchronize does not return after a load"},
    {Lie::graph_no_flag, "graph-no-flag", "--full",
     "stores of kernels in CUDA graphs of A do not reach B: no flag arrives"},
    {Lie::graph_old_data, "graph-old-data", "--full",
     "loads of kernels in CUDA graphs of B bring what the memory of A held at the launch before"},
    {Lie::ipc_other, "ipc-other", "--full", "the CUDA IPC handle of an allocation of B is that of another one"},
    {Lie::ipc_fault, "ipc-fault", "--full", "a store of A to memory of another process ends with an illegal address"},
    {Lie::vmm_other, "vmm-other", "--full", "the file descriptor of mapped memory of B is that of another allocation"},
};

int number_of(const char* variable, int otherwise) {
  const char* const set = std::getenv(variable);
  return set == nullptr || *set == '\0' ? otherwise : std::atoi(set);
}

Told read_told() {
  Told told;
  const char* const set = std::getenv("P2PD_LIE");
  const std::string_view name = set == nullptr || *set == '\0' ? "none" : set;
  const auto* const row = std::ranges::find_if(kLies, [&](const LieRow& r) { return name == r.name; });
  told.known = row != std::end(kLies);
  if (told.known) told.lie = row->lie;
  told.from = number_of("P2PD_LIE_FROM", 0);
  told.to = number_of("P2PD_LIE_TO", 1);
  return told;
}

std::string all_lies() {
  std::string text;
  for (const LieRow& row : kLies) text += std::string(row.name) + "\t" + row.option + "\t" + row.text + "\n";
  return text;
}

}  // namespace

const Told& told() {
  static const Told once = read_told();
  return once;
}

/// Every lie, a line each: name, option of p2p-bench, what it is, with tabs between. For scripts; no driver is loaded
/// for it.
extern "C" __attribute__((visibility("default"))) const char* p2pd_lies() {
  static const std::string text = all_lies();
  return text.c_str();
}

}  // namespace p2pd::liar
