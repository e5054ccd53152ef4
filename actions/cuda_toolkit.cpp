// SPDX-License-Identifier: MIT
// cuda-toolkit: installs the CUDA toolkit of one version by apt, without a driver, and adds it to the PATH.
// The package is cuda-toolkit-X-Y, never "cuda", which adds a driver. One apt-get, simulated first: a driver package
// or a removal is an error, an upgrade within the release, which undo leaves, is not. Fetches stale lists first, waits
// for a lock, repairs an interrupted dpkg. Writes the files of the packages and /etc/profile.d/p2pd-cuda.sh, and before
// that the list of new packages, /var/lib/p2pd/cuda-toolkit-X-Y: undo removes exactly those. Reference: apt-get(8);
// CUDA Installation Guide for Linux, "Meta Packages".
#include "machine/driver/cuda_toolkit.hpp"

#include <fmt/format.h>

#include "base/action.hpp"
#include "machine/packages/brought_packages.hpp"

namespace p2pd {
namespace {

std::string list_of(const Parameters& parameters) { return "/var/lib/p2pd/" + cuda_package(parameters); }

Result<void> need_version(const Parameters& parameters) {
  if (parameters.at("version") != kChosenCuda) return {};
  return fail(ErrorCode::state, "the CUDA version that the driver supports is not known",
              "Give the toolkit's version in the plan, like 12-8.");
}

Result<Description> describe(const Host& host, const Parameters& parameters) {
  TRY(need_version(parameters));
  Description description;
  description.summary = "install the CUDA toolkit " + cuda_package(parameters);
  if (!host.has_program(cuda_folder(parameters) + "/bin/nvcc"))
    TRY(describe_bringing(host, {cuda_package(parameters)}, description));
  const std::string profile = cuda_profile(parameters, cuda_host_compiler(host, parameters).value_or(""));
  if (host.files().read(kCudaProfile).value_or("") != profile)
    description.files.push_back({std::string(kCudaProfile), FileState::Kind::regular, profile});
  return description;
}

Result<void> apply(Host& host, const Parameters& parameters) {
  TRY(need_version(parameters));
  const std::string nvcc = cuda_folder(parameters) + "/bin/nvcc";
  TRY(cuda_host_compiler(host, parameters));  // Error if the named one is missing
  if (!host.has_program(nvcc) || TRY(bringing_was_interrupted(host, list_of(parameters)))) {
    TRY(bring_packages(host, {cuda_package(parameters)}, list_of(parameters)));
    if (!host.has_program(nvcc))
      return fail(ErrorCode::state, fmt::format("{} is installed, but {} is missing", cuda_package(parameters), nvcc),
                  "Read /var/log/apt/term.log.");
  }
  return host.write_own(kCudaProfile, cuda_profile(parameters, TRY(cuda_host_compiler(host, parameters))));
}

Result<void> prepare_undo(Host& host, const Parameters& parameters) {
  return prepare_taking_away(host, list_of(parameters));
}

Result<void> undo(Host& host, const Parameters& parameters) {
  return take_brought_packages_away(host, list_of(parameters));
}

}  // namespace

extern const Action kCudaToolkitAction = {
    .id = "cuda-toolkit",
    .topic = "packages",
    .does = "installs the CUDA toolkit of `version` by apt, without a driver, and adds it to the PATH",
    .parameters = kCudaParameters,
    .validate = validate_cuda_toolkit,
    .describe = describe,
    .apply = apply,
    .prepare_undo = prepare_undo,
    .undo = undo,
};

}  // namespace p2pd
