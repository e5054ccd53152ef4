// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/result.hpp"

namespace p2pd {

enum class Verdict {
  pass,
  fail,
  not_applicable,
  unknown,
  limited  ///< of a proof: less than was wanted works, and more than before
};
std::string_view to_string(Verdict verdict);

/// What was read, and where: a file, a register, a command.
struct Evidence {
  std::string source;
  std::string value;
};

/// What a probe found: a verdict is a value, never an error.
struct Finding {
  Verdict verdict = Verdict::unknown;
  std::string summary;         ///< one line for a person
  nlohmann::json facts = nlohmann::json::object();
  std::vector<Evidence> evidence;
  std::string next;            ///< what the operator does about a fail; empty when the fix does it
  std::string danger;          ///< of a fail: why a proof would put the machine at risk now; empty: it would not
  std::vector<std::string> fit_for;    ///< of a proof: the uses of P2P that it found to work, "nccl"
  std::vector<std::string> unfit_for;  ///< and those that it found not to
  bool impossible = false;     ///< of a fail: neither a fix nor a person can mend it with this hardware

  /// P2P was proven, be it for less than was wanted.
  bool proves() const { return verdict == Verdict::pass || verdict == Verdict::limited; }
  bool holds() const { return verdict == Verdict::pass || verdict == Verdict::not_applicable; }
};

nlohmann::json to_json(const Finding& finding);

/// The finding of a probe that could not find out.
Finding unknown(const Error& error);

}  // namespace p2pd
