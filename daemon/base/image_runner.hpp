// SPDX-License-Identifier: MIT
#pragma once

#include "base/command.hpp"
#include "base/root.hpp"

namespace p2pd {

/// Answers commands about a tree that is only inspected, with programs of this machine that read the tree's files.
///
/// Runs nothing from the tree, and nothing that its configuration names: its author need not be trusted. Any other
/// command that is not Command::outside is ErrorCode::not_found; is_not_run() distinguishes it from a missing file.
/// Paths in the answers are those of the tree.
class ImageRunner : public CommandRunner {
 public:
  explicit ImageRunner(Root tree, int stop_fd = -1) : tree_(std::move(tree)), here_("/", stop_fd) {}
  Result<CommandResult> run(const Command& command) override;
  int stop_fd() const override { return here_.stop_fd(); }

 private:
  Root tree_;
  ProcessRunner here_;
};

bool is_not_run(const Error& error);

}  // namespace p2pd
