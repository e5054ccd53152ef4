// SPDX-License-Identifier: MIT
#include "machine/boot/kernel_arguments.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

namespace p2pd {
namespace {

enum class Rule { last, last_contains, any, options };

struct KeyRule {
  std::string_view key;
  Rule rule;
};

constexpr std::array kRules{
    KeyRule{"pci", Rule::options},
    KeyRule{"iommu", Rule::last_contains},
    KeyRule{"intel_iommu", Rule::last_contains},
    KeyRule{"amd_iommu", Rule::last_contains},
    KeyRule{"console", Rule::any},
    KeyRule{"modprobe.blacklist", Rule::any},
};

std::string normal(std::string_view key) {
  std::string out(key);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

Rule rule_of(std::string_view key) {
  for (const KeyRule& entry : kRules)
    if (entry.key == normal(key)) return entry.rule;
  return Rule::last;
}

std::vector<std::string> comma_options(const KernelArgument& argument) {
  std::vector<std::string> out;
  const std::string value = argument.value.value_or("");
  for (std::size_t at = 0; at <= value.size();) {
    const std::size_t comma = std::min(value.find(',', at), value.size());
    if (comma > at) out.push_back(value.substr(at, comma - at));
    at = comma + 1;
  }
  return out;
}

bool has_options(const KernelArgument& wanted, const std::map<std::string, std::string>& running) {
  const std::vector<std::string> options = comma_options(wanted);
  return !options.empty() && std::all_of(options.begin(), options.end(), [&](const std::string& option) {
    const auto found = running.find(option.substr(0, option.find('=')));
    return found != running.end() && found->second == option;
  });
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

std::string KernelArgument::text() const {
  if (!value) return key;
  if (value->find(' ') != std::string::npos) return key + "=\"" + *value + "\"";
  return key + "=" + *value;
}

KernelArgument kernel_argument(std::string_view text) {
  const std::size_t equals = text.find('=', 1);  // a leading '=' is part of the key, as in the kernel
  if (equals == std::string_view::npos) return {std::string(text), std::nullopt};
  return {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

// Follows the kernel's lib/cmdline.c, next_arg(): a quote toggles anywhere; only those around all or the value are
// removed.
std::vector<KernelArgument> parse_kernel_line(std::string_view line) {
  std::vector<KernelArgument> out;
  std::size_t at = 0;
  while (true) {
    while (at < line.size() && is_space(line[at])) ++at;
    if (at >= line.size()) return out;
    bool in_quote = false;
    const std::size_t begin = at;
    for (; at < line.size() && (in_quote || !is_space(line[at])); ++at)
      if (line[at] == '"') in_quote = !in_quote;
    std::string_view text = line.substr(begin, at - begin);
    const bool quoted = text.front() == '"';
    if (quoted) text.remove_prefix(1);
    if (quoted && !text.empty() && text.back() == '"') text.remove_suffix(1);
    KernelArgument argument = kernel_argument(text);
    if (argument.value && argument.value->starts_with('"')) {
      argument.value->erase(0, 1);
      if (argument.value->ends_with('"')) argument.value->pop_back();
    }
    if (argument.key == "--" && !argument.value) return out;
    out.push_back(std::move(argument));
  }
}

ArgumentState argument_state(const KernelArgument& wanted, const std::vector<KernelArgument>& line) {
  ArgumentState state;
  std::map<std::string, std::string> options;  // last text of each comma option, by name
  const Rule rule = rule_of(wanted.key);
  for (const KernelArgument& argument : line) {
    if (normal(argument.key) != normal(wanted.key)) continue;
    if (rule == Rule::last_contains) options.clear();
    for (const std::string& option : comma_options(argument)) options[option.substr(0, option.find('='))] = option;
    const bool equal = argument.value == wanted.value;
    if (rule == Rule::any && state.in_force) break;
    state.running = argument.text();
    state.in_force = equal;
  }
  if (rule == Rule::options || rule == Rule::last_contains) state.in_force = has_options(wanted, options);
  return state;
}

bool all_in_force(const std::vector<std::string>& wanted, const std::vector<KernelArgument>& line) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& argument) {
    return argument_state(kernel_argument(argument), line).in_force;
  });
}

std::vector<std::string> ports_without_acs_redirect(const std::vector<KernelArgument>& line) {
  constexpr std::string_view kOption = "disable_acs_redir=";
  constexpr std::size_t kShort = 7;  // bytes of "02:00.0", an address without its domain
  std::string last;
  for (const KernelArgument& argument : line)
    if (argument.key == "pci")
      for (const std::string& option : comma_options(argument))
        if (option.starts_with(kOption)) last = option.substr(kOption.size()) + ';';
  std::vector<std::string> ports;
  for (std::size_t at = 0, end; (end = last.find(';', at)) != std::string::npos; at = end + 1)
    if (end > at) ports.push_back((end - at == kShort ? "0000:" : "") + last.substr(at, end - at));
  return ports;
}

bool may_keep_acs_redirect(std::string_view release) {
  constexpr std::array<int, 4> kCorrectedIn{1000, 23, 11, 2};  // patch level of 6.11 (in none), 6.12, 6.13, 6.14
  int major = 0, minor = 0, patch = 0;
  if (std::sscanf(std::string(release).c_str(), "%d.%d.%d", &major, &minor, &patch) < 2 || major != 6) return false;
  const auto index = static_cast<std::size_t>(minor) - 11;
  return minor >= 11 && index < kCorrectedIn.size() && patch < kCorrectedIn.at(index);
}

Result<void> validate_kernel_arguments(const Parameters& parameters) {
  constexpr std::size_t kCommandLine = 2047;  // limit in bytes: COMMAND_LINE_SIZE of x86, less its end
  std::size_t bytes = 0;
  if (const auto found = parameters.find("arguments"); found != parameters.end())
    for (const auto& argument : *found) bytes += argument.get_ref<const std::string&>().size() + 1;
  if (bytes > kCommandLine) return fail(ErrorCode::invalid, "arguments: longer than a kernel line, 2047 bytes");
  const std::vector<std::string> arguments = wanted_kernel_arguments(parameters);
  if (arguments.empty()) return fail(ErrorCode::invalid, "arguments: at least one kernel argument is expected");
  for (const std::string& argument : arguments) {
    if (argument.empty()) return fail(ErrorCode::invalid, "arguments: an empty kernel argument");
    for (const char c : argument)
      if (c <= ' ' || c > '~' || std::string_view("\"'\\$`").find(c) != std::string_view::npos)
        return fail(ErrorCode::invalid, "arguments: \"" + argument +
                                            "\" is not one kernel argument: printable ASCII without spaces, "
                                            "quotes, backslash, dollar sign and backtick is expected");
    const std::string key = kernel_argument(argument).key;
    if (key == "--" || key.starts_with('='))
      return fail(ErrorCode::invalid, "arguments: \"" + argument + "\" is not KEY or KEY=VALUE");
    if (key.starts_with("p2pd."))
      return fail(ErrorCode::invalid, "arguments: \"" + argument + "\": names that start with p2pd. are p2pd's own");
  }
  return {};
}

std::vector<std::string> wanted_kernel_arguments(const Parameters& parameters) {
  const auto found = parameters.find("arguments");
  if (found == parameters.end()) return {};
  return merged_arguments({}, found->get<std::vector<std::string>>());
}

std::vector<std::string> merged_arguments(std::vector<std::string> first, const std::vector<std::string>& second) {
  const auto in = [](const std::vector<std::string>& list, const std::string& argument) {
    return std::find(list.begin(), list.end(), argument) != list.end();
  };
  for (const std::string& argument : second)
    if (!in(first, argument)) first.push_back(argument);
  std::vector<KernelArgument> line;
  for (const std::string& argument : first) line.push_back(kernel_argument(argument));
  std::erase_if(first, [&](const std::string& argument) {
    return !in(second, argument) && !argument_state(kernel_argument(argument), line).in_force;
  });
  return first;
}

}  // namespace p2pd
