// SPDX-License-Identifier: MIT
#include "base/driver/signatures.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace p2pd {
namespace {

constexpr std::string_view kTable =
#include "signatures.inc"  // config/signatures.yaml as a raw string, made by CMake
    ;

/// The text of `key`, or empty.
std::string text_of(const nlohmann::json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
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
  signature.gpu_only = row.value("gpu_only", nlohmann::json(false)) == true;
  for (const nlohmann::json& pattern : row.value("patterns", nlohmann::json::array())) {
    if (!pattern.is_string()) return refuse("a pattern must be a text");
    signature.patterns.push_back(TRY_IN(signature.id, LinePattern::parse(pattern.get<std::string>())));
  }
  if (signature.patterns.empty()) return refuse("at least one pattern is wanted");
  return signature;
}

}  // namespace

bool Signature::matches(std::string_view line) const {
  return std::ranges::any_of(patterns, [&](const LinePattern& pattern) { return pattern.found_in(line); });
}

Result<std::vector<Signature>> parse_signatures(std::string_view text) {
  const nlohmann::json table = nlohmann::json::parse(text, nullptr, false);
  if (!table.is_object() || table.value("schema", nlohmann::json()) != "p2pd.signatures/1")
    return fail(ErrorCode::invalid, "signatures.yaml: not JSON of schema p2pd.signatures/1");
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

Result<std::vector<Signature>> signatures() { return parse_signatures(kTable); }

}  // namespace p2pd
