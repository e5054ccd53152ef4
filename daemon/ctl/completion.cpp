// SPDX-License-Identifier: MIT
// p2pctl completion: completions for bash, zsh and fish, from the table of verbs and their declared options.
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

// The steps of the plans here, and the plans' names. bash expands words of a list: no other characters may be in one.
constexpr std::string_view kSteps = R"sh(find /etc/p2pd/plans /usr/lib/p2pd/plans -name '*.yaml' \
    -exec sed -nE 's/^ *- *\{?(gate|goal|requires|alternative|upkeep): *([a-z0-9-]+).*/\2/p' '{}' + 2>/dev/null | sort -u)sh";
constexpr std::string_view kPlans =
    R"sh(ls /etc/p2pd/plans /usr/lib/p2pd/plans 2>/dev/null | sed -nE 's/^([a-z0-9-]+)\.yaml$/\1/p')sh";

// The builds of the catalogue, for `catalogue diff` and `catalogue allow`.
constexpr std::string_view kBuilds =
    R"sh(p2pctl catalogue --json 2>/dev/null | sed -nE 's/^      "id": "([A-Za-z0-9_./+-]+)",*$/\1/p')sh";

// The options of p2p-bench, which `bench` passes on.
constexpr std::string_view kBench = R"sh(p2p-bench --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]+' | sort -u)sh";

constexpr std::string_view kBash = R"sh(# SPDX-License-Identifier: MIT
# bash completion of p2pctl, made by "p2pctl completion bash"
_p2pctl() {{
  COMPREPLY=()
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}} words
  case $before in
    -H|--host) COMPREPLY=($(compgen -A hostname -- "$word")); return ;;
    --plan) COMPREPLY=($(compgen -W "$({plans})" -- "$word")); return ;;
    --root|--state|--output|--key|--soak|--save|--against) return ;;
  esac
  if [ "$COMP_CWORD" = 2 ] && [ "$verb" = help ]; then
    words="{verbs}"
  elif [ "$COMP_CWORD" = 1 ]; then
    words="{verbs} help --help --version"
  else
    case $verb in
{cases}    esac
    case $verb in
      bench) words="$words $({bench})" ;;
      record|report) [[ $word = -* ]] || return ;;
    esac
    case $word in
      -*) ;;
      *) case $verb in
           {planned}) words="$words $({plans})" ;;
           explain) words="$words $({steps})" ;;
           completion) words="$words bash zsh fish" ;;
           catalogue) [ "$COMP_CWORD" = 2 ] || words="$words $({builds})" ;;
         esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _p2pctl p2pctl
)sh";
constexpr std::string_view kBashVerb = "      {verb}) words=\"{options}\" ;;\n";

constexpr std::string_view kZsh = R"sh(#compdef p2pctl
# SPDX-License-Identifier: MIT
# zsh completion of p2pctl, made by "p2pctl completion zsh"
_p2pctl() {{
  local -a verbs
  verbs=(
{described}    'help:show the options of a verb'
  )
  if (( CURRENT == 2 )) || [[ $CURRENT = 3 && $words[2] = help ]]; then
    _describe verb verbs
    return
  fi
  case $words[CURRENT-1] in
    -H|--host) _hosts; return ;;
    --plan) compadd -- $({plans}); return ;;
    --root|--state|--output|--key|--soak|--save|--against) _files; return ;;
  esac
  case $words[2] in
{cases}  esac
  case $words[2] in
    {planned}) compadd -- $({plans}) ;;
    explain) compadd -- $({steps}) ;;
    completion) compadd -- bash zsh fish ;;
    catalogue) (( CURRENT == 3 )) || compadd -- $({builds}) ;;
    bench) compadd -- $({bench}) ;;
  esac
  _files
}}
_p2pctl "$@"
)sh";
constexpr std::string_view kZshVerb = "    {verb}) compadd -- {options} ;;\n";

constexpr std::string_view kFish = R"sh(# SPDX-License-Identifier: MIT
# fish completion of p2pctl, made by "p2pctl completion fish"
function __p2pctl_plans
  {plans}
end
function __p2pctl_steps
  {steps}
end
function __p2pctl_bench
  {bench}
end
function __p2pctl_builds
  {builds}
end
complete -c p2pctl -n __fish_use_subcommand -f -a 'help --help --version'
complete -c p2pctl -n '__fish_seen_subcommand_from help' -f -a '{verbs}'
complete -c p2pctl -n '__fish_seen_subcommand_from diff allow' -f -a '(__p2pctl_builds)'
complete -c p2pctl -n '__fish_seen_subcommand_from bench' -f -a '(__p2pctl_bench)'
{cases}complete -c p2pctl -n '__fish_seen_subcommand_from {fish_planned}' -f -a '(__p2pctl_plans)'
complete -c p2pctl -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'
complete -c p2pctl -n '__fish_seen_subcommand_from explain' -f -a '(__p2pctl_steps)'
complete -c p2pctl -l root -l state -l output -l key -l soak -l save -l against -r -F
complete -c p2pctl -s H -l host -x -a '(__fish_print_hostnames)'
complete -c p2pctl -l plan -x -a '(__p2pctl_plans)'
)sh";
constexpr std::string_view kFishVerb = R"sh(complete -c p2pctl -n __fish_use_subcommand -f -a {verb} -d '{summary}'
complete -c p2pctl -n '__fish_seen_subcommand_from {verb}' -a '{options}'
)sh";

/// Text without the characters that end a single-quoted word or a zsh description.
std::string plain(std::string_view summary) {
  std::string text(summary);
  for (std::size_t at = 0; (at = text.find_first_of("':", at)) != std::string::npos; ++at) text[at] = ' ';
  return text;
}

}  // namespace

Result<int> completion(const Context& context) {
  const std::string& shell = context.options.name;
  const std::string_view each = shell == "bash" ? kBashVerb : shell == "zsh" ? kZshVerb : kFishVerb;
  std::string cases, described;
  std::vector<std::string_view> names, planned;
  for (const Verb& verb : verbs()) {
    if (verb.group.empty()) continue;
    names.push_back(verb.name);
    if (verb.takes_plan) planned.push_back(verb.name);
    const std::string summary = plain(verb.summary);
    described += fmt::format("    '{}:{}'\n", verb.name, summary);
    cases += fmt::format(fmt::runtime(each), fmt::arg("verb", verb.name), fmt::arg("options", options_of(verb)),
                         fmt::arg("summary", summary));
  }
  fmt::print(fmt::runtime(shell == "bash"  ? kBash
                          : shell == "zsh" ? kZsh
                                           : kFish),
             fmt::arg("verbs", fmt::join(names, " ")), fmt::arg("described", described), fmt::arg("cases", cases),
             fmt::arg("planned", fmt::join(planned, "|")), fmt::arg("fish_planned", fmt::join(planned, " ")),
             fmt::arg("plans", kPlans), fmt::arg("steps", kSteps), fmt::arg("bench", kBench),
             fmt::arg("builds", kBuilds));
  return kDone;
}

}  // namespace p2pd::ctl
