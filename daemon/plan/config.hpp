// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "plan/plan.hpp"

namespace p2pd {

/// Directories that hold p2pd.yaml and plans/, the first wins: /etc/p2pd, then what is shipped beside the program
/// (PREFIX/bin/p2pctl goes with PREFIX/lib/p2pd).
std::vector<std::filesystem::path> config_directories();

/// What p2pd.yaml says.
struct Config {
  std::string plan = "geforce-p2p";  ///< the plan of verbs that are given none: a name, or an absolute path
  std::string log_level = "info";    ///< trace, debug, info, warning, error
  bool apply_on_boot = false;        ///< the first boot of a machine on which nothing has run applies the plan
  std::vector<std::string> left_out_gpus = {};  ///< of every plan
  int reboot_delay_s = 60;           ///< from the announcement of a restart to the restart
};

Result<Config> parse_config(std::string_view text, std::string_view file);
Result<Config> load_config();

/// True of a path: a word with a '/' in it, or one that ends in ".yaml" and so is no name.
bool is_plan_file(std::string_view word);

/// A plan by name from config_directories(), or by path, relative to the current directory, where is_plan_file(name); "": the
/// plan of `config`. With what `config` says of every plan.
Result<Plan> load_plan(const Config& config, const std::string& name, const Registry& registry);

}  // namespace p2pd
