// SPDX-License-Identifier: MIT
#include "machine/boot/kernel_arguments.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <sstream>

namespace p2pd {
namespace {

constexpr std::string_view kOptionKeys[] = {"pci", "iommu", "intel_iommu", "amd_iommu"};
constexpr std::string_view kRepeatedKeys[] = {"console", "modprobe.blacklist"};

std::string normal(std::string key) {
  std::ranges::replace(key, '-', '_');
  return key;
}

/// Items of a list, without empty ones.
std::vector<std::string> items(const std::string& list, char separator) {
  std::vector<std::string> out;
  std::istringstream rest(list);
  for (std::string item; std::getline(rest, item, separator);)
    if (!item.empty()) out.push_back(item);
  return out;
}

/// Comma options of an argument by name, "noats" or "disable_acs_redir"; of those with one name the last.
std::map<std::string, std::string> options_of(const KernelArgument& argument) {
  std::map<std::string, std::string> options;
  for (std::string& option : items(argument.value.value_or(""), ','))
    options[option.substr(0, option.find('='))] = std::move(option);
  return options;
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
  const std::string key = normal(wanted.key);
  const bool has_options = std::ranges::count(kOptionKeys, key) > 0;
  const bool repeated = std::ranges::count(kRepeatedKeys, key) > 0;
  std::map<std::string, std::string> running;  // options
  for (const KernelArgument& argument : line) {
    if (normal(argument.key) != key) continue;
    if (key != "pci") running.clear();
    for (auto& [name, option] : options_of(argument)) running[name] = option;
    if (repeated && state.in_force) break;
    state.running = argument.text();
    state.in_force = argument.value == wanted.value;
  }
  if (has_options) {
    const std::map<std::string, std::string> options = options_of(wanted);
    state.in_force = !options.empty() && std::ranges::includes(running, options);
  }
  return state;
}

bool all_in_force(const std::vector<std::string>& wanted, const std::vector<KernelArgument>& line) {
  return std::ranges::all_of(
      wanted, [&](const std::string& argument) { return argument_state(kernel_argument(argument), line).in_force; });
}

std::vector<std::string> ports_without_acs_redirect(const std::vector<KernelArgument>& line) {
  constexpr std::string_view kOption = "disable_acs_redir=";
  constexpr std::size_t kShort = 7;  // bytes of "02:00.0", an address without its domain
  std::vector<std::string> ports;
  for (const KernelArgument& argument : line)
    for (const std::string& option : items(argument.key == "pci" ? argument.value.value_or("") : "", ','))
      if (option.starts_with(kOption)) ports = items(option.substr(kOption.size()), ';');
  for (std::string& port : ports)
    if (port.size() == kShort) port.insert(0, "0000:");
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

std::string isolation_cost(const std::vector<std::string>& arguments) {
  std::string cost;
  for (const std::string& text : arguments) {
    const KernelArgument argument = kernel_argument(text);
    const bool translation = argument.key == "iommu" || argument.key == "intel_iommu" || argument.key == "amd_iommu";
    if (translation && (argument.value == "pt" || argument.value == "off"))
      cost += text + ": every device can read and write all of this host's memory; ";
    if (argument.key == "pci" && argument.value.value_or("").find("acs") != std::string::npos)
      cost += "pci=disable_acs_redir: pass no device below these ports to a guest; ";
  }
  if (!cost.empty()) cost.resize(cost.size() - 2);
  return cost;
}

std::vector<std::string> merged_arguments(std::vector<std::string> first, const std::vector<std::string>& second) {
  for (const std::string& argument : second)
    if (std::ranges::count(first, argument) == 0) first.push_back(argument);
  std::vector<KernelArgument> line;
  for (const std::string& argument : first) line.push_back(kernel_argument(argument));
  std::erase_if(first, [&](const std::string& argument) {
    return std::ranges::count(second, argument) == 0 && !all_in_force({argument}, line);
  });
  return first;
}

}  // namespace p2pd
