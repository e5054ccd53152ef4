// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "machine/hardware/measurement.hpp"

namespace p2pd {

/// Uses of P2P by programs. probes/bench/report/judge.cpp lists what each needs.
enum class P2pUse {
  copies,               ///< cudaMemcpyPeer: PyTorch's Tensor.to, pipelines
  nccl,                 ///< NCCL: copies, stores with flags, memory mapped by cuMem
  custom_all_reduce,    ///< vLLM and SGLang: kernels that load from a peer, over IPC
  atomics,              ///< NVSHMEM, one-shot all-to-all
  managed_memory,       ///< cudaMallocManaged: pages that GPUs load from each other and that migrate between them
  compressible_memory,  ///< cuMemCreate with CU_MEM_ALLOCATION_COMP_GENERIC
};
inline constexpr P2pUse kP2pUses[] = {P2pUse::copies,  P2pUse::nccl,           P2pUse::custom_all_reduce,
                                      P2pUse::atomics, P2pUse::managed_memory, P2pUse::compressible_memory};

std::string_view to_string(P2pUse use);

/// All of them for people: "copies, nccl, ...".
std::string known_uses();

/// Uses that must work by default: nccl, custom-all-reduce.
std::vector<P2pUse> usual_uses();
/// Uses by name; an unknown name, or an empty list, is an Error that lists the known ones.
Result<std::vector<P2pUse>> uses_from(const std::vector<std::string>& names);

/// Applications that use P2P and whose settings are known.
inline constexpr std::string_view kApplications[] = {"nccl", "pytorch", "vllm", "sglang", "llama.cpp", "exllama"};

/// Setting of applications that has an effect on this machine.
struct Setting {
  enum class Kind { variable, unset, flag };
  std::vector<std::string_view> applications;
  Kind kind;
  std::string_view name;
  std::string_view value;
  std::string reason;  ///< one line
};
std::string_view to_string(Setting::Kind kind);

/// Settings of `application` (empty: of all) after a proof that P2P is fit for these uses. `report` is that of the last
/// full proof, empty if it is not known. An Error: no bus.
Result<std::vector<Setting>> settings_of(const Host& host, const std::vector<std::string>& fit_for,
                                         const bench::BenchReport& report, std::string_view application = {});

}  // namespace p2pd
