// SPDX-License-Identifier: MIT
// Any text as p2pd.yaml and as gpus.yaml.
#include "plan/config.hpp"

#include "base/hardware/gpus.hpp"
#include "fuzz.hpp"

void p2pd::fuzz::run(std::string_view input) {
  const auto config = parse_config(input, "input");
  if (config) require(!config->plan.empty() && !config->log_level.empty(), "a setting without a value");
  const auto models = parse_gpu_models(input);
  if (models) require(!models->empty(), "a table without GPUs");
}
