// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/line_pattern.hpp"
#include "base/result.hpp"

namespace p2pd {

/// A log message with a known meaning for P2P.
struct Signature {
  std::string id;
  std::string log;                    ///< log that has it: "kernel", "build" or "program" (its output)
  bool failure = false;               ///< false: worth knowing, but harmless by itself
  bool gpu_only = false;              ///< a failure only if it names a GPU, or a port above one, by its PCI address
  bool endangers_proof = false;       ///< a proof would hang because of it, or make it worse
  bool refutes_proof = false;         ///< a proof is void if it comes meanwhile and names no other device
  std::vector<LinePattern> patterns;  ///< any of them matches
  std::vector<LinePattern> cures;     ///< any of them, in a later record of the same device, ends the failure
  std::string cause;
  std::string fix;     ///< empty if there is nothing to do
  std::string source;  ///< reporter, or the code that prints it

  /// Matches the kernel's log from the start of a record only, since users write what follows; other logs anywhere in
  /// `line`.
  bool matches(std::string_view line) const;
  bool cured_by(std::string_view record) const;
};

/// Table of config/signatures.yaml, compiled in; causes come before their consequences. An Error means that the
/// build has a broken table.
Result<std::vector<Signature>> signatures();

/// First row of programs that matches `output`; nullopt if none does, or the table is broken.
std::optional<Signature> program_failure(std::string_view output);

/// Parses that table from JSON; checks every key, and that ids are unique.
Result<std::vector<Signature>> parse_signatures(std::string_view text);

}  // namespace p2pd
