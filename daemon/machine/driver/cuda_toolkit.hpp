// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "base/host.hpp"
#include "base/parameters.hpp"

namespace p2pd {

/// File that puts the toolkit on the PATH at login.
inline constexpr std::string_view kCudaProfile = "/etc/profile.d/p2pd-cuda.sh";

inline constexpr Parameter kCudaParameters[] = {
    {"version", Parameter::Type::string, true, "of the toolkit, as its package has it: 12-8"},
    {"host_compiler", Parameter::Type::string, false,
     "path of the C++ compiler that nvcc calls; nvcc's choice unless told"},
};

/// Checks that `version` is NUMBER-NUMBER and `host_compiler` an absolute path without characters special to a shell.
Result<void> validate_cuda_toolkit(const Parameters& parameters);

/// Package "cuda-toolkit-12-8", which brings no driver; the meta package "cuda" would.
std::string cuda_package(const Parameters& parameters);
/// "/usr/local/cuda-12.8"
std::string cuda_folder(const Parameters& parameters);
/// Content of kCudaProfile.
std::string cuda_profile(const Parameters& parameters);
/// Reason why the toolkit cannot be used as wanted; empty: it can.
std::string lacking_cuda_toolkit(const Host& host, const Parameters& parameters);

}  // namespace p2pd
