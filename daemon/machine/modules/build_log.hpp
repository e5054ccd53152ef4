// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace p2pd {

/// A failed build of kernel modules: one cause, and the line that reports it.
struct BuildFailure {
  std::string cause;
  std::string line;             ///< printable, at most 512 bytes
  std::size_t line_number = 0;  ///< counted from 1
  std::string next;
  std::string signature_id;  ///< row of config/signatures.yaml; empty: none fits
};

/// Finds the first cause in `log`, output of make, kbuild, DKMS (make.log), nvidia-installer or dpkg, in any language
/// of make. In this order: the first row of the signatures that fits; the first line that is an error of its own
/// (compiler, linker, modpost, make, a killed process); the first that only reports another one (make's "Error 2",
/// DKMS, dpkg), since the log then ends before the cause. nullopt: no sign of a failure. An Error: the table of
/// signatures is broken.
Result<std::optional<BuildFailure>> build_failure(std::string_view log);

}  // namespace p2pd
