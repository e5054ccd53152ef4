// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include "base/command.hpp"
#include "base/root.hpp"

namespace p2pd {

/// Answers commands from the `commands/` of a machine record; anything else is not_found.
class RecordedRunner : public CommandRunner {
 public:
  explicit RecordedRunner(Root record) : record_(std::move(record)) {}
  Result<CommandResult> run(const Command& command) override;

  /// True when `root` is a machine record: it has a /machine.json.
  static bool is_record(const Root& root) { return root.exists("/machine.json"); }

 private:
  Root record_;
};

}  // namespace p2pd
