// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "base/host.hpp"
#include "base/parameters.hpp"
#include "base/result.hpp"

namespace p2pd {

/// File that puts the toolkit on the PATH at login.
inline constexpr std::string_view kCudaProfile = "/etc/profile.d/p2pd-cuda.sh";

inline constexpr Parameter kCudaParameters[] = {
    {"version", Parameter::Type::string, true,
     "of the toolkit, as its package has it: 12-8; chosen: the newest that the driver runs"},
    {"host_compiler", Parameter::Type::string, false,
     "path of the C++ compiler that nvcc calls; chosen: one that the toolkit takes, where the default is too new"},
};

/// Version that plan/resolve.hpp replaces, and compiler that is looked for once the toolkit is installed.
inline constexpr std::string_view kChosenCuda = "chosen";

/// Checks that `version` is NUMBER-NUMBER or chosen, and `host_compiler` chosen or an absolute path without characters
/// special to a shell.
Result<void> validate_cuda_toolkit(const Parameters& parameters);

/// Version "12-8" of the toolkit for a driver that runs CUDA `runs`, "12.9": the newest of /usr/local that is not
/// newer, else the newest that apt offers, else its own.
Result<std::string> toolkit_for(const Host& host, const std::string& runs);

/// Package "cuda-toolkit-12-8", which brings no driver; the meta package "cuda" would.
std::string cuda_package(const Parameters& parameters);
/// "/usr/local/cuda-12.8"
std::string cuda_folder(const Parameters& parameters);
/// Compiler that nvcc calls by CUDAHOSTCXX; empty: its own choice. If chosen, the newest g++ that the toolkit takes; an
/// Error: there is none.
Result<std::string> cuda_host_compiler(const Host& host, const Parameters& parameters);
/// Content of kCudaProfile; `compiler`: see above.
std::string cuda_profile(const Parameters& parameters, const std::string& compiler);
/// Reason why the toolkit cannot be used as wanted; empty: it can.
std::string lacking_cuda_toolkit(const Host& host, const Parameters& parameters, const std::string& compiler);

}  // namespace p2pd
