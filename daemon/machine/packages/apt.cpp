// SPDX-License-Identifier: MIT
#include "machine/packages/apt.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <sstream>

#include "base/log.hpp"
#include "machine/boot/package_locks.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/dkms.hpp"
#include "machine/packages/dpkg_status.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kClear = "#clear";
constexpr std::size_t kDeepest = 32;       // depth of nested blocks
constexpr std::size_t kLongestName = 512;  // limit in bytes; every item of a block has the block's name

/// A word, a text in quotes, or one of "{};"; kind '\0' at the end.
struct Token {
  char kind = '\0';  ///< 'w', '"', '{', '}', ';'
  std::string_view text;
};

void skip(std::string_view& text, std::string_view end) {
  const std::size_t at = text.find(end);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + end.size());
}

Token take(std::string_view& text) {
  while (!text.empty()) {
    const char c = text.front();
    const bool directive = text.starts_with(kClear);
    if (c == ' ' || (c >= '\t' && c <= '\r'))
      text.remove_prefix(1);
    else if (text.starts_with("//") || (c == '#' && !directive))
      skip(text, "\n");
    else if (text.starts_with("/*"))
      skip(text, "*/");
    else
      break;
  }
  if (text.empty()) return {};
  const char c = text.front();
  if (c == '"') {
    text.remove_prefix(1);
    const std::size_t end = text.find('"');
    const Token token{end == std::string_view::npos ? '\0' : '"', text.substr(0, end)};
    skip(text, "\"");
    return token;
  }
  const bool mark = c == '{' || c == '}' || c == ';';
  const std::size_t size = mark ? 1 : std::min(text.find_first_of(" \t\r\n\f\v\"{};"), text.size());
  const Token token{mark ? c : 'w', text.substr(0, size)};
  text.remove_prefix(size);
  return token;
}

/// Checks for a name that apt reads: letters, digits, '-', '_' and '.', ".conf" at its end or no '.'.
bool is_read(const std::string& name) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  if (name.find_first_not_of(kPlain) != std::string::npos || name.starts_with('.')) return false;
  return name.ends_with(".conf") || name.find('.') == std::string::npos;
}

}  // namespace

std::vector<AptOption> parse_apt_conf(std::string_view text, const std::string& source) {
  std::vector<AptOption> options;
  std::vector<std::string> blocks;  // names of the blocks around the place
  std::string name;
  std::optional<std::string> value;
  const auto full = [&](const std::string& inner) {
    return blocks.empty() ? inner : blocks.back() + (inner.starts_with("::") ? "" : "::") + inner;
  };
  const auto end_statement = [&] {
    if (value) options.push_back({full(name.empty() ? "::" : name), *value, source});
    name.clear();
    value.reset();
  };
  const auto sound = [&] {
    const std::size_t above = blocks.empty() ? 0 : blocks.back().size();
    return blocks.size() <= kDeepest && above + name.size() <= kLongestName;
  };
  for (Token token = take(text); token.kind != '\0' && sound(); token = take(text)) {
    if (token.kind == '{') {
      const std::string block = full(name);
      end_statement();  // apt gives `A "1" { ... }` the value, too
      blocks.push_back(block);
    } else if (token.kind == '}') {
      end_statement();  // apt accepts the last one of a block without its ';', too
      if (!blocks.empty()) blocks.pop_back();
    } else if (token.kind == ';') {
      end_statement();
    } else if (name.empty() && token.kind == 'w') {
      name = lower_case(token.text);
    } else if (name == kClear) {
      options.push_back({std::string(kClear), full(lower_case(token.text)), source});
    } else {
      value = token.text;
    }
  }
  return options;
}

Result<std::vector<AptOption>> apt_options(const Host& host) {
  const std::string directory = "/etc/apt/apt.conf.d";
  auto names = host.files().list(directory);
  if (!names && names.error().code != ErrorCode::not_found) return Failure(names.error());
  std::vector<std::string> paths;
  for (const std::string& name : names.value_or(std::vector<std::string>()))
    if (is_read(name)) paths.push_back(directory + "/" + name);
  if (host.files().exists("/etc/apt/apt.conf")) paths.emplace_back("/etc/apt/apt.conf");
  std::vector<AptOption> all;
  for (const std::string& path : paths) {
    for (AptOption& option : parse_apt_conf(TRY(host.files().read(path, 1U << 20)), path)) {
      if (option.name != kClear) {
        all.push_back(std::move(option));
        continue;
      }
      std::erase_if(all, [&](const AptOption& one) {
        return one.name == option.value || one.name.starts_with(option.value + "::");
      });
    }
  }
  return all;
}

std::string apt_value(const std::vector<AptOption>& options, std::string_view name) {
  std::string value;
  for (const AptOption& option : options)
    if (option.name == name) value = option.value;
  return value;
}

