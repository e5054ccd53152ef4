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
  const Result<std::string> compiler = cuda_host_compiler(host, parameters);
  Finding finding;
  finding.facts = {{"host_compiler", or_null(compiler.value_or(""))}};
  finding.saw(nvcc, host.has_program(nvcc) ? "there" : "not there");
  finding.saw(kCudaProfile, host.files().exists(kCudaProfile) ? "there" : "not there");
  if (!compiler)
    finding.set(Verdict::fail, compiler.error().message, compiler.error().next);
  else if (std::string lacking = lacking_cuda_toolkit(host, parameters, *compiler); !lacking.empty())
    finding.set(Verdict::fail, std::move(lacking));
  else
    finding.set(Verdict::pass, nvcc + " is installed, and on the PATH");
  return finding;
}

}  // namespace

extern const Probe kCudaToolkit = {
    .id = "cuda-toolkit",
    .asserts = "the CUDA toolkit of `version` is installed, and on the PATH",
    .parameters = kCudaParameters,
    .validate = validate_cuda_toolkit,
    .check = check,
};

}  // namespace p2pd
