// SPDX-License-Identifier: MIT
#include "machine/modules/modprobe_d.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>

#include "machine/boot/kernel_arguments.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kCommandLine = "/proc/cmdline";
constexpr std::string_view kNvidia = "nvidia";
constexpr std::string_view kHeader = "# Written by p2pd; undone by `p2pctl revert`.\n";
constexpr std::string_view kNote = "# registry keys: ";

std::string text_of(const nlohmann::json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string dword_of(const nlohmann::json& value) {
  const auto number = value.get<std::uint32_t>();
  return number < 10 ? std::to_string(number) : fmt::format("{:#x}", number);
}

nlohmann::json object_of(const Parameters& parameters, const char* name) {
  return parameters.value(name, nlohmann::json::object());
}

bool consists_of(std::string_view text, std::string_view others) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           others.find(c) != std::string_view::npos;
  });
}

void set(Dwords& dwords, const std::string& key, const std::string& value) {
  const auto found = std::ranges::find(dwords, key, &Dwords::value_type::first);
  if (found == dwords.end())
    dwords.emplace_back(key, value);
  else
    found->second = value;
}

const ModuleOption* last(const std::vector<ModuleOption>& options, std::string_view module, std::string_view name) {
  const auto found = std::find_if(options.rbegin(), options.rend(), [&](const ModuleOption& option) {
    return option.module == kernel_name(module) && option.name == kernel_name(name);
  });
  return found == options.rend() ? nullptr : &*found;
}

/// The drop-in, parsed: wanted values of every step of p2pd.
struct DropIn {
  std::map<std::string, std::map<std::string, std::string>> options;  ///< module, name, value
  Dwords dwords;                                                      ///< p2pd's keys, without those of other files
};

/// Name of the key for all GPUs; empty: `key` is that one.
std::string for_all_gpus(const std::string& key) { return is_device_key(key) ? key.substr(key.find('/') + 1) : ""; }

/// Name of the key that counts for a GPU without a key of its own. None replaces kForceStatic of one GPU: for all, it
/// keeps those from starting whose BAR1 is small.
std::string in_place_of(const std::string& key) { return key.ends_with("/RMForceStaticBar1") ? "" : for_all_gpus(key); }

std::string_view option_of(std::string_view key) { return is_device_key(key) ? kDeviceDwords : kRegistryDwords; }

/// Checks that a registry key has the wanted value; bits of ForceP2P beyond the wanted ones do no harm: 0x111 gives
/// atomics besides the reads and writes of 0x11.
bool same_dword(std::string_view key, std::string_view there, std::string_view wanted) {
  const auto has = kernel_number(there), needs = kernel_number(wanted);
  if (same_value(there, wanted)) return true;
  if (key != "ForceP2P" || !has || !needs || *needs == 0) return false;
  std::uint64_t fields = 0;
  for (const unsigned field : {0x3U, 0x30U, 0x300U})  // reads, writes, atomics; 0: not asked for
    if ((*needs & field) != 0) fields |= field;
  return (*has & fields) == *needs;
}

/// Adds wanted keys to p2pd's own. One that holds stays as it is: ForceP2P=0x111 of another step includes 0x11.
void add(Dwords& own, const nlohmann::json& wanted) {
  for (const auto& [name, value] : wanted.items()) {
    const std::string key = for_all_gpus(name);
    if (key.empty()) continue;
    std::erase_if(own, [&, of = &wanted](const auto& one) {
      return one.first == key || (one.first.ends_with("/" + key) && !of->contains(one.first));
    });
  }
  for (const auto& [key, value] : wanted.items()) {
    const auto found = std::ranges::find(own, key, &Dwords::value_type::first);
    if (found == own.end() || !same_dword(key, found->second, dword_of(value))) set(own, key, dword_of(value));
  }
}

/// Content of a modprobe.d file; empty if it is masked by a link to /dev/null, or is a dangling link.
Result<std::string> modprobe_content(const Host& host, const std::string& path) {
  const auto info = host.files().stat(path);
  const bool is_empty = info ? !S_ISREG(info->st_mode) : info.error().code == ErrorCode::not_found;
  return is_empty ? std::string() : host.files().read(path);
}

/// Statements of all files, in modprobe's order.
Result<std::vector<Statement>> statements(const Host& host) {
  std::vector<Statement> out;
  for (const auto& [name, path] : TRY(kmod_files(host, "modprobe.d")))
    for (Statement& one : statements_of(TRY(modprobe_content(host, path)), path)) out.push_back(std::move(one));
  return out;
}

