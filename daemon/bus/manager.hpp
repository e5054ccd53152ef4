// SPDX-License-Identifier: MIT
#pragma once

#include <systemd/sd-bus.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "base/result.hpp"
#include "bus/authority.hpp"
#include "bus/requests.hpp"

namespace p2pd {

/// Object /org/p2pd1: shows the published status as properties and signals, and forwards requests that polkit allows to
/// the worker.
class Manager {
 public:
  using Gpus = std::vector<std::pair<std::string, std::string>>;  ///< PCI address, name

  /// `state`: directory of the journal.
  Manager(sd_bus* bus, sd_event* event, std::filesystem::path state, Gpus gpus);
  Result<void> publish();

  /// Reads the published status again, and reports what changed.
  void look();
  /// True if no call waits for an answer, and no run is being walked.
  bool idle() const;
  const nlohmann::json& status() const { return status_; }

 private:
  friend struct Handlers;
  void tell(const nlohmann::json& before);

  sd_bus* bus_;
  sd_event* event_;
  std::filesystem::path state_;
  Gpus gpus_;
  Authority authority_;
  int asked_ = 0;  ///< requests that the worker has not answered
  nlohmann::json status_;
};

}  // namespace p2pd
