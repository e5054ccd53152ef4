// SPDX-License-Identifier: MIT
#pragma once

#include <set>
#include <string>

#include "base/finding.hpp"

namespace p2pd::test {

using Ids = std::set<std::string>;

/// Ids of the rows of config/signatures.yaml that a finding of kernel-log has as `kind`: "failures" or "notes".
inline Ids ids(const Finding& finding, const char* kind) {
  Ids out;
  for (const auto& match : finding.facts.at(kind)) out.insert(match.at("id").get<std::string>());
  return out;
}

}  // namespace p2pd::test
