// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// NVIDIA's installer of one driver version on a host.
struct Runfile {
  std::string host;    ///< "https://us.download.nvidia.com"
  std::string path;    ///< path on every host: "/XFree86/Linux-x86_64/565.77/NVIDIA-Linux-x86_64-565.77.run"
  std::string sha256;  ///< sum that the host publishes beside the runfile
  std::uint64_t bytes = 0;

  std::string url() const { return host + path; }
  std::string sum_url() const { return url() + ".sha256sum"; }
};

/// Driver version in version.mk of NVIDIA's open modules: "565.57.01".
Result<std::string> version_of_modules(std::string_view version_mk);

/// Sum of file `name` in the text of a .sha256sum file, as sha256sum(1) writes it.
Result<std::string> published_sum(std::string_view text, std::string_view name);

/// Looks for the runfile of `version` and its published sum on `hosts`, in order, in the trees for desktop and data
/// centre drivers; fetches the sum alone. ErrorCode::not_found if none has both. file:// URLs name files of `here`.
Result<Runfile> find_runfile(const Host& here, const std::vector<std::string>& hosts, const std::string& version);

}  // namespace p2pd
