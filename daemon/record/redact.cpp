// SPDX-License-Identifier: MIT
#include "record/redact.hpp"

#include <algorithm>
#include <cctype>

namespace p2pd {
namespace {

constexpr std::string_view kIdentifies[] = {"serial", "uuid", "guid", "pdi", "host id"};
/// Kernel arguments whose value may name the host, its network or a secret.
constexpr std::string_view kPrivateArguments[] = {"hostname=",
                                                  "systemd.hostname=",
                                                  "ip=",
                                                  "nfsroot=",
                                                  "ds=",
                                                  "password=",
                                                  "key=",
                                                  "url=",
                                                  "ks=",
                                                  "cloud-config-url=",
                                                  "ifname=",
                                                  "nameserver=",
                                                  "systemd.machine_id="};
/// Host names given by distributions and installers, which identify no machine.
constexpr std::string_view kCommonNames[] = {"debian", "ubuntu",  "localhost", "linux", "nvidia", "kernel", "root",
                                             "server", "proxmox", "host",      "boot",  "gpu",    "pci"};
/// Words of the kernel's log that precede the name of a process.
constexpr std::string_view kBeforeProcess[] = {"name=", "comm=", "comm: ", "Comm: ", "exe="};
constexpr std::string_view kBeforeAddress[] = {"SRC=", "DST="};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

bool same_letters(char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; }

bool contains_word(std::string_view text, std::string_view word) {
  return std::search(text.begin(), text.end(), word.begin(), word.end(), same_letters) != text.end();
}

void zero(std::string& text, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i)
    if (std::isalnum(static_cast<unsigned char>(text[i])) != 0) text[i] = '0';
}

std::string line_without_identity(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return std::string(line);
  const std::string_view key = line.substr(0, colon);
  const std::string kept(line.substr(0, colon + 1));
  const std::string_view word = key.substr(std::min(key.find_first_not_of(" \t"), key.size()));
  if (word.substr(0, word.find_last_not_of(" \t") + 1) == "Name") return kept + " process";
  const bool identifies = std::ranges::any_of(kIdentifies, [&](std::string_view w) { return contains_word(key, w); });
  return identifies ? kept + zeroed(line.substr(colon + 1)) : without_builder(std::string(line));
}

/// Checks for groups of hexadecimal digits at `at`, as "8-4-4-4-12", that are no part of a longer word.
template <std::size_t N>
bool has_groups(std::string_view text, std::size_t at, char between, const std::size_t (&lengths)[N]) {
  if (at > 0 && (is_word(text[at - 1]) || text[at - 1] == between)) return false;
  for (std::size_t group = 0; group < N; ++group) {
    if (group > 0 && (at >= text.size() || text[at++] != between)) return false;
    for (std::size_t i = 0; i < lengths[group]; ++i)
      if (at >= text.size() || !is_hex(text[at++])) return false;
  }
  return at >= text.size() || !(is_word(text[at]) || text[at] == between);
}

/// Replaces every `name` that is a whole word, with a domain after it.
void replace_word(std::string& text, const std::string& name, std::string_view by) {
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    std::size_t end = at + name.size();
    if ((at > 0 && is_word(text[at - 1])) || (end < text.size() && is_word(text[end]))) continue;
    while (end + 1 < text.size() && text[end] == '.' && is_word(text[end + 1]))
      end = std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", end + 1),
                     text.size());
    text.replace(at, end - at, by);
  }
}

/// Replaces the text after each `before`, up to a blank, a comma or a bracket; keeps "<unknown>", which names nothing.
void replace_behind(std::string& text, std::string_view before, std::string_view by) {
  for (std::size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + before.size())) {
    if (at > 0 && is_word(text[at - 1])) continue;
    const std::size_t value = at + before.size();
    const std::size_t end = std::min(text.find_first_of(" ,)", value), text.size());
    if (end > value && text[value] != '<') text.replace(value, end - value, by);
  }
}

/// Zeroes "SerialNumber: 12AB", "Serial No. = 12AB", "serial#12AB"; also "SerialNumber=3" of USB, which is no serial
/// number.
void zero_serials(std::string& line) {
  constexpr std::string_view kSerial = "serial";
  for (auto at = line.begin();;) {
    at = std::search(at, line.end(), kSerial.begin(), kSerial.end(), same_letters);
    if (at == line.end()) return;
    at += static_cast<std::ptrdiff_t>(kSerial.size());
    const auto offset = static_cast<std::size_t>(at - line.begin());
    const std::size_t mark = line.find_first_of(":=#", offset);
    if (mark == std::string::npos || mark - offset > 8) continue;  // " number" at most is in between
    const std::size_t value = std::min(line.find_first_not_of(" :=#", mark), line.size());
    zero(line, value, std::min(line.find_first_of(" ,)", value), line.size()));
  }
}

