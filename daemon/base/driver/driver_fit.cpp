// SPDX-License-Identifier: MIT
#include "base/driver/driver_fit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace p2pd {
namespace {

using Fit = EntryVerdict::Fit;

std::string dotted(const Version& version) { return fmt::format("{}", fmt::join(version, ".")); }

/// Major and minor of "6.1.0-47-amd64"; nothing where a release does not start with them.
std::optional<Version> mainline(const std::string& release) {
  const std::size_t dot = release.find('.');
  if (dot == std::string::npos) return std::nullopt;
  const std::size_t end = release.find_first_not_of("0123456789", dot + 1);
  return parse_version(std::string_view(release).substr(0, end));
}

/// What speaks against an entry on one kernel, the gravest first; `open` where it could not be found out.
struct Objection {
  bool open = false;
  std::string cause;
  std::string reason;
};

std::optional<Objection> version_objection(const CatalogueEntry& entry, const BuildTarget& kernel) {
  if (!entry.kernel_min && !entry.kernel_below) return std::nullopt;
  const auto version = mainline(kernel.release);
  if (!version)
    return Objection{true, "kernel", fmt::format("'{}' does not tell its version of Linux", kernel.release)};
  if (entry.kernel_min && *version < *entry.kernel_min)
    return Objection{
        false, "kernel",
        fmt::format("{} is older than Linux {}, which it needs at least", kernel.release, dotted(*entry.kernel_min))};
  if (entry.kernel_below && *version >= *entry.kernel_below)
    return Objection{false, "kernel",
                     fmt::format("it does not build on {}; a kernel before Linux {} would do", kernel.release,
                                 dotted(*entry.kernel_below))};
  return std::nullopt;
}

std::optional<Objection> compiler_objection(const CatalogueEntry& entry, const BuildTarget& kernel) {
  const bool limited = entry.gcc_min || entry.gcc_below;
  if (!kernel.compiler)
    return limited ? std::optional(Objection{
                         true, "compiler",
                         fmt::format("{} would tell the compiler of {}", kernel.compiler_source, kernel.release)})
                   : std::nullopt;
  const Compiler& compiler = *kernel.compiler;
  const std::string built = fmt::format("{} was built with {} {}", kernel.release, compiler.family, compiler.major);
  if (compiler.family != "gcc")
    return Objection{false, "compiler",
                     built + ", and only gcc is known to build it; a kernel built with gcc would do"};
  if (entry.gcc_below && compiler.major >= *entry.gcc_below)
    return Objection{false, "compiler",
                     fmt::format("{}; a kernel built with one before gcc {} would do", built, *entry.gcc_below)};
  if (entry.gcc_min && compiler.major < *entry.gcc_min)
    return Objection{false, "compiler",
                     fmt::format("{}; a kernel built with gcc {} or newer would do", built, *entry.gcc_min)};
  return std::nullopt;
}

/// Headers with something that the source does not know and no compat header makes up for.
std::optional<Objection> headers_objection(const Catalogue& catalogue, const CatalogueEntry& entry,
                                           const Machine::Target& kernel) {
  std::optional<Objection> open;
  for (const std::string& name : entry.compat) {
    const CompatRule& rule = catalogue.compat_rules.at(name);
    if (!rule.include.empty()) continue;
    const auto applies = kernel.rules.find(name);
    if (applies == kernel.rules.end())
      open = Objection{true, "headers",
                       fmt::format("the headers of {} are not readable, and if their {} has {}, it does "
                                   "not build",
                                   kernel.release, rule.header, rule.pattern)};
    else if (applies->second)
      return Objection{false, "headers",
                       fmt::format("{} has {} in {}, which its source does not know; an older build of that kernel, or "
                                   "an entry that knows it, would do",
                                   kernel.release, rule.pattern, rule.header)};
  }
  return open;
}

std::optional<Objection> objection(const Catalogue& catalogue, const CatalogueEntry& entry,
                                   const Machine::Target& kernel) {
  std::optional<Objection> open;
  for (auto found : {version_objection(entry, kernel), headers_objection(catalogue, entry, kernel),
                     compiler_objection(entry, kernel)}) {
    if (found && !found->open) return found;
    if (found && !open) open = std::move(found);
  }
  return open;
}

/// Why an entry is not enabled.
std::string not_pinned(const CatalogueEntry& entry) {
  if (entry.commit.empty())
    return entry.commit_status == "unknown" ? "its commit is not known" : "only a short form of its commit is known";
  if (entry.commit_status != "verified_in_git") return "its commit is known by hearsay only";
  if (entry.runfile_path.empty() || entry.runfile_sha256.empty()) return "path or SHA-256 of its runfile is not known";
  return "it is switched off";
}

/// The verdict as if the entry was enabled.
EntryVerdict judge_enabled(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine) {
  EntryVerdict verdict{entry.id, Fit::fits, {}, {}, false, false};
  for (const std::string& generation : generations(machine)) {
    if (entry.architectures.contains(generation)) continue;
    verdict.fit = Fit::rejected;
    verdict.cause = "architecture";
    verdict.reason =
        fmt::format("it gives no P2P between {} cards; an entry that lists {} would do", generation, generation);
    return verdict;
  }
  std::string running;  // set when the running kernel is fine
  for (const Machine::Target& kernel : machine.kernels) {
    const auto found = objection(catalogue, entry, kernel);
    if (kernel.running && (!found || found->open)) running = kernel.release;
    if (!found || (found->open && verdict.fit != Fit::fits)) continue;
    if (!found->open && verdict.fit == Fit::rejected) continue;
    verdict.fit = found->open ? Fit::open : Fit::rejected;
    verdict.cause = found->cause;
    verdict.reason = found->reason;
  }
  if (verdict.fit == Fit::rejected && !running.empty()) {
    verdict.running_only = true;
    verdict.reason =
        fmt::format("it fits the running kernel {}, but not every bootable one: {}", running, verdict.reason);
  }
  if (verdict.fit == Fit::fits) verdict.reason = "it fits every GPU and every bootable kernel";
  return verdict;
}

}  // namespace

std::string_view to_string(EntryVerdict::Fit fit) {
  switch (fit) {
    case Fit::fits:
      return "fits";
    case Fit::open:
      return "open";
    case Fit::rejected:
      return "rejected";
    case Fit::candidate:
      return "candidate";
  }
  return "rejected";
}

std::set<std::string> generations(const Machine& machine) {
  std::set<std::string> found;
  for (const Machine::Gpu& gpu : machine.gpus)
    if (gpu.model) found.insert(gpu.model->architecture);
  return found;
}

EntryVerdict judge_entry(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine) {
  EntryVerdict verdict = judge_enabled(catalogue, entry, machine);
  if (entry.enabled) return verdict;
  verdict.needs_pins_only = verdict.fit != Fit::rejected;
  verdict.reason = fmt::format(
      "not enabled, because {}; {}", not_pinned(entry),
      verdict.needs_pins_only ? "pinned, it would fit" : "and even pinned it would not fit: " + verdict.reason);
  verdict.fit = Fit::candidate;
  return verdict;
}

}  // namespace p2pd