Result<DropIn> read_drop_in(const Host& host) {
  DropIn out;
  if (!host.files().exists(kModprobeDropIn)) return out;
  const std::string text = TRY(host.files().read(kModprobeDropIn));
  if (!text.starts_with(kHeader))
    return fail(ErrorCode::invalid, std::string(kModprobeDropIn) + " is in the way: p2pd did not write it",
                "Move it to another name that sorts before it, then try again.");
  if (text.substr(kHeader.size()).starts_with(kNote)) {
    const std::size_t at = kHeader.size() + kNote.size();
    out.dwords = parse_dwords(kRegistryDwords, text.substr(at, text.find('\n', at) - at));
  }
  for (const ModuleOption& option : TRY(parse_modprobe_d(text, kModprobeDropIn)))
    if (option.name != kRegistryDwords && option.name != kDeviceDwords)
      out.options[option.module][option.name] = option.value;
  return out;
}

}  // namespace

Result<std::vector<ModuleOption>> parse_modprobe_d(std::string_view text, std::string_view file) {
  std::vector<ModuleOption> out;
  for (const Statement& one : statements_of(text, std::string(file))) {
    if (one.verb != "options") continue;
    if (std::ranges::count(one.rest, '"') % 2 != 0)
      return fail(ErrorCode::invalid,
                  fmt::format("{}: a quotation mark that is not closed, it swallows every later option of {}",
                              one.source(), one.module),
                  "Close the quotation mark, then try again.");
    for (const KernelArgument& option : parse_kernel_line(one.rest))
      out.push_back({one.module, kernel_name(option.key), option.value.value_or(""), one.file, one.line});
  }
  return out;
}

Result<std::vector<ModuleOption>> module_options(const Host& host, const std::optional<std::string>& drop_in) {
  std::map<std::string, std::string> files = TRY(kmod_files(host, "modprobe.d"));
  const std::string own(kModprobeDropIn.substr(kModprobeDropIn.rfind('/') + 1));
  if (drop_in) files[own] = kModprobeDropIn;
  std::vector<ModuleOption> out;
  for (const auto& [name, path] : files) {
    const std::string text = drop_in && path == kModprobeDropIn ? *drop_in : TRY(modprobe_content(host, path));
    for (ModuleOption& option : TRY(parse_modprobe_d(text, path))) out.push_back(std::move(option));
  }
  if (!host.files().exists(kCommandLine)) return out;
  for (const KernelArgument& argument : parse_kernel_line(TRY(host.line(kCommandLine)))) {
    const std::size_t dot = argument.key.find('.');
    if (dot == std::string::npos) continue;
    out.push_back({kernel_name(argument.key.substr(0, dot)), kernel_name(argument.key.substr(dot + 1)),
                   argument.value.value_or(""), std::string(kCommandLine), 0});
  }
  return out;
}

std::string device_key(std::string_view address, std::string_view key) {
  return std::string(address) + "/" + std::string(key);
}

bool is_device_key(std::string_view name) { return name.find('/') != std::string_view::npos; }

Dwords parse_dwords(std::string_view option, std::string_view value) {
  Dwords out;
  std::string address, text(value);
  std::erase_if(text, [](char c) { return c == ' ' || (c >= '\t' && c <= '\r') || c == '"'; });
  std::istringstream settings(text);
  for (std::string one; std::getline(settings, one, ';');) {
    const std::size_t equals = std::min(one.find('='), one.size());
    const std::string key = one.substr(0, equals), word = one.substr(std::min(equals + 1, one.size()));
    if (option == kDeviceDwords && key == "pci")
      address = word;
    else if (!key.empty() && (option != kDeviceDwords || !address.empty()))
      set(out, option == kDeviceDwords ? device_key(address, key) : key, word);
  }
  return out;
}

std::string dwords_text(std::string_view option, Dwords dwords) {
  const auto address = [&](const auto& one) {
    return option == kDeviceDwords ? one.first.substr(0, one.first.find('/')) : std::string();
  };
  std::ranges::stable_sort(dwords, {}, address);
  std::string out, of;
  for (const auto& one : dwords) {
    if (address(one) != of) out += ";pci=" + (of = address(one));
    out += ";" + one.first.substr(of.empty() ? 0 : of.size() + 1) + "=" + one.second;
  }
  return out.empty() ? out : out.substr(1);
}

