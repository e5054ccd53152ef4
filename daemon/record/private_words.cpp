// SPDX-License-Identifier: MIT
#include "record/private_words.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <sstream>

#include "base/strings.hpp"
#include "base/url.hpp"
#include "record/redact.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kName = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
constexpr std::string_view kHex = "0123456789abcdefABCDEF:";
constexpr std::string_view kUnit = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:@\\";
/// Public hosts, which do not identify a machine.
constexpr std::string_view kPublicHosts[] = {"nvidia.com", "github.com", "debian.org",
                                             "ubuntu.com", "kernel.org", "launchpad.net"};
/// Account names of many machines, in lower case, and words that every text and path here contains.
constexpr std::string_view kCommonUsers[] = {
    "admin",   "apt",    "bin",     "boot", "bus",    "class", "cuda", "debian", "dev",  "devices", "dkms",
    "dpkg",    "driver", "etc",     "gpu",  "grub",   "home",  "host", "kernel", "lib",  "linux",   "module",
    "modules", "nobody", "nvidia",  "opt",  "p2pd",   "pci",   "plan", "proc",   "root", "run",     "sbin",
    "sys",     "system", "systemd", "test", "ubuntu", "user",  "usr",  "var"};
/// Host names given by distributions and installers, which identify no machine.
constexpr std::string_view kCommonNames[] = {"debian", "ubuntu",  "localhost", "linux", "nvidia", "kernel", "root",
                                             "server", "proxmox", "host",      "boot",  "gpu",    "pci"};
constexpr std::string_view kUnitKinds[] = {".service", ".scope", ".slice", ".socket", ".timer", ".mount", ".target"};
const std::vector<const char*> kKnownUnits =
    strings("p2pd", "nvidia-", "display-manager", "gdm", "sddm", "lightdm", "systemd-", "docker.", "docker",
            "containerd", "snapd", "apt-daily", "cloud-", "dbus", "ssh.", "user.", "system.", "init.", "multi-user",
            "graphical", "basic.", "sysinit", "unattended-upgrades", "ollama.");

bool is_in(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

/// Replaces each run of characters of `set` with the result of `by`, unless that is empty.
void replace_runs(std::string& text, std::string_view set,
                  const std::function<std::string(std::string_view run, std::size_t at)>& by) {
  for (std::size_t at = text.find_first_of(set); at < text.size(); at = text.find_first_of(set, at)) {
    const std::size_t end = std::min(text.find_first_not_of(set, at), text.size());
    const std::string other = by(std::string_view(text).substr(at, end - at), at);
    if (!other.empty()) text.replace(at, end - at, other);
    at = other.empty() ? end : at + other.size();
  }
}

/// Replaces every `name` that is a whole word; `domain`: with a domain after it.
void replace_word(std::string& text, const std::string& name, std::string_view by, bool domain = false) {
  const auto in_word = [&](std::size_t at) {
    return at < text.size() && (is_in(text[at], kLetters) || is_in(text[at], kDigits) || text[at] == '_');
  };
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    std::size_t end = at + name.size();
    if ((at > 0 && in_word(at - 1)) || in_word(end)) continue;
    while (domain && end < text.size() && text[end] == '.' && in_word(end + 1))
      end = std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", end + 1),
                     text.size());
    text.replace(at, end - at, by);
  }
}

bool is_common(std::string_view user) {  // "Ubuntu" is the full name of user ubuntu, and of the system
  return std::ranges::find(kCommonUsers, lower(std::string(user))) != std::end(kCommonUsers);
}

bool is_public(std::string_view host) {
  return std::ranges::any_of(kPublicHosts, [&](std::string_view known) {
    return host.ends_with(known) && (host.size() == known.size() || host[host.size() - known.size() - 1] == '.');
  });
}

/// Calls `change(begin, end)` with the authority of each URL, "me:pw@host:80"; it may change its length, and returns
/// its end.
void each_authority(std::string& text, const std::function<std::size_t(std::size_t, std::size_t)>& change) {
  constexpr std::string_view kBehind = "/?# \t\r\n\"'<>`()[],;\\";
  for (std::size_t at = text.find("://"); at != std::string::npos; at = text.find("://", at)) {
    const std::size_t begin = at + 3;
    at = change(begin, std::min(text.find_first_of(kBehind, begin), text.size()));
  }
}

