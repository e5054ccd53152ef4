// SPDX-License-Identifier: MIT
#pragma once

#include "base/command.hpp"
#include "base/root.hpp"

namespace p2pd {

/// Answers what is asked about a tree that is only looked at: by the programs of this machine, which read the tree's files.
///
/// Runs nothing that lies in the tree, and nothing that its configuration names: whoever made it need not be trusted. A command
/// that has no such answer is ErrorCode::not_found, and is_not_run() tells it from what is not there. Paths in the answers are
/// those of the tree.
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
