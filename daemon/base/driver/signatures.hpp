// SPDX-License-Identifier: MIT
#pragma once

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
  bool gpu_only = false;              ///< a failure only where the line names an NVIDIA GPU by its PCI address
  std::vector<LinePattern> patterns;  ///< any of them
  std::string cause;
  std::string fix;     ///< empty where there is nothing to do
  std::string source;  ///< who saw it, or the code that prints it

  bool matches(std::string_view line) const;
};

/// The table of config/signatures.yaml, compiled in; causes stand before their consequences. An Error means that the
/// build has a broken table.
Result<std::vector<Signature>> signatures();

/// The same from text: every key checked, ids unique.
Result<std::vector<Signature>> parse_signatures(std::string_view text);

}  // namespace p2pd
