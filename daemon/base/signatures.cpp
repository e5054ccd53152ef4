// SPDX-License-Identifier: MIT
#include "base/signatures.hpp"

#include <algorithm>
#include <set>

#include "base/json_members.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kSignatures =
#include "signatures.inc"  // config/signatures.yaml as JSON, made by the build
    ;

/// The patterns in the list `key` of `row`.
Result<std::vector<LinePattern>> patterns_of(const nlohmann::json& row, const char* key) {
  std::vector<LinePattern> patterns;
  for (const nlohmann::json& pattern : row.value(key, nlohmann::json::array())) {
    if (!pattern.is_string()) return fail(ErrorCode::invalid, "a pattern must be a text");
    patterns.push_back(TRY(LinePattern::parse(pattern.get<std::string>())));
  }
  return patterns;
}

bool any_starts(const std::vector<LinePattern>& patterns, std::string_view record) {
  return std::ranges::any_of(patterns, [&](const LinePattern& pattern) { return pattern.starts(record); });
}

Result<Signature> parse_row(const nlohmann::json& row) {
  Signature signature;
  signature.id = text_of(row, "id");
  signature.log = text_of(row, "log");
  signature.cause = text_of(row, "cause");
  signature.fix = text_of(row, "fix");
  signature.source = text_of(row, "source");
  const std::string means = text_of(row, "means");
  const auto refuse = [&](const std::string& why) { return fail(ErrorCode::invalid, signature.id + ": " + why); };
  if (signature.id.empty() || signature.cause.empty() || signature.source.empty())
    return refuse("id, cause and source must be texts");
  if (signature.log != "kernel" && signature.log != "build" && signature.log != "program")
    return refuse("log must be kernel, build or program");
  if (means != "failure" && means != "note") return refuse("means must be failure or note");
  signature.failure = means == "failure";
  if (signature.failure && signature.fix.empty()) return refuse("a failure has a fix");
  signature.gpu_only = flag_of(row, "gpu_only");
  signature.endangers_proof = flag_of(row, "endangers_proof");
  signature.refutes_proof = flag_of(row, "refutes_proof");
  signature.patterns = TRY_IN(signature.id, patterns_of(row, "patterns"));
  signature.cures = TRY_IN(signature.id, patterns_of(row, "cured_by"));
  if (signature.patterns.empty()) return refuse("at least one pattern is wanted");
  return signature;
}

}  // namespace

bool Signature::matches(std::string_view line) const {
  if (log == "kernel") return any_starts(patterns, line);
  return std::ranges::any_of(patterns, [&](const LinePattern& pattern) { return pattern.found_in(line); });
}

bool Signature::cured_by(std::string_view record) const { return any_starts(cures, record); }

Result<std::vector<Signature>> parse_signatures(std::string_view text) {
  const nlohmann::json table = parse_json(text);
  if (!table.is_object() || table.value("schema", nlohmann::json()) != "p2pd.signatures/1")
    return fail(ErrorCode::invalid, "signatures.yaml: not of schema p2pd.signatures/1");
  std::vector<Signature> out;
  std::set<std::string> seen;
  for (const nlohmann::json& row : table.value("signatures", nlohmann::json::array())) {
    out.push_back(TRY_IN("signatures.yaml", parse_row(row.is_object() ? row : nlohmann::json::object())));
    if (!seen.insert(out.back().id).second)
      return fail(ErrorCode::invalid, "signatures.yaml: " + out.back().id + " twice");
  }
  if (out.empty()) return fail(ErrorCode::invalid, "signatures.yaml: no signatures");
  return out;
}

Result<std::vector<Signature>> signatures() { return parse_signatures(kSignatures); }

std::optional<Signature> program_failure(std::string_view output) {
  const auto table = signatures();
  if (!table) return std::nullopt;
  const auto fits = [&](const Signature& row) { return row.log == "program" && row.matches(output); };
  const auto row = std::ranges::find_if(*table, fits);
  return row != table->end() ? std::optional(*row) : std::nullopt;
}

}  // namespace p2pd
