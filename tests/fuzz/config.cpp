// SPDX-License-Identifier: MIT
// Any text as p2pd.yaml, and as gpus.yaml, from YAML to JSON to models.
#include "plan/config.hpp"

#include "base/yaml.hpp"
#include "fuzz.hpp"
#include "machine/hardware/gpus.hpp"

namespace {

p2pd::Result<std::vector<p2pd::GpuModel>> models_of(std::string_view yaml) {
  const p2pd::yaml::Node root = TRY(p2pd::yaml::parse(yaml, "input"));
  const nlohmann::json table = TRY(root.json());
  p2pd::fuzz::require(p2pd::parse_json(table.dump()) == table, "YAML that is no JSON");
  return p2pd::parse_gpu_models(table.dump());
}

}  // namespace

void p2pd::fuzz::run(std::string_view input) {
  const auto config = parse_config(input, "input");
  if (config) require(!config->plan.empty() && !config->log_level.empty(), "a setting without a value");
  const auto models = models_of(input);
  if (models) require(!models->empty(), "a table without GPUs");
}