/// Hides hosts that are not public, and the path on them: it may name a project, or hold a token.
void hide_hosts(std::string& text) {
  each_authority(text, [&](std::size_t begin, std::size_t end) {
    const std::size_t colon = std::min(text.find(':', begin), end);
    if (colon == begin || is_public(std::string_view(text).substr(begin, colon - begin))) return end;
    if (end < text.size() && text[end] == '/') {
      std::size_t path = std::min(text.find_first_of(" \t\r\n\"'<>`()[],;\\", end), text.size());
      while (path > end + 1 && std::string_view(".:").find(text[path - 1]) != std::string_view::npos) --path;
      if (path > end + 1) text.replace(end + 1, path - end - 1, kRemoved);
    }
    text.replace(begin, colon - begin, "host");
    return end - (colon - begin) + 4;
  });
}

/// Hides "10.0.0.7" as a word by itself; keeps versions, with a letter, a dash or more parts around them.
void hide_ipv4(std::string& text) {
  replace_runs(text, "0123456789.", [&](std::string_view run, std::size_t at) -> std::string {
    const std::string_view whole = run;
    while (run.ends_with('.')) run.remove_suffix(1);
    const auto around = [&](std::size_t place) {
      return place < text.size() && (is_in(text[place], kLetters) || is_in(text[place], "_-+~"));
    };
    if (std::ranges::count(run, '.') != 3 || run == "127.0.0.1" || run == "0.0.0.0") return "";
    if ((at > 0 && around(at - 1)) || around(at + run.size())) return "";
    std::istringstream parts{std::string(run)};
    for (std::string part; std::getline(parts, part, '.');)
      if (part.empty() || part.size() > 3 || std::atoi(part.c_str()) > 255) return "";
    return "address" + std::string(whole.substr(run.size()));
  });
}

/// Hides "fe80::1", or eight groups; keeps a PCI address, a time and "::" between words of a program.
void hide_ipv6(std::string& text) {
  replace_runs(text, kHex, [&](std::string_view run, std::size_t at) -> std::string {
    const std::size_t end = at + run.size();
    const auto around = [&](std::size_t place) {
      return place < text.size() && (is_in(text[place], kLetters) || is_in(text[place], "_.-"));
    };
    const std::size_t gap = run.find("::");
    const auto colons = std::ranges::count(run, ':');
    if ((at > 0 && around(at - 1)) || (end < text.size() && (is_in(text[end], kLetters) || text[end] == '_')))
      return "";
    if (gap == std::string_view::npos ? colons != 7
                                      : (colons > 8 || run.find_first_not_of(':') == std::string_view::npos))
      return "";
    if (run.find_first_not_of("0:1") == std::string_view::npos && run.size() <= 3) return "";  // "::1"
    std::size_t group = 0;
    for (const char c : run)
      if (group = c == ':' ? 0 : group + 1; group > 4) return "";
    return "address";
  });
}

/// Turns "jo@box" into "user@host", and "root@box" into "root@host".
void hide_logins(std::string& text) {
  for (std::size_t at = text.find('@'); at != std::string::npos; at = text.find('@', at + 1)) {
    std::size_t begin = at, end = at + 1;
    while (begin > 0 && is_in(text[begin - 1], kName)) --begin;
    while (end < text.size() && is_in(text[end], kName)) ++end;
    while (end > at + 1 && text[end - 1] == '.') --end;
    if (begin == at || end == at + 1) continue;
    const bool root = std::string_view(text).substr(begin, at - begin) == "root";
    text.replace(begin, end - begin, root ? "root@host" : "user@host");
    at = begin + 4;
  }
}

/// Replaces the text after `before`, up to the end of a word.
void hide_behind(std::string& text, std::string_view before, std::string_view by) {
  for (std::size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + before.size())) {
    const std::size_t begin = at + before.size();
    text.replace(begin, std::min(text.find_first_of("/ \t\n\"',:;)", begin), text.size()) - begin, by);
  }
}

