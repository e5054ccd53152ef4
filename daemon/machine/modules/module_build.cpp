// SPDX-License-Identifier: MIT
#include "machine/modules/module_build.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <sstream>

#include "base/inode.hpp"
#include "base/json_members.hpp"
#include "base/log.hpp"
#include "base/sha256.hpp"
#include "base/units.hpp"
#include "machine/boot/kernels.hpp"
#include "machine/catalogue/patched_source.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/build_log.hpp"
#include "machine/modules/module_file.hpp"

namespace p2pd {
namespace {

struct Header {
  std::string_view name;
  std::string_view text;
};
constexpr Header kHeaders[] = {
#include "compat.inc"  // config/compat/*.h as rows of name and raw string, made by CMake
};
constexpr std::size_t kDropInLimit = 1U << 20;  // bytes

constexpr std::uint64_t kSpareBytes = 64 * kMiB;                // for the file system and other writers
constexpr std::uint64_t kRoomBytes = std::uint64_t{2} << 30;    // source, objects and modules, with debug information
constexpr std::uint64_t kJobBytes = std::uint64_t{1536} << 20;  // memory for one compiler
constexpr std::chrono::minutes kCpuTime{20};                    // of all compilers of a build together
constexpr std::chrono::hours kDeadline{3};
constexpr std::chrono::seconds kTell{30};  // time between two lines of progress

}  // namespace

Result<std::string> compat_header(const Host& host, std::string_view name) {
  const std::string path = fmt::format("/etc/p2pd/compat/{}", name);
  auto text = host.files().read(path, kDropInLimit);
  if (text || text.error().code != ErrorCode::not_found) return text;
  const auto found = std::ranges::find(kHeaders, name, &Header::name);
  if (found != std::end(kHeaders)) return std::string(found->text);
  return fail(ErrorCode::not_found, fmt::format("there is no compat header {}", name), "Put it at " + path + ".");
}

Result<bool> applies(const Host& host, const BuildTarget& target, const CompatRule& rule) {
  const auto text = kernel_header(host, target, rule.header);
  if (!text && rule.replaces() && target.has_headers && text.error().code == ErrorCode::not_found) return true;
  if (!text) return Failure(text.error());
  return (text->find(rule.pattern) != std::string::npos) != rule.gone;
}

namespace {

/// Names of the rules of `entry` that apply to `target`.
Result<std::vector<std::string>> rules_for(const Host& host, const Catalogue& all, const CatalogueEntry& entry,
                                           const BuildTarget& target) {
  std::vector<std::string> applying;
  for (const std::string& name : entry.compat) {
    const CompatRule& rule = all.compat_rules.at(name);
    auto needed = applies(host, target, rule);
    if (!needed) {
      needed.error().next = "apt-get install --reinstall " + target.headers;
      return Failure(std::move(needed).error().in("headers of " + target.release));
    }
    if (!*needed) continue;
    if (rule.include.empty())
      return fail(ErrorCode::invalid,
                  fmt::format("in {}, {}, which {} does not know", target.release, rule.why, entry.id),
                  "Use an entry that knows it, or remove that kernel.");
    applying.push_back(name);
  }
  return applying;
}

/// Files that distinguish builds of a kernel release: distributions rebuild a release under the same name.
constexpr std::string_view kHeaderFiles[] = {"Module.symvers", "include/generated/autoconf.h",
                                             "include/generated/utsversion.h", "include/generated/package.h",
                                             "include/generated/uapi/linux/version.h"};

std::string headers_identity(const Host& host, const BuildTarget& target) {
  std::string all;
  for (const std::string_view file : kHeaderFiles)
    all += fmt::format("{} {}\n", file, sha256_of(kernel_header(host, target, file).value_or("")));
  return sha256_of(all);
}

Result<ModuleBuild> wanted_build(const Host& host, const Catalogue& all, const CatalogueEntry& entry,
                                 BuildTarget target) {
  if (!target.compiler)
    return fail(
        ErrorCode::not_found, fmt::format("{} would tell the compiler of {}", target.compiler_source, target.release),
        "Install that kernel's package anew: apt-get install --reinstall " + kernel_package(host, target.release));
  ModuleBuild build{std::move(target), {}, {}, {}, {}};
  build.name = build_name(entry, build.target.release);
  build.rules = TRY(rules_for(host, all, entry, build.target));
  nlohmann::json compat = nlohmann::json::object();
  for (const std::string& rule : build.rules)
    compat[rule] = sha256_of(TRY(compat_header(host, all.compat_rules.at(rule).include)));
  build.made_of = {{"release", entry.base_version},
                   {"base_commit", entry.base_commit},
                   {"commit", entry.commit},
                   {"kernel", build.target.release},
                   {"headers", headers_identity(host, build.target)},
                   {"compiler", build.target.compiler->text()},
                   {"compat", std::move(compat)}};
  build.directory = fmt::format("{}/{}-{:.12}", kBuilds, build.name, sha256_of(build.made_of.dump()));
  return build;
}

Result<void> need_headers(const std::vector<BuildTarget>& targets) {
  for (const BuildTarget& target : targets) {
    if (target.has_headers || (!target.running && target.release != targets.back().release)) continue;
    return fail(ErrorCode::not_found,
                fmt::format("kernel {} has no headers, without which no module is built for it", target.release),
                "apt-get install " + target.headers);
  }
  return {};
}

}  // namespace

Result<std::vector<ModuleBuild>> wanted_builds(const Host& host, const Catalogue& all, const CatalogueEntry& entry) {
  const std::vector<BuildTarget> targets = TRY(build_targets(host));
  TRY(need_headers(targets));
  std::vector<ModuleBuild> builds;
  for (const BuildTarget& target : targets)
    if (target.has_headers) builds.push_back(TRY(wanted_build(host, all, entry, target)));
  return builds;
}

namespace {

/// Describes the five modules in `directory` for the record; Error unless each is of the target kernel.
Result<nlohmann::json> describe_modules(const Host& host, const ModuleBuild& build, const std::string& directory) {
  nlohmann::json modules = nlohmann::json::object();
  for (const std::string_view name : kModuleNames) {
    const std::string file = fmt::format("{}/{}.ko", directory, name);
    auto info = TRY(module_info(host, file));
    const std::string vermagic = info["vermagic"];
    if (vermagic.substr(0, vermagic.find(' ')) != build.target.release)
      return fail(ErrorCode::invalid,
                  fmt::format("{} is for kernel '{}', not {}", file, vermagic, build.target.release));
    if (const std::string release = build.made_of["release"]; info["version"] != release)
      return fail(ErrorCode::invalid, fmt::format("{} is of driver '{}', not {}", file, info["version"], release));
    const std::string srcversion = info["srcversion"];
    if (srcversion.empty() || srcversion.find_first_not_of("0123456789ABCDEF") != std::string::npos)
      return fail(ErrorCode::invalid, file + " has no srcversion");
    nlohmann::json& module = modules[std::string(name)] = to_json({module_build_id(host, file), srcversion});
    module["sha256"] = TRY(sha256_of_file(host, file));
  }
  return modules;
}

}  // namespace

Result<nlohmann::json> check_build(const Host& host, const ModuleBuild& build) {
  const std::string path = build.directory + std::string(kBuildRecord);
  auto record = parse_json(TRY(host.files().read(path, kBuildRecordLimit)));
  if (!record.is_object() || record.value("made_of", nlohmann::json()) != build.made_of)
    return fail(ErrorCode::invalid, path + " is not the record of this build");
  nlohmann::json modules = TRY(describe_modules(host, build, build.directory));
  for (const auto& [name, module] : modules.items())  // an older record has no build ids, but the SHA-256
    if (!record.contains(nlohmann::json::json_pointer(fmt::format("/modules/{}/build_id", name))))
      module.erase("build_id");
  if (record.value("modules", nlohmann::json()) != modules)
    return fail(ErrorCode::invalid, "a module in " + build.directory + " is not the one that was built");
  return Result<nlohmann::json>(std::move(record));
}

namespace {

/// Files of a build: its record and its five modules.
std::vector<std::string> files_of_build() {
  std::vector<std::string> files = {std::string(kBuildRecord.substr(1))};
  for (const std::string_view module : kModuleNames) files.push_back(std::string(module) + ".ko");
  return files;
}

/// Lets `fill` work in a scratch directory, unfinished() of the build's, and removes what it leaves there.
Result<void> in_scratch(Host& host, const ModuleBuild& build, std::uint64_t room_bytes,
                        const std::function<Result<void>(const std::string& scratch)>& fill) {
  TRY(need_room(host, build.directory, room_bytes));
  const std::string scratch = TRY(make_unfinished(host, build.directory));
  const auto done = fill(scratch);
  const auto cleared = host.remove_tree(scratch);
  return done ? cleared : done;
}

/// Gives `directory`, which is complete, the name of the build.
Result<void> give_name(Host& host, const std::string& directory, const ModuleBuild& build) {
  TRY(host.remove_tree(build.directory));
  return host.move(directory, build.directory);
}

/// Makes the directory of `build` from what the mirror has; no compiler runs. The record then names its origin.
Result<void> take_build(Host& host, const Mirror& mirror, const ModuleBuild& build) {
  TRY(require_mirrored(mirror, build));
  std::uint64_t bytes = kSpareBytes;
  for (const std::string& file : files_of_build()) bytes += mirror.bytes_of(mirrored_build(build) + file);
  return in_scratch(host, build, bytes, [&](const std::string& scratch) -> Result<void> {
    for (const std::string& file : files_of_build())
      TRY(mirror.fetch(host, mirrored_build(build) + file, scratch + "/" + file));
    ModuleBuild fetched = build;
    fetched.directory = scratch;
    nlohmann::json record = TRY(check_build(host, fetched));
    record["mirror"] = {{"url", mirror.url()}};
    TRY(host.create(scratch + std::string(kBuildRecord), record.dump(1) + "\n"));
    return give_name(host, scratch, build);
  });
}

/// Takes `build` from the mirror. Returns null on success, else the part of its record with the reason.
Result<nlohmann::json> refusal(Host& host, const MirrorPlace& place, const Result<Mirror>& mirror,
                               const ModuleBuild& build) {
  const auto taken = mirror ? take_build(host, *mirror, build) : Failure(mirror.error());
  if (taken) {
    log::info("modules for {} taken from {}", build.target.release, place.url);
    return nlohmann::json();
  }
  if (taken.error().code == ErrorCode::interrupted) return Failure(taken.error());
  log::warning("mirror refused: {}; modules for {} are built here", taken.error().text(), build.target.release);
  return nlohmann::json{{"url", place.url}, {"refused", taken.error().text()}};
}

/// Number of compilers at once: as many as there are processors and memory for.
std::uint64_t jobs(const Host& host) {
  const std::string online = host.line("/sys/devices/system/cpu/online").value_or("");
  const auto processors = static_cast<std::uint64_t>(count_cpus(online).value_or(1));
  std::istringstream memory(host.line("/proc/meminfo").value_or(""));  // a record has none
  std::uint64_t available_kib = 0;
  for (std::string word; memory >> word;)
    if (word == "MemAvailable:" && memory >> available_kib)
      return std::clamp<std::uint64_t>(available_kib * 1024 / kJobBytes, 1, processors);
  return processors;
}

Result<void> run_make(Host& host, const Catalogue& all, const ModuleBuild& build) {
  const std::string log = build_log_of(build.name);
  const std::string& release = build.target.release;
  if (!host.files().exists(kLogs)) TRY(host.will_change(kLogs));  // undo leaves the log, which is for people
  Command make = make_of(host, all, build);
  const Descriptor output = TRY(host.create(log, std::string(kBuildLogHead) + make.text() + "\n"));
  const auto minutes = time_of_build(host).count();
  std::size_t lines = 0;
  auto next = std::chrono::steady_clock::now();
  make.on_line = [&](std::string_view line) {
    ++lines;
    (void)write_all(output, std::string(line) + "\n", log);  // a log that is cut short does not end the build
    if (std::chrono::steady_clock::now() < next) return;
    next = std::chrono::steady_clock::now() + kTell;
    log::info("building for {}, about {} min: {} lines of output, now: {:.120}", release, minutes, lines, line);
  };
  log::info("building for {}: {}", release, make.text());
  const auto made = host.run(make);
  if (made) return {};
  if (made.error().code == ErrorCode::interrupted) return Failure(made.error());
  const auto failure = TRY(build_failure(host.files().read(log).value_or("")));
  if (!failure) return fail(made.error().code, made.error().message, fmt::format("Read {}.", log));
  return fail(made.error().code,
              fmt::format("the modules do not build for {}: {} ({})", release, failure->cause, failure->line),
              fmt::format("{} Full log: {}, line {}.", failure->next, log, failure->line_number));
}

/// Moves modules and build record to a directory that only needs its name. `mirror`: its part of the record; may be
/// null.
Result<std::string> collect(Host& host, const ModuleBuild& build, const std::string& scratch,
                            const nlohmann::json& mirror) {
  const std::string from = scratch + "/source/kernel-open", to = scratch + "/build";
  nlohmann::json record = {{"made_of", build.made_of}, {"rules", build.rules}};
  if (!mirror.is_null()) record["mirror"] = mirror;
  const std::string compiler = TRY(host.output_of({{build.target.compiler->text(), "--version"}}));
  record["compiler_version"] = compiler.substr(0, compiler.find('\n'));
  record["modules"] = TRY_IN("the build succeeded, but", describe_modules(host, build, from));
  TRY(host.make_directory(to));
  Command move{{"mv"}};
  for (const std::string_view module : kModuleNames) move.argv.push_back(fmt::format("{}/{}.ko", from, module));
  move.argv.push_back(to);
  TRY(host.run(move));
  const auto replace = nlohmann::json::error_handler_t::replace;
  TRY(host.create(to + std::string(kBuildRecord), record.dump(1, ' ', false, replace) + "\n"));
  TRY(host.create(to + "/build.log", TRY(host.files().read(build_log_of(build.name)))));
  return to;
}

Result<void> make_build(Host& host, const Catalogue& all, const CatalogueEntry& entry, const ModuleBuild& build,
                        const nlohmann::json& mirror) {
  const std::string compiler = build.target.compiler->text();
  if (!host.has_program(compiler))
    return fail(ErrorCode::not_found,
                fmt::format("{}, which {} was built with, is not installed", compiler, build.target.release),
                "apt-get install " + compiler);
  return in_scratch(host, build, kRoomBytes, [&](const std::string& scratch) -> Result<void> {
    TRY(host.run(
        {.argv = {"cp", "-a", "--reflink=auto", source_of(entry), scratch + "/source"}, .deadline = kDeadline}));
    for (const std::string& rule : build.rules) {
      const std::string& header = all.compat_rules.at(rule).include;
      TRY(host.create(fmt::format("{}/compat/{}", scratch, header), TRY(compat_header(host, header))));
    }
    TRY(run_make(host, all, build));
    TRY(give_name(host, TRY(collect(host, build, scratch, mirror)), build));
    return host.remove_tree(build_log_of(build.name));
  });
}

}  // namespace

std::string mirrored_build(const ModuleBuild& build) {
  return std::string(kMirrorBuilds) + build.directory.substr(build.directory.rfind('/') + 1) + "/";
}

Result<void> require_mirrored(const Mirror& mirror, const ModuleBuild& build) {
  const std::string at = mirrored_build(build);
  for (const std::string& file : files_of_build())
    if (!mirror.has(at + file)) return fail(ErrorCode::not_found, fmt::format("it has no {}{}", at, file));
  return {};
}

std::string origin_of(const nlohmann::json& record) {
  const nlohmann::json &mirror = field_of(record, "mirror"), &url = field_of(mirror, "url"),
                       &refused = field_of(mirror, "refused");
  if (refused.is_string()) return fmt::format("mirror refused: {}; built here", refused.get<std::string>());
  return url.is_string() ? fmt::format("taken from {}", url.get<std::string>()) : "";
}

std::chrono::minutes time_of_build(const Host& host) {
  return std::max(std::chrono::minutes(1), kCpuTime / static_cast<int>(jobs(host)));
}

Command make_of(const Host& host, const Catalogue& all, const ModuleBuild& build) {
  const std::string scratch = unfinished(build.directory);
  Command make{{"make", "-C", scratch + "/source", "modules", "KERNEL_UNAME=" + build.target.release,
                fmt::format("-j{}", jobs(host)), "CC=" + build.target.compiler->text()}};
  make.argv.insert(make.argv.end(), kMakeVariables.begin(), kMakeVariables.end());
  std::vector<std::string> flags;
  for (const std::string& rule : build.rules)
    if (const CompatRule& its = all.compat_rules.at(rule); !its.replaces())
      flags.push_back(fmt::format("-include {}/compat/{}", scratch, its.include));
  if (!build.rules.empty()) flags.push_back(fmt::format("-I {}/compat", scratch));
  if (!flags.empty()) make.argv.push_back(fmt::format("KCFLAGS={}", fmt::join(flags, " ")));
  make.environment["TMPDIR"] = scratch;  // files of a killed compiler are removed with it
  make.deadline = kDeadline;
  return make;
}

Result<void> make_builds(Host& host, const Catalogue& all, const CatalogueEntry& entry, const MirrorPlace& place) {
  std::optional<Result<Mirror>> mirror;  // asked for the first build that is missing
  bool source_checked = false;
  for (const ModuleBuild& build : TRY(wanted_builds(host, all, entry))) {
    if (check_build(host, build)) continue;
    nlohmann::json refused;
    if (place) {
      if (!mirror) mirror = Mirror::open(host, place);
      refused = TRY(refusal(host, place, *mirror, build));
      if (refused.is_null()) continue;
    }
    if (!source_checked) TRY_IN("the source", check_source(host, entry));
    source_checked = true;
    TRY(make_build(host, all, entry, build, refused));
  }
  return {};
}

}  // namespace p2pd