std::vector<std::string> apt_list(const std::vector<AptOption>& options, const std::string& name) {
  std::vector<std::string> items;
  for (const AptOption& option : options)
    if (option.name == name + "::") items.push_back(option.value);
  return items;
}

namespace {

constexpr std::chrono::minutes kAptDeadline{60};  // includes builds of modules by DKMS, for each kernel
constexpr std::string_view kScratch =
    "/var/lib/p2pd/.scripts.new";  // directory of maintainer scripts: /run and /tmp may be noexec

constexpr std::uint64_t kStatusRoom = std::uint64_t{32} << 20;  // dpkg's status in both versions, and scripts

Command quietly(std::vector<std::string> argv) {
  Command command;
  command.argv = std::move(argv);
  command.environment = {{"DEBIAN_FRONTEND", "noninteractive"},
                         {"DEBIAN_PRIORITY", "critical"},
                         {"APT_LISTCHANGES_FRONTEND", "none"},
                         {"NEEDRESTART_SUSPEND", "1"},
                         {"UCF_FORCE_CONFFOLD", "1"}};
  command.deadline = kAptDeadline;
  return command;
}

Result<std::vector<DpkgPackage>> interrupted(const Host& host) {
  std::vector<DpkgPackage> packages = TRY(dpkg_packages(host));
  std::erase_if(packages, [](const DpkgPackage& package) { return !package.interrupted(); });
  return packages;
}

/// Checks that `does` names each of `ids`, and nothing else.
Result<void> require_exactly(const std::set<std::string>& does, const std::vector<std::string>& ids,
                             std::string_view verb) {
  std::set<std::string> beyond = does;
  for (const std::string& id : ids) {
    const std::string name = id.substr(0, id.find(':'));
    if (!does.contains(name) && !does.contains(id))
      return fail(ErrorCode::invalid, fmt::format("apt refuses to {} {}", verb, id));
    beyond.erase(name);
    beyond.erase(id);
  }
  if (beyond.empty()) return {};
  return fail(ErrorCode::invalid, fmt::format("apt would also {} {}", verb, fmt::join(beyond, ", ")),
              "Resolve that with apt, then try again.");
}

/// Runs `work` with a directory for what maintainer scripts leave; until `work` ends, it marks that p2pd changes
/// packages.
Result<void> with_scratch(Host& host, const std::function<Result<void>()>& work) {
  TRY(host.will_change(kScratch, Restore::discarded));
  TRY(host.make_directory(kScratch));
  auto done = work();
  if (!done && done.error().code == ErrorCode::interrupted) return done;  // the command may continue without p2pd
  auto cleared = host.remove_tree(kScratch);
  return done ? cleared : done;
}

Result<void> run_installer(Host& host, Command command) {
  command.environment["TMPDIR"] = kScratch;
  command.own_unit = true;
  TRY(host.run(command));
  return {};
}

Result<void> finish_interrupted(Host& host, const std::map<std::string, std::string>& archives, bool unwritten) {
  const auto configure = [&]() -> Result<void> {
    const auto done = run_installer(host, dpkg({"--configure", "-a"}));
    return !done && done.error().code != ErrorCode::command ? done : Result<void>();
  };
  if (unwritten) TRY(configure());  // completes the status, which then shows half-installed packages
  const std::vector<DpkgPackage> before = TRY(interrupted(host));
  log::info("dpkg was interrupted: {} packages half installed", before.size());
  std::vector<std::string> anew = {"--unpack"};
  for (const DpkgPackage& package : before)
    if (const auto archive = archives.find(package.id()); package.flag != "ok" && archive != archives.end())
      anew.push_back(archive->second);
  if (anew.size() > 1) TRY(run_installer(host, dpkg(anew)));
  TRY(configure());
  auto fixed = run_installer(host, apt_get({"--fix-broken", "install"}));
  if (fixed) return {};
  if (fixed.error().code != ErrorCode::command) return fixed;
  return fail(
      ErrorCode::command, "dpkg was interrupted and cannot go on: " + fixed.error().message,
      "Run \"sudo dpkg --configure -a\" and \"sudo apt-get --fix-broken install\", and resolve what they report.");
}

}  // namespace

Command apt_get(const std::vector<std::string>& words, const std::vector<std::string>& packages) {
  std::vector<std::string> argv = {"apt-get",
                                   "--yes",
                                   "--quiet",
                                   "-oAPT::Get::AutomaticRemove=false",
                                   "-oDPkg::Lock::Timeout=60",
                                   "-oDPkg::Options::=--force-confdef",
                                   "-oDPkg::Options::=--force-confold",
                                   "-oDPkg::Use-Pty=0"};
  argv.insert(argv.end(), words.begin(), words.end());
  argv.insert(argv.end(), packages.begin(), packages.end());
  return quietly(std::move(argv));
}

Command dpkg(std::vector<std::string> words) {
  words.insert(words.begin(), {"dpkg", "--force-confdef", "--force-confold"});
  return quietly(std::move(words));
}

