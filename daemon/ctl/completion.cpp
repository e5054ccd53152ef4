// SPDX-License-Identifier: MIT
// p2pctl completion: completions for bash and zsh, from the table of verbs and their declared options.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "ctl/verb.hpp"

namespace p2pd::ctl {
namespace {

/// Adds the words that may follow a verb: its options, and subcommands with theirs.
void add_words(CLI::App& app, std::vector<std::string>& words) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
    for (const std::string& name : option->get_snames()) words.push_back("-" + name);
  }
  for (CLI::App* second : app.get_subcommands([](CLI::App*) { return true; })) {
    words.push_back(second->get_name());
    add_words(*second, words);
  }
}

std::string options_of(const Verb& verb) {
  CLI::App app;
  Options ignored;
  declare(app, verb, ignored);
  std::vector<std::string> words;
  add_words(app, words);
  std::ranges::sort(words);
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return fmt::format("{}", fmt::join(words, " "));
}

constexpr std::string_view kBash = R"sh(# SPDX-License-Identifier: MIT
# bash completion of p2pctl, made by "p2pctl completion bash"
_p2pctl() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]}} words
  if [ "$COMP_CWORD" = 1 ]; then
    words="{verbs} --help --version"
  else
    case $verb in
{cases}    esac
    case $word in
      -*) ;;
      *) case $verb in
           {plans}) words="$words $(ls /etc/p2pd/plans /usr/lib/p2pd/plans 2>/dev/null | sed -n 's/\.yaml$//p')" ;;
         esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _p2pctl p2pctl
)sh";

constexpr std::string_view kZsh = R"sh(#compdef p2pctl
# SPDX-License-Identifier: MIT
# zsh completion of p2pctl, made by "p2pctl completion zsh"
_p2pctl() {{
  local -a verbs
  verbs=(
{verbs}  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  case $words[2] in
{cases}  esac
  _files
}}
_p2pctl "$@"
)sh";

}  // namespace

Result<int> completion(const Context& context) {
  const bool bash = context.options.name == "bash";
  std::string cases, described;
  std::vector<std::string_view> names, with_plans;
  for (const Verb& verb : verbs()) {
    const std::string options = options_of(verb);
    if (verb.hidden) continue;
    names.push_back(verb.name);
    if (verb.takes_plan) with_plans.push_back(verb.name);
    std::string summary(verb.summary);
    for (std::size_t at = 0; (at = summary.find_first_of("':", at)) != std::string::npos; ++at) summary[at] = ' ';
    described += fmt::format("    '{}:{}'\n", verb.name, summary);
    cases += bash ? fmt::format("      {}) words=\"{}\" ;;\n", verb.name, options)
                  : fmt::format("    {}) compadd -- {} ;;\n", verb.name, options);
  }
  if (bash)
    fmt::print(kBash, fmt::arg("verbs", fmt::join(names, " ")), fmt::arg("cases", cases),
               fmt::arg("plans", fmt::join(with_plans, "|")));
  else
    fmt::print(kZsh, fmt::arg("verbs", described), fmt::arg("cases", cases));
  return kDone;
}

}  // namespace p2pd::ctl
