// SPDX-License-Identifier: MIT
#include "machine/modules/module_make.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/inode.hpp"
#include "base/log.hpp"
#include "machine/boot/kernels.hpp"
#include "machine/catalogue/patched_source.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/build_log.hpp"
#include "machine/modules/mirrored_build.hpp"

namespace p2pd {
namespace {

constexpr std::uint64_t kRoomBytes = std::uint64_t{2} << 30;    // source, objects and modules, with debug information
constexpr std::uint64_t kJobBytes = std::uint64_t{1536} << 20;  // memory for one compiler
constexpr std::chrono::minutes kCpuTime{20};                    // of all compilers of a build together
constexpr std::chrono::hours kDeadline{3};
constexpr std::chrono::seconds kTell{30};  // time between two lines of progress

/// Number of compilers at once: as many as there are processors and memory for.
unsigned jobs(const Host& host) {
  const std::int64_t processors = count_cpus(host.line("/sys/devices/system/cpu/online").value_or("")).value_or(1);
  const std::string text = host.line("/proc/meminfo").value_or("");  // a record has none
  const std::size_t at = text.find("MemAvailable:");
  const std::size_t digits = at == std::string::npos ? at : text.find_first_of("0123456789", at);
  if (digits == std::string::npos) return static_cast<unsigned>(processors);
  std::uint64_t available_kib = 0;
  std::from_chars(text.data() + digits, text.data() + text.size(), available_kib);
  return static_cast<unsigned>(
      std::clamp<std::uint64_t>(available_kib * 1024 / kJobBytes, 1, static_cast<std::uint64_t>(processors)));
}

Command make_command(const Host& host, const Catalogue& all, const ModuleBuild& build, const std::string& scratch) {
  Command make;
  make.argv = {"make",
               "-C",
               scratch + "/source",
               "modules",
               "KERNEL_UNAME=" + build.target.release,
               fmt::format("-j{}", jobs(host)),
               "CC=" + build.target.compiler->text()};
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

/// Writes the output of a build to a file.
class BuildLog {
 public:
  BuildLog(std::string what, Descriptor file) : what_(std::move(what)), file_(std::move(file)) {}

  void take(std::string_view line) {
    ++lines_;
    (void)write_all(file_, std::string(line) + "\n", "build log");  // a log that is cut short does not end the build
    if (std::chrono::steady_clock::now() < next_) return;
    next_ = std::chrono::steady_clock::now() + kTell;
    log::info("building {}: {} lines of output, now: {:.120}", what_, lines_, line);
  }

 private:
  std::string what_;
  Descriptor file_;
  std::size_t lines_ = 0;
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now();
};

Result<void> run_make(Host& host, const Catalogue& all, const ModuleBuild& build, const std::string& scratch) {
  const std::string log = build_log_of(build.name);
  if (!host.files().exists(kLogs)) TRY(host.will_change(kLogs));  // undo leaves the log, which is for people
  Command make = make_command(host, all, build, scratch);
  BuildLog output(fmt::format("for {}, about {} min", build.target.release, time_of_build(host).count()),
                  TRY(host.create(log, std::string(kBuildLogHead) + make.text() + "\n")));
  make.on_line = [&](std::string_view line) { output.take(line); };
  log::info("building for {}: {}", build.target.release, make.text());
  const auto made = host.run(make);
  if (made) return {};
  if (made.error().code == ErrorCode::interrupted) return Failure(made.error());
  const auto failure = TRY(build_failure(host.files().read(log).value_or("")));
  if (!failure) return fail(made.error().code, made.error().message, fmt::format("Read {}.", log));
  return fail(
      made.error().code,
      fmt::format("the modules do not build for {}: {} ({})", build.target.release, failure->cause, failure->line),
      fmt::format("{} Full log: {}, line {}.", failure->next, log, failure->line_number));
}

/// Moves modules and build record to a directory that only needs its name. `mirror`: its part of the record; may be
/// null.
Result<std::string> collect(Host& host, const ModuleBuild& build, const std::string& scratch,
                            const nlohmann::json& mirror) {
  const std::string from = scratch + "/source/kernel-open", to = scratch + "/build";
  nlohmann::json record = {{"made_of", build.made_of}, {"rules", build.rules}};
  if (!mirror.is_null()) record["mirror"] = mirror;
  const std::string compiler = TRY(host.output_of({{build.target.compiler->text(), "--version"}, {}, {}}));
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

Result<void> build_in(Host& host, const Catalogue& all, const CatalogueEntry& entry, const ModuleBuild& build,
                      const std::string& scratch, const nlohmann::json& mirror) {
  TRY(host.run({{"cp", "-a", "--reflink=auto", source_of(entry), scratch + "/source"}, {}, {}, kDeadline}));
  for (const std::string& rule : build.rules) {
    const std::string& header = all.compat_rules.at(rule).include;
    TRY(host.create(fmt::format("{}/compat/{}", scratch, header), TRY(compat_header(host, header))));
  }
  TRY(run_make(host, all, build, scratch));
  const std::string made = TRY(collect(host, build, scratch, mirror));
  TRY(host.remove_tree(build.directory));
  TRY(host.move(made, build.directory));
  return host.remove_tree(build_log_of(build.name));
}

Result<void> make_build(Host& host, const Catalogue& all, const CatalogueEntry& entry, const ModuleBuild& build,
                        const nlohmann::json& mirror) {
  const std::string compiler = build.target.compiler->text();
  if (!host.has_program(compiler))
    return fail(ErrorCode::not_found,
                fmt::format("{}, which {} was built with, is not installed", compiler, build.target.release),
                "apt-get install " + compiler);
  TRY(need_room(host, build.directory, kRoomBytes));
  const std::string scratch = TRY(make_unfinished(host, build.directory));
  const auto done = build_in(host, all, entry, build, scratch, mirror);
  const auto cleared = host.remove_tree(scratch);
  return done ? cleared : done;
}

/// Takes `build` from the mirror. Returns null on success, else the part of its record with the reason.
Result<nlohmann::json> refusal(Host& host, const MirrorPlace& place, const Result<Mirror>& mirror,
                               const ModuleBuild& build) {
  const auto taken = mirror ? take_build(host, *mirror, build) : Failure(mirror.error());
  if (taken) log::info("modules for {} taken from {}", build.target.release, place.url);
  if (taken) return nlohmann::json();
  if (taken.error().code == ErrorCode::interrupted) return Failure(taken.error());
  log::warning("mirror refused: {}; modules for {} are built here", taken.error().text(), build.target.release);
  return nlohmann::json{{"url", place.url}, {"refused", taken.error().text()}};
}

}  // namespace

std::chrono::minutes time_of_build(const Host& host) {
  return std::max(std::chrono::minutes(1), kCpuTime / static_cast<int>(jobs(host)));
}

Command make_of(const Host& host, const Catalogue& all, const ModuleBuild& build) {
  return make_command(host, all, build, unfinished(build.directory));
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
