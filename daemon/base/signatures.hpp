// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/line_pattern.hpp"
#include "base/result.hpp"

namespace p2pd {

/// A text in a log that is known to mean something for P2P.
struct Signature {
  std::string id;
  std::string log;                    ///< where it is seen: "kernel", "build" or "program" (its output)
  bool failure = false;               ///< else worth knowing, and no harm by itself
  bool gpu_only = false;              ///< a failure only where it names a GPU, or a port above one, by its PCI address
  bool endangers_proof = false;       ///< a proof would hang on it, or make it worse
  bool refutes_proof = false;         ///< p2p-bench proves nothing when it comes meanwhile, and names no other device
  std::vector<LinePattern> patterns;  ///< any of them
  std::vector<LinePattern> cures;     ///< any of them, in a later record of the same device: no failure any more
  std::string cause;
  std::string fix;     ///< empty where there is nothing to do
  std::string source;  ///< who saw it, or the code that prints it

  /// Of the kernel's log from the start of a record on, since users write what follows; else anywhere in `line`.
  bool matches(std::string_view line) const;
  bool cured_by(std::string_view record) const;
};

/// The table of config/signatures.yaml, compiled in; causes stand before their consequences. An Error means that the
/// build has a broken table.
Result<std::vector<Signature>> signatures();

/// The first row of programs that fits what one printed; nothing where none does, or the table is broken.
std::optional<Signature> program_failure(std::string_view output);

/// The same from its JSON: every key checked, ids unique.
Result<std::vector<Signature>> parse_signatures(std::string_view text);

}  // namespace p2pd
