// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace p2pd {

/// What programs use P2P for. What each rests on stands in probes/bench/report/fit.cpp.
enum class P2pUse {
  copies,             ///< cudaMemcpyPeer: PyTorch's Tensor.to, pipelines
  nccl,               ///< NCCL: copies, stores with flags, memory that is mapped by cuMem
  custom_all_reduce,  ///< of vLLM and SGLang: kernels that load from a peer, over IPC
  atomics,            ///< NVSHMEM, one-shot all-to-all
  managed_memory,     ///< cudaMallocManaged: pages that GPUs load from each other and that migrate between them
};
inline constexpr P2pUse kP2pUses[] = {P2pUse::copies, P2pUse::nccl, P2pUse::custom_all_reduce, P2pUse::atomics,
                                      P2pUse::managed_memory};

std::string_view to_string(P2pUse use);

/// What has to work where nothing else is said: nccl, custom-all-reduce.
std::vector<P2pUse> usual_uses();
/// Of names; an unknown one, or none at all, is an Error that names those there are.
Result<std::vector<P2pUse>> uses_from(const std::vector<std::string>& names);

}  // namespace p2pd