Result<void> validate_module_options(const Parameters& parameters) {
  const auto module = parameters.value("module", std::string());
  const auto invalid = [](std::string what) { return fail(ErrorCode::invalid, std::move(what)); };
  if (!consists_of(module, "_-")) return invalid("module: \"" + module + "\" is not the name of a module");
  const auto options = object_of(parameters, "options");
  const auto dwords = object_of(parameters, "registry_dwords");
  if (options.empty() && dwords.empty() && !parameters.contains("entry"))
    return invalid("options: at least one option is expected");
  if (parameters.contains("entry") && module != kNvidia) return invalid("entry: only module nvidia is of a driver");
  for (const auto& [name, value] : options.items()) {
    if (!consists_of(name, "_-")) return invalid("options: \"" + name + "\" is not the name of an option");
    if (kernel_name(name) == kRegistryDwords || kernel_name(name) == kDeviceDwords)
      return invalid("options: the keys of " + name + " are expected in registry_dwords");
    if (!value.is_string() && !value.is_number_integer())
      return invalid("options: " + name + ": a string or an integer is expected");
    for (const char c : text_of(value))
      if (c < ' ' || c > '~' || c == '"' || c == '\\')
        return invalid("options: " + name + ": printable ASCII without quotes and backslash is expected");
  }
  if (!dwords.empty() && module != kNvidia) return invalid("registry_dwords: only module nvidia has them");
  for (const auto& [key, value] : dwords.items()) {
    if (!consists_of(key, is_device_key(key) ? "_:./" : "_"))
      return invalid("registry_dwords: \"" + key + "\" is not the name of a registry key");
    if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<std::int64_t>() < 0) ||
        value.get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max())
      return invalid("registry_dwords: " + key + ": an integer from 0 to 4294967295 is expected");
  }
  return {};
}

std::optional<std::uint64_t> kernel_number(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  const int base = hex ? 16 : text.starts_with('0') ? 8 : 10;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return negative ? static_cast<std::uint32_t>(0 - number) : number;
}

bool same_value(std::string_view left, std::string_view right) {
  const auto truth = [](std::string_view text) -> std::optional<bool> {  // follows the kernel's kstrtobool()
    if (text == "Y" || text == "y" || text == "1" || text == "on") return true;
    if (text == "N" || text == "n" || text == "0" || text == "off") return false;
    return std::nullopt;
  };
  const auto shows_truth = [](std::string_view text) { return text == "Y" || text == "N"; };  // sysfs, for bool alone
  if (left == right) return true;
  if (shows_truth(left) || shows_truth(right)) return truth(left) && truth(left) == truth(right);
  const auto number = kernel_number(left);
  return number && number == kernel_number(right);
}

std::vector<OptionState> option_states(const std::vector<ModuleOption>& options, const Parameters& parameters) {
  const auto module = parameters.at("module").get<std::string>();
  const auto options_wanted = object_of(parameters, "options");
  const auto dwords_wanted = object_of(parameters, "registry_dwords");
  std::vector<OptionState> out;
  for (const auto& [name, value] : options_wanted.items()) {
    OptionState state{name, false, text_of(value), {}, {}, false};
    if (const ModuleOption* option = last(options, module, name)) {
      state.configured = option->value;
      state.source = option->source();
      state.holds = value.is_string() ? option->value == state.wanted : same_value(option->value, state.wanted);
    }
    out.push_back(std::move(state));
  }
  for (const auto& [key, value] : dwords_wanted.items()) {
    OptionState state{key, true, dword_of(value), {}, {}, false};
    for (std::string name = key; !name.empty() && !state.configured; name = in_place_of(name)) {
      const ModuleOption* registry = last(options, module, option_of(name));
      if (registry == nullptr) continue;
      if (state.source.empty()) state.source = registry->source();
      for (const auto& [known, text] : parse_dwords(option_of(name), registry->value))
        if (known == name) state.configured = text;
    }
    state.holds = state.configured && same_dword(key, *state.configured, state.wanted);
    out.push_back(std::move(state));
  }
  return out;
}