AptPlan parse_apt_plan(std::string_view output) {
  AptPlan plan;
  std::istringstream lines{std::string(output)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string verb, package, word;
    words >> verb >> package;
    if (verb == "Remv" || verb == "Purg") plan.removes.insert(package);
    if (verb != "Inst") continue;
    while (words >> word && !word.starts_with('(')) continue;  // skips the old version, in brackets
    plan.installs[package] = word.starts_with('(') ? word.substr(1) : "";
    std::string origin;
    std::getline(words >> std::ws, origin);
    plan.origins[package] = origin.substr(0, origin.find(" ["));
  }
  return plan;
}

Result<AptPlan> simulated(const Host& host, Command command) {
  command.argv.insert(command.argv.begin() + 1, "--simulate");
  return parse_apt_plan(TRY(host.output_of(command)));
}

Result<std::uint64_t> unpacked_bytes(const Host& host, const AptPlan& plan) {
  Command command;
  command.argv = {"apt-cache", "show"};
  for (const auto& [package, version] : plan.installs) command.argv.push_back(package + "=" + version);
  std::uint64_t bytes = 0;
  std::istringstream lines(TRY(host.output_of(command)));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t kib = 0;
    if (words >> name >> kib && name == "Installed-Size:") bytes += kib << 10;
  }
  return bytes;
}

Result<void> require_plan(const AptPlan& plan, const std::vector<std::string>& installs,
                          const std::vector<std::string>& removes) {
  std::set<std::string> installed;
  for (const auto& [name, version] : plan.installs) installed.insert(name);
  TRY(require_exactly(installed, installs, "install"));
  return require_removals(plan, removes);
}

Result<void> require_removals(const AptPlan& plan, const std::vector<std::string>& removes) {
  return require_exactly(plan.removes, removes, "remove");
}

Result<void> fetch_archives(Host& host, Command command) {
  command.argv.insert(command.argv.begin() + 1, "--download-only");
  TRY(host.run(command));
  return {};
}

Result<void> check_packages_can_change(const Host& host) {
  TRY(wait_for_package_locks(host, std::chrono::seconds(0)));
  return need_room(host, kDpkgStatus, kStatusRoom);
}

bool changes_packages(const Host& host) { return host.files().exists(kScratch); }

Result<void> change_packages(Host& host, Command command) {
  return with_scratch(host, [&] { return run_installer(host, std::move(command)); });
}

Result<void> repair_packages(Host& host, const std::map<std::string, std::string>& archives) {
  const bool unwritten = unwritten_updates(host).value_or(0) != 0;
  if (!unwritten && TRY(interrupted(host)).empty()) return {};
  TRY(forget_torn_dkms(host));  // prevents a package of modules from failing for ever
  return with_scratch(host, [&] { return finish_interrupted(host, archives, unwritten); });
}

namespace {

constexpr std::string_view kLists = "/var/lib/apt/lists";
constexpr const char* kTouchedByUpdate[] = {"/var/lib/apt/lists", "/var/lib/apt/lists/partial",
                                            "/var/lib/apt/periodic/update-success-stamp"};
constexpr std::time_t kDay = 86'400;
constexpr std::chrono::minutes kUpdateDeadline{10};
constexpr std::string_view kBlame[] = {"Unable to locate", "no installation candidate", "Failed to fetch",
                                       "unmet dependencies", "held broken packages"};

}  // namespace

std::string stale_lists(const Host& host) {
  const auto names = host.names(kLists);
  if (std::ranges::none_of(names, [](const std::string& name) { return name.find("_Packages") != name.npos; }))
    return "apt has no package lists";
  std::time_t newest = 0;  // the lists themselves have the times of their servers
  for (const char* path : kTouchedByUpdate)
    if (const auto info = host.files().stat(path)) newest = std::max(newest, info->st_mtim.tv_sec);
  const std::time_t age = std::time(nullptr) - newest;
  return age <= kDay ? "" : fmt::format("apt's package lists are {} days old", age / kDay);
}

Command update_command() {
  Command command =
      apt_get({"-oAcquire::http::Timeout=20", "-oAcquire::https::Timeout=20", "-oAcquire::Retries=1", "update"});
  command.deadline = kUpdateDeadline;
  return command;
}

Result<void> refresh_lists(Host& host, const std::string& why) {
  log::info("{}: fetching them", why);
  const auto done = host.run(update_command());
  if (done) return {};
  if (done.error().code == ErrorCode::interrupted) return Failure(done.error());
  log::warning("not all of apt's sources answered: {}", done.error().message);
  return {};
}

bool blames_lists(const Error& error) {
  return error.code == ErrorCode::command && std::ranges::any_of(kBlame, [&](std::string_view words) {
           return error.message.find(words) != std::string::npos;
         });
}

}  // namespace p2pd
