// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/result.hpp"
#include "machine/catalogue/mirror.hpp"
#include "plan/plan.hpp"

namespace p2pd {

/// Settings of p2pd.yaml.
struct Config {
  std::string plan = "geforce-p2p";  ///< default plan of every verb: a name, or an absolute path
  std::string log_level = "info";    ///< trace, debug, info, warning, error
  bool apply_on_boot = false;        ///< the plan is applied at the first boot of a machine on which nothing has run
  WantedGpus gpus = {};              ///< for every plan
  int reboot_delay_s = 60;           ///< seconds from the announcement of a restart to the restart
  std::string nccl = {};             ///< path of the libnccl of full proofs; empty: it is looked for
  MirrorPlace mirror = {};           ///< for every fix that takes one
};

Result<Config> parse_config(std::string_view text, std::string_view file);
/// Reads p2pd.yaml of /etc/p2pd, else the shipped one.
Result<Config> load_config();

/// Checks for a path: a word with a '/' in it, or one that ends in ".yaml" and so is no name.
bool is_plan_file(std::string_view word);

/// Loads a plan by name from plans/ of /etc/p2pd, else the shipped one, or by path, relative to the current directory,
/// if is_plan_file(name); "": the plan of `config`. Adds the settings of `config` for every plan; the plan's own `nccl`
/// and `mirror` count.
Result<Plan> load_plan(const Config& config, const std::string& name, const Registry& registry);

}  // namespace p2pd
