// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <utility>

#include "base/command.hpp"
#include "base/host.hpp"
#include "base/root.hpp"

namespace p2pd {

/// Answers commands from the `commands/` of a machine record; any other command that is not Command::outside is
/// not_found.
class RecordedRunner : public CommandRunner {
 public:
  explicit RecordedRunner(Root record, int stop_fd = -1) : record_(std::move(record)), stop_fd_(stop_fd) {}
  Result<CommandResult> run(const Command& command) override;
  int stop_fd() const override { return stop_fd_; }

  /// Checks that `root` is a machine record: it has a /machine.json.
  static bool is_record(const RootReader& root) { return root.exists("/machine.json"); }

 private:
  Root record_;
  int stop_fd_;
};

/// Free space of the file system of `path` for an ordinary process, in bytes. For a machine record: the value in its
/// machine.json for exactly this path, since the record is on the disk of another machine; not_found if it has no
/// such value.
Result<std::uint64_t> free_bytes(const Host& host, std::string_view path);

}  // namespace p2pd
