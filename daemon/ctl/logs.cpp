// SPDX-License-Identifier: MIT
// p2pctl logs: records of p2pd's units in systemd's journal; journalctl prints them, and explains with -x.
#include <fmt/format.h>
#include <unistd.h>

#include <vector>

#include "ctl/verb.hpp"

namespace p2pd::ctl {

Result<int> logs(const Context& context) {
  std::vector<std::string> words = {"journalctl", "--unit=p2pd*.service",
                                    fmt::format("--lines={}", context.options.lines)};
  if (context.options.follow) words.emplace_back("--follow");
  if (context.options.json) words.emplace_back("--output=json");
  if (context.options.root != "/") words.push_back("--root=" + context.options.root);
  if (!context.options.host.empty()) words.insert(words.begin(), {"ssh", "--", context.options.host});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  return fail_errno(fmt::format("cannot run {}", words[0]));
}

}  // namespace p2pd::ctl
