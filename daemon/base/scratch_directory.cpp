// SPDX-License-Identifier: MIT
#include "base/scratch_directory.hpp"

#include <fmt/format.h>
#include <stdlib.h>

namespace p2pd {

Result<ScratchDirectory> ScratchDirectory::make(std::string_view purpose) {
  std::error_code error;
  const std::filesystem::path place = std::filesystem::temp_directory_path(error);
  if (error) return fail_errno("the directory for temporary files", error.value());
  std::string name = place / fmt::format("p2pd-{}-XXXXXX", purpose);
  if (::mkdtemp(name.data()) == nullptr) return fail_errno(name);
  return ScratchDirectory(name);
}

}  // namespace p2pd
