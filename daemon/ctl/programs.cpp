// SPDX-License-Identifier: MIT
// Verbs that become another program: bench (p2p-bench), logs (journalctl), and those that read another machine over
// ssh.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "ctl/verb.hpp"
#include "plan/config.hpp"

namespace p2pd::ctl {
namespace {

/// Executes `words`. Returns only if that fails.
Failure become(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::execvp(argv[0], argv.data());
  return fail_errno("cannot run " + words[0]);
}

/// `word` for the shell of another machine.
std::string quoted(const std::string& word) {
  std::string text;
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + text + "'";
}

}  // namespace

std::vector<std::string> on_host(const std::string& host, const std::vector<std::string>& words) {
  std::vector<std::string> command = {"ssh", "--", host};
  for (const std::string& word : words) command.push_back(quoted(word));
  return command;
}

Result<int> run_on_host(const Context& context, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"p2pctl"};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "-H" || word == "--host")
      ++i;  // its value
    else if (!word.starts_with("-H") && !word.starts_with("--host="))
      words.push_back(word);
  }
  return become(on_host(context.options.host, words));
}

Result<int> bench(const Context& context) {
  std::error_code error;
  std::vector<std::string> words = {std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "p2p-bench"};
  if (context.options.json) words.emplace_back("--json");
  if (context.options.root != "/") words.insert(words.end(), {"--root", context.options.root});
  if (const auto config = load_config(); config && !config->nccl.empty())
    words.insert(words.end(), {"--nccl", config->nccl});
  words.insert(words.end(), context.options.words.begin(), context.options.words.end());
  return become(std::move(words));
}

Result<int> logs(const Context& context) {
  std::vector<std::string> words = {"journalctl", "--unit=p2pd*.service",
                                    fmt::format("--lines={}", context.options.lines)};
  if (context.options.follow) words.emplace_back("--follow");
  if (context.options.json) words.emplace_back("--output=json");
  if (context.options.root != "/") words.push_back("--root=" + context.options.root);
  return become(context.options.host.empty() ? words : on_host(context.options.host, words));
}

}  // namespace p2pd::ctl
