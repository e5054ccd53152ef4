// SPDX-License-Identifier: MIT
// cuda-toolkit: the CUDA toolkit of the wanted version is installed, and on the PATH of login shells.
// P2P needs no toolkit, its users do: to build the CUDA samples, NCCL's tests or their own kernels. The compiler that
// nvcc calls can be pinned (CUDAHOSTCXX), because a toolkit refuses compilers newer than itself.
// Reads /usr/local/cuda-X.Y/bin/nvcc and its limit for GCC (include/crt/host_config.h), /etc/profile.d/p2pd-cuda.sh,
// and looks for the compiler. Runs nothing.
// Reference: CUDA Installation Guide for Linux, "Post-installation Actions"; nvcc documentation, "--compiler-bindir".
#include "machine/driver/cuda_toolkit.hpp"

#include "base/probe.hpp"

namespace p2pd {
namespace {

Result<Finding> check(const Host& host, const Parameters& parameters) {
  const std::string nvcc = cuda_folder(parameters) + "/bin/nvcc";
  const Result<std::string> found = cuda_host_compiler(host, parameters);
  const std::string compiler = found.value_or("");
  const std::string lacking = lacking_cuda_toolkit(host, parameters, compiler);
  Finding finding;
  finding.facts = {{"nvcc", host.has_program(nvcc) ? nlohmann::json(nvcc) : nlohmann::json()},
                   {"profile", host.files().exists(kCudaProfile)},
                   {"host_compiler", compiler.empty() ? nlohmann::json() : nlohmann::json(compiler)}};
  finding.evidence.push_back({nvcc, host.has_program(nvcc) ? "there" : "not there"});
  finding.evidence.push_back({std::string(kCudaProfile), host.files().exists(kCudaProfile) ? "there" : "not there"});
  finding.verdict = lacking.empty() && found ? Verdict::pass : Verdict::fail;
  finding.summary = lacking.empty() ? nvcc + " is installed, and on the PATH" : lacking;
  if (!found) {
    finding.summary = found.error().message;
    finding.next = found.error().next;
  }
  return finding;
}

}  // namespace

extern const Probe kCudaToolkit;
const Probe kCudaToolkit = {
    .id = "cuda-toolkit",
    .asserts = "the CUDA toolkit of `version` is installed, and on the PATH",
    .parameters = kCudaParameters,
    .validate = validate_cuda_toolkit,
    .check = check,
};

}  // namespace p2pd
