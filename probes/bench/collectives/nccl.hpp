// SPDX-License-Identifier: MIT
// Part of NCCL that p2p-bench uses, declared here so that no NCCL is needed to build. Names, values and parameters
// are those of nccl.h since NCCL 2.7, the first with ncclSend; a stream is a cudaStream_t, which is a CUstream.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/command.hpp"
#include "base/result.hpp"
#include "probes/bench/device/cuda.hpp"

namespace p2pd::bench::nccl {

using ncclComm_t = struct ncclComm*;
using cudaStream_t = cuda::CUstream;

enum ncclResult_t : int { ncclSuccess = 0, ncclSystemError = 2, ncclInvalidArgument = 4 };
enum ncclDataType_t : int { ncclFloat32 = 7 };
enum ncclRedOp_t : int { ncclSum = 0 };

/// Every function used: F(result, name, parameters...). The simulated NCCL of the tests implements the same list.
#define P2PD_NCCL_FUNCTIONS(F)                                                                                       \
  F(ncclResult_t, ncclGetVersion, int* version)                                                                      \
  F(const char*, ncclGetErrorString, ncclResult_t result)                                                            \
  F(ncclResult_t, ncclCommInitAll, ncclComm_t* ranks, int count, const int* devices)                                 \
  F(ncclResult_t, ncclCommDestroy, ncclComm_t rank)                                                                  \
  F(ncclResult_t, ncclGroupStart)                                                                                    \
  F(ncclResult_t, ncclGroupEnd)                                                                                      \
  F(ncclResult_t, ncclAllReduce, const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, \
    ncclComm_t rank, cudaStream_t stream)                                                                            \
  F(ncclResult_t, ncclSend, const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t rank,     \
    cudaStream_t stream)                                                                                             \
  F(ncclResult_t, ncclRecv, void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t rank,             \
    cudaStream_t stream)

/// Functions of NCCL.
struct Functions {
#define F(result, name, ...) result (*name)(__VA_ARGS__) = nullptr;
  P2PD_NCCL_FUNCTIONS(F)
#undef F
};

/// Loads the library at `path`.
Result<Functions> load(const std::string& path);

/// libnccl of a run.
struct Library {
  std::string path;                ///< canonical; empty: none
  std::string why_not;             ///< reason if there is none
  std::vector<std::string> notes;  ///< other libraries that were found, and those that root must not load
};

/// Looks for libnccl.so.2: `configured` alone if it is not empty; else the directories of LD_LIBRARY_PATH, the cache of
/// ldconfig, and torch wheels in the environments of `system`. `as_root`: loads only files that only root can change.
Library find_library(CommandRunner& runner, const std::string& configured, const std::string& system = "/",
                     bool as_root = ::geteuid() == 0);

}  // namespace p2pd::bench::nccl