/// Hides other hosts in the domain of this one.
void hide_domain(std::string& text, const std::string& host_name) {
  const std::size_t dot = host_name.find('.');
  if (dot == std::string::npos || host_name.find('.', dot + 1) == std::string::npos) return;
  const std::string domain = host_name.substr(dot);
  for (std::size_t at = text.find(domain); at != std::string::npos; at = text.find(domain, at)) {
    std::size_t begin = at;
    while (begin > 0 && is_in(text[begin - 1], kName)) --begin;
    text.replace(begin, at + domain.size() - begin, "host");
    at = begin + 4;
  }
}

}  // namespace

Identity identity_of(const Host& host) {
  constexpr std::size_t kLimit = 4U << 20;
  constexpr std::size_t kLongestName = 253;
  constexpr int kFirstPerson = 1000, kLastPerson = 65533;
  const auto line = [&](const char* file) { return host.line(file).value_or(""); };
  Identity identity{line("/proc/sys/kernel/hostname"), line("/etc/machine-id"), {}};
  if (identity.host_name.empty()) identity.host_name = line("/etc/hostname");
  if (identity.host_name.size() > kLongestName || identity.host_name.find_first_not_of(kName) != std::string::npos)
    identity.host_name.clear();  // a broken file names no host
  std::istringstream accounts(host.files().read("/etc/passwd", kLimit).value_or(""));
  for (std::string account; std::getline(accounts, account);) {
    std::vector<std::string> fields;
    std::istringstream words(account);
    for (std::string field; std::getline(words, field, ':');) fields.push_back(std::move(field));
    const int uid = fields.size() < 5 ? 0 : std::atoi(fields[2].c_str());
    if (uid < kFirstPerson || uid > kLastPerson) continue;
    identity.users.push_back(fields[0]);
    identity.users.push_back(fields[4].substr(0, fields[4].find(',')));
  }
  if (const char* name = host.live() ? std::getenv("SUDO_USER") : nullptr) identity.users.emplace_back(name);
  return identity;
}

std::string without_host_name(std::string text, const std::string& host_name) {
  const std::string name = host_name.substr(0, host_name.find_first_of(". \n"));
  if (name.size() < 3 || std::ranges::find(kCommonNames, name) != std::end(kCommonNames)) return text;
  std::string mapped;  // spelling of device-mapper
  for (const char c : name) mapped += c == '-' ? "--" : std::string(1, c);
  replace_word(text, name, "host", true);
  if (mapped != name) replace_word(text, mapped, "host", true);
  return text;
}

std::string without_unit_names(std::string text) {
  replace_runs(text, kUnit, [](std::string_view run, std::size_t) -> std::string {
    std::string_view rest;
    while (run.ends_with('.') || run.ends_with(':')) {
      rest = run.substr(run.size() - 1);
      run.remove_suffix(1);
      if (run.empty()) return "";
    }
    const auto* kind =
        std::ranges::find_if(kUnitKinds, [&](std::string_view k) { return run.size() > k.size() && run.ends_with(k); });
    const bool known = std::ranges::any_of(kKnownUnits, [&](std::string_view name) { return run.starts_with(name); });
    if (kind == std::end(kUnitKinds) || known) return "";
    return "unit" + std::string(*kind) + std::string(rest);
  });
  return text;
}

std::string without_private_words(std::string text, const Identity& identity) {
  text = without_user_info(std::move(text));
  hide_hosts(text);
  hide_ipv4(text);  // runs first: an IPv6 address may end in one
  hide_ipv6(text);
  hide_logins(text);
  hide_behind(text, "/home/", "user");
  hide_behind(text, "/dev/disk/by-id/", "removed");
  for (const std::string& user : identity.users)
    if (user.size() > 1 && !is_common(user)) replace_word(text, user, "user");
  hide_domain(text, identity.host_name);
  return without_host_name(std::move(text), identity.host_name);
}

}  // namespace p2pd
