// SPDX-License-Identifier: MIT
#pragma once

#include "probes/bench/device/cuda.hpp"
#include "probes/bench/device/pattern.hpp"

namespace p2pd::liar {

using namespace bench::cuda;
using bench::u64;

/// Faults that a driver may have, each described by the table in lies.cpp.
enum class Lie {
  none,
  corrupt_byte,
  sometimes_corrupt,
  drop_copies,
  partial_copy,
  swapped_halves,
  elsewhere,
  overrun,
  stale,
  late,
  staged,
  slow,
  skip_repeats,
  half_times,
  tenth_times,
  own_memory,
  zero_reads,
  ones_reads,
  drop_stores,
  mirror_stores,
  shifted_stores,
  no_wait,
  no_sync,
  claims_peers,
  vmm_claims,
  pool_claims,
  copy_fault,
  store_fault,
  load_fault,
  stall_copy,
  stall_store,
  stall_load,
  graph_no_flag,
  graph_old_data,
  ipc_other,
  ipc_fault,
  vmm_other,
};

/// The lie of this process, about the data that goes from GPU `from` to GPU `to`.
struct Told {
  bool known = true;  ///< false: P2PD_LIE names no lie
  Lie lie = Lie::none;
  int from = 0;
  int to = 1;
};

/// From P2PD_LIE, P2PD_LIE_FROM and P2PD_LIE_TO.
const Told& told();
inline bool is(Lie lie) { return told().lie == lie; }

}  // namespace p2pd::liar
