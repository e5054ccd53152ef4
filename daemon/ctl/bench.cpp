// SPDX-License-Identifier: MIT
// p2pctl bench: executes the p2p-bench in the directory of this program, with the libnccl of p2pd.yaml.
#include <unistd.h>

#include <filesystem>

#include "ctl/verb.hpp"
#include "plan/config.hpp"

namespace p2pd::ctl {

Result<int> bench(const Context& context) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "p2p-bench";
  std::vector<std::string> words = {program};
  if (context.options.json) words.emplace_back("--json");
  if (context.options.root != "/") words.insert(words.end(), {"--root", context.options.root});
  if (const auto config = load_config(); config && !config->nccl.empty())
    words.insert(words.end(), {"--nccl", config->nccl});
  words.insert(words.end(), context.options.words.begin(), context.options.words.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  return fail_errno("cannot run " + program);
}

}  // namespace p2pd::ctl
