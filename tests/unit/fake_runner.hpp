// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/command.hpp"

namespace p2pd::test {

/// Commands with the results that a test sets; any other argv is an Error. Records what ran.
class FakeRunner : public CommandRunner {
 public:
  using Answer = std::function<Result<CommandResult>(const Command&)>;

  /// `text` is argv as Command::text() prints it.
  FakeRunner& on(const std::string& text, Answer answer) {
    answers_[text] = std::move(answer);
    return *this;
  }
  FakeRunner& on(const std::string& text, std::string output = {}, int status = 0, std::string errors = {}) {
    return on(text, [result = CommandResult{status, std::move(output), std::move(errors)}](const Command&) {
      return Result<CommandResult>(result);
    });
  }

  Result<CommandResult> run(const Command& command) override {
    ran.push_back(command.text());
    const auto found = answers_.find(command.text());
    if (found != answers_.end()) return found->second(command);
    unexpected.push_back(command.text());
    return fail(ErrorCode::not_found, "the test was not told of: " + command.text());
  }

  int stop_fd() const override { return stop; }

  int stop = -1;
  std::vector<std::string> ran;
  std::vector<std::string> unexpected;

 private:
  std::map<std::string, Answer> answers_;
};

}  // namespace p2pd::test
