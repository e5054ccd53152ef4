// SPDX-License-Identifier: MIT
#include "machine/modules/modprobe_files.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>

namespace p2pd {
namespace {

constexpr std::array<std::string_view, 5> kModprobeDirectories{
    "/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d"};

/// A line of modprobe.d: "install nvidia /bin/false".
struct Statement {
  std::string verb, module, rest, file;
  int line = 0;

  std::string source() const { return file + ":" + std::to_string(line); }
};

/// Statements of all files, in modprobe's order.
Result<std::vector<Statement>> statements(const Host& host) {
  std::vector<Statement> out;
  for (const auto& [name, path] : TRY(modprobe_files(host))) {
    for (const ModprobeLine& line : modprobe_lines(TRY(modprobe_content(host, path)))) {
      std::string_view rest = line.text;
      const std::string verb(take_word(rest)), module = kernel_name(take_word(rest));
      rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
      out.push_back({verb, module, std::string(rest), path, line.number});
    }
  }
  return out;
}

}  // namespace

std::string kernel_name(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
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

Result<std::string> modprobe_content(const Host& host, const std::string& path) {
  const auto info = host.files().stat(path);
  if (!info && info.error().code == ErrorCode::not_found) return std::string();
  if (info && !S_ISREG(info->st_mode)) return std::string();
  return host.files().read(path);
}

Result<std::map<std::string, std::string>> modprobe_files(const Host& host) {
  std::map<std::string, std::string> out;
  for (const std::string_view directory : kModprobeDirectories) {
    const auto names = host.files().list(directory);
    if (!names && names.error().code == ErrorCode::not_found) continue;
    if (!names) return Failure(names.error());
    for (const std::string& name : *names)
      if (!name.starts_with('.') && (name.ends_with(".conf") || name.ends_with(".alias")))
        out.emplace(name, std::string(directory) + "/" + name);
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

Result<std::optional<InstallLine>> install_line(const Host& host, std::string_view module) {
  for (const Statement& one : TRY(statements(host)))
    if (one.verb == "install" && !one.rest.empty() && one.file != kTrialBan &&
        ::fnmatch(one.module.c_str(), kernel_name(module).c_str(), 0) == 0)
      return InstallLine{one.rest, one.source()};
  return std::nullopt;
}

}  // namespace p2pd