Result<std::string> modprobe_drop_in(const Host& host, const Parameters& parameters) {
  DropIn drop_in = TRY(read_drop_in(host));
  const std::string module = kernel_name(parameters.at("module").get<std::string>());
  const auto options_wanted = object_of(parameters, "options");
  for (const auto& [name, value] : options_wanted.items()) drop_in.options[module][kernel_name(name)] = text_of(value);
  add(drop_in.dwords, object_of(parameters, "registry_dwords"));
  std::string text(kHeader);
  if (!drop_in.dwords.empty()) {
    std::vector<ModuleOption> others = TRY(module_options(host, ""));  // reads p2pd's file as empty
    std::erase_if(others, [](const ModuleOption& option) { return option.file == kCommandLine; });
    text += std::string(kNote) + dwords_text(kRegistryDwords, drop_in.dwords) + "\n";
    for (const std::string_view option : {kRegistryDwords, kDeviceDwords}) {
      const ModuleOption* theirs = last(others, kNvidia, option);
      Dwords all = parse_dwords(option, theirs == nullptr ? "" : theirs->value);
      for (const auto& [key, value] : drop_in.dwords)
        if (option_of(key) == option) set(all, key, value);
      if (!all.empty())
        drop_in.options[std::string(kNvidia)][std::string(option)] = dwords_text(option, std::move(all));
    }
  }
  for (const auto& [name, options] : drop_in.options) {
    text += "options " + name;
    for (const auto& [option, value] : options)
      text += " " + option + "=" + (value.empty() || consists_of(value, "_.,:/+-") ? value : "\"" + value + "\"");
    text += "\n";
  }
  return text;
}

std::string kernel_name(std::string_view name) {
  std::string out(name);
  std::ranges::replace(out, '-', '_');
  return out;
}

std::vector<ModprobeLine> modprobe_lines(std::string_view text) {
  std::vector<ModprobeLine> out;
  ModprobeLine line{{}, 1};
  int number = 1;
  for (std::size_t at = 0; at < text.size(); ++at) {
    char c = text[at];
    if (c == '\n') {
      out.push_back(std::move(line));
      line = {{}, ++number};
      continue;
    }
    if (c == '\\') {
      if (++at == text.size()) break;
      c = text[at];
      if (c == '\n') {
        ++number;
        continue;
      }
    }
    line.text += c;
  }
  if (!line.text.empty()) out.push_back(std::move(line));
  return out;
}

std::string_view take_word(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  const std::string_view word = rest.substr(0, rest.find_first_of(" \t"));
  rest.remove_prefix(word.size());
  return word;
}

std::vector<Statement> statements_of(std::string_view text, const std::string& file) {
  std::vector<Statement> out;
  for (const ModprobeLine& line : modprobe_lines(text)) {
    std::string_view rest = line.text;
    const std::string verb(take_word(rest)), module = kernel_name(take_word(rest));
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    out.push_back({verb, module, std::string(rest), file, line.number});
  }
  return out;
}

Result<std::map<std::string, std::string>> kmod_files(const Host& host, std::string_view directory) {
  std::map<std::string, std::string> out;
  for (const std::string_view place : {"/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"}) {
    const std::string path = fmt::format("{}/{}", place, directory);
    const auto names = host.files().list(path);
    if (!names && names.error().code == ErrorCode::not_found) continue;
    if (!names) return Failure(names.error());
    for (const std::string& name : *names)
      if (!name.starts_with('.') &&
          (name.ends_with(".conf") || (directory == "modprobe.d" && name.ends_with(".alias"))))
        out.emplace(name, path + "/" + name);
  }
  return out;
}

Result<std::vector<BannedModule>> banned_modules(const Host& host) {
  std::vector<BannedModule> out;
  for (Statement& one : TRY(statements(host))) {
    std::string_view rest = one.rest, does = take_word(rest);
    does.remove_prefix(does.rfind('/') + 1);  // npos + 1 is 0
    const bool banned = one.verb == "blacklist" || (one.verb == "alias" && does == "off") ||
                        (one.verb == "install" && (does == "true" || does == "false"));
    if (banned && !one.module.empty()) out.push_back({std::move(one.module), one.source()});
  }
  return out;
}

Result<std::optional<Statement>> install_line(const Host& host, std::string_view module) {
  for (const Statement& one : TRY(statements(host)))
    if (one.verb == "install" && !one.rest.empty() && one.file != kTrialBan &&
        ::fnmatch(one.module.c_str(), kernel_name(module).c_str(), 0) == 0)
      return one;
  return std::nullopt;
}

}  // namespace p2pd
