// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "machine/catalogue/catalogue.hpp"

namespace p2pd {

// Rows of the catalogue's tables. Each is checked key by key; an Error(invalid) names the key.

/// A patch: its part of an entry, and the releases that it applies to.
struct PatchRow {
  CatalogueEntry entry;
  std::map<std::string, std::string>
      trees;  ///< releases, its own and grafts, with git's id of the result; empty: not known
};

Result<CompatRule> parse_rule(std::string_view name, const nlohmann::json& row);
Result<Defect> parse_defect(const std::string& name, const nlohmann::json& row);
Result<PatchRow> parse_patch(const std::string& id, const nlohmann::json& row, const std::vector<Defect>& defects);
Result<Allowance> parse_allowance(const nlohmann::json& row);

/// Fills in the release's part of `entry`.
Result<void> parse_release(const std::string& version, const nlohmann::json& row, CatalogueEntry& entry);

bool is_architecture(std::string_view text);  ///< architecture of GPUs that can be peers: "Ada"
bool is_id_part(std::string_view text);       ///< FORK or BRANCH of an entry's id
bool is_repository(std::string_view text);    ///< https://HOST/PATH or file:///PATH
bool is_runfile_host(std::string_view text);  ///< scheme and name without a path; or file:///

}  // namespace p2pd