/// Replaces "python3" in "python3[4711]: segfault at", "traps: python3[4711]", "task python3:4711" and "process 4711
/// (python3)".
void replace_process(std::string& line) {
  const std::size_t traps = line.starts_with("traps: ") ? 7 : 0;
  const std::size_t bracket = line.find('[');
  const std::size_t blank = std::min(line.find(' ', traps), line.size());
  if (bracket != std::string::npos && bracket > traps && bracket + 1 < blank && !line.starts_with("systemd") &&
      std::isdigit(static_cast<unsigned char>(line[bracket + 1])) != 0)
    line.replace(traps, bracket - traps, "process");
  const std::size_t task = line.find("task ");
  const std::size_t colon = task == std::string::npos ? task : line.find(':', task);
  if (colon != std::string::npos && line.find(" blocked for", colon) != std::string::npos)
    line.replace(task + 5, colon - task - 5, "process");
  const std::size_t killed = line.find("rocess ");
  const std::size_t open = killed == std::string::npos ? killed : line.find_first_not_of("0123456789", killed + 7);
  if (open == std::string::npos || open == killed + 7 || line.compare(open, 2, " (") != 0) return;
  const std::size_t close = line.find(')', open);
  if (close != std::string::npos) line.replace(open + 2, close - open - 2, "process");
}

}  // namespace

std::string zeroed(std::string_view value) {
  std::string text(value);
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos || text.compare(first, std::string::npos, "N/A") == 0) return text;
  zero(text, text.compare(first, 4, "GPU-") == 0 ? first + 4 : first, text.size());
  return text;
}

std::string without_identity(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    result += line_without_identity(text.substr(0, end));
    if (end == std::string_view::npos) break;
    result += '\n';
    text.remove_prefix(end + 1);
  }
  return result;
}

std::string without_private_arguments(std::string text) {
  for (const std::string_view argument : kPrivateArguments) {
    for (std::size_t at = text.find(argument); at != std::string::npos;
         at = text.find(argument, at + argument.size())) {
      if (at > 0 && std::string_view(" \t\n\"'").find(text[at - 1]) == std::string_view::npos) continue;
      const std::size_t value = at + argument.size();
      const std::size_t end = std::min(text.find_first_of(" \t\n\"'", value), text.size());
      text.replace(value, end - value, "removed");
    }
  }
  return text;
}

std::string without_ids(std::string text) {
  constexpr std::size_t kUuid[] = {8, 4, 4, 4, 12};
  constexpr std::size_t kMac[] = {2, 2, 2, 2, 2, 2};
  constexpr std::size_t kGuid[] = {4, 4, 4, 4};  // GUID of an InfiniBand port
  constexpr std::string_view kBefore = "UUID=";  // prefix of a FAT id, "2E1F-7C40", and of PARTUUID=
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (is_hex(text[at]) && has_groups(text, at, '-', kUuid)) zero(text, at, at + 36);
    if (is_hex(text[at]) && has_groups(text, at, ':', kMac)) zero(text, at, at + 17);
    if (is_hex(text[at]) && has_groups(text, at, ':', kGuid)) zero(text, at, at + 19);
    if (text[at] == 'U' && text.compare(at, kBefore.size(), kBefore) == 0)
      zero(text, at + kBefore.size(), std::min(text.find_first_of(" \t\n\"',)", at), text.size()));
  }
  return text;
}

std::string without_host_name(std::string text, const std::string& host_name) {
  const std::string name = host_name.substr(0, host_name.find_first_of(". \n"));
  if (name.size() < 3 || std::ranges::find(kCommonNames, name) != std::end(kCommonNames)) return text;
  std::string mapped;  // spelling of device-mapper
  for (const char c : name) mapped += c == '-' ? "--" : std::string(1, c);
  replace_word(text, name, "host");
  if (mapped != name) replace_word(text, mapped, "host");
  return text;
}

std::string without_builder(std::string text) {
  for (std::size_t at = text.find('@'); at != std::string::npos; at = text.find('@', at + 1)) {
    const std::size_t open = text.find_last_of("( \n", at);
    const std::size_t close = text.find_first_of(") \n", at);
    if (open == std::string::npos || close == std::string::npos || text[open] != '(' || text[close] != ')') continue;
    const bool root = text.compare(open, 6, "(root@") == 0;
    text.replace(open + 1, close - open - 1, root ? "root@host" : "user@host");
    at = open + 5;
  }
  return text;
}

std::string log_line_without_identity(std::string line, const std::string& host_name) {
  line = without_builder(without_ids(std::move(line)));
  if (line.find("ommand line: ") != std::string::npos) line = without_private_arguments(std::move(line));
  zero_serials(line);
  for (const std::string_view before : kBeforeProcess) replace_behind(line, before, "process");
  for (const std::string_view before : kBeforeAddress) replace_behind(line, before, "removed");
  replace_process(line);
  return without_host_name(std::move(line), host_name);
}

}  // namespace p2pd
