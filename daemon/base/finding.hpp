// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
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
  limited  ///< proof of less than was wanted, but of more than before
};
std::string_view to_string(Verdict verdict);

/// A value that was read, and its source: a file, a register, a command.
struct Evidence {
  std::string source;
  std::string value;
};

/// Result of a probe: a verdict is a value, never an error.
struct Finding {
  Verdict verdict = Verdict::unknown;
  std::string summary;                              ///< one line for a person
  nlohmann::json facts = nlohmann::json::object();  ///< what a program wants of the verdict
  std::vector<Evidence> evidence;
  std::string next;    ///< action for the operator after a fail; empty if the fix does it
  std::string danger;  ///< reason why a proof would put the machine at risk after this fail; empty: no risk
  std::vector<std::string> fit_for;                    ///< uses of P2P that a proof found to work, "nccl"
  std::vector<std::string> unfit_for;                  ///< uses of P2P that a proof found not to work
  std::map<std::string, std::string> in_the_way = {};  ///< of a fail: GPUs that cause it, by address, with the reason
  bool impossible = false;  ///< a fail that neither a fix nor a person can repair with this hardware

  /// Sets the verdict with the texts that belong to it.
  void set(Verdict is, std::string says, std::string advice = {}) {
    verdict = is;
    summary = std::move(says);
    next = std::move(advice);
  }
  /// Adds evidence.
  void saw(std::string_view source, std::string_view value) {
    evidence.push_back({std::string(source), std::string(value)});
  }

  /// Checks that P2P was proven, even for less than was wanted.
  bool proves() const { return verdict == Verdict::pass || verdict == Verdict::limited; }
  bool holds() const { return verdict == Verdict::pass || verdict == Verdict::not_applicable; }
};

nlohmann::json to_json(const Finding& finding);

/// A fact that may be missing: null for an empty text, or no value.
inline nlohmann::json or_null(std::string_view text) { return text.empty() ? nlohmann::json() : nlohmann::json(text); }
template <class Value>
nlohmann::json or_null(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

inline Finding not_applicable(std::string summary) {
  Finding finding;
  finding.set(Verdict::not_applicable, std::move(summary));
  return finding;
}

/// Makes the finding of a probe that returned `error`.
Finding unknown(const Error& error);

}  // namespace p2pd
