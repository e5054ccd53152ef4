// SPDX-License-Identifier: MIT
#include "machine/driver/driver_fit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.hpp"
#include "machine/catalogue/staging.hpp"

namespace p2pd {
namespace {

using Fit = EntryVerdict::Fit;

/// An objection to an entry on one kernel.
struct Objection {
  Fit fit = Fit::rejected;  ///< rejected; open: could not be found out; untried: the build decides
  std::string cause;
  std::string reason;
};

/// Objects if a build for it failed on this machine, whatever was expected of it.
std::optional<Objection> trial_objection(const CatalogueEntry& entry, const Machine& machine,
                                         const BuildTarget& kernel) {
  const std::string name = build_name(entry, kernel.release);
  const auto failed = machine.failed_builds.find(name);
  if (failed == machine.failed_builds.end()) return std::nullopt;
  return Objection{Fit::rejected, "kernel",
                   fmt::format("it did not build here for {}: {}; remove {} to try it again", kernel.release,
                               failed->second, build_log_of(name))};
}

std::optional<Objection> version_objection(const Catalogue& catalogue, const CatalogueEntry& entry,
                                           const BuildTarget& kernel) {
  const Version version = mainline_of(kernel.release);
  if (entry.kernel_min && version.empty())
    return Objection{Fit::open, "kernel", fmt::format("'{}' does not tell its version of Linux", kernel.release)};
  if (entry.kernel_min && version < *entry.kernel_min)
    return Objection{
        Fit::rejected, "kernel",
        fmt::format("{} is older than Linux {}, which it needs at least", kernel.release, dotted(*entry.kernel_min))};
  const KernelOutlook outlook = kernel_outlook(catalogue.kernels, parse_version(entry.base_version).value_or(Version()),
                                               kernel.release, entry.compat);
  if (outlook.kind == KernelOutlook::Kind::builds) return std::nullopt;
  return Objection{outlook.kind == KernelOutlook::Kind::fails ? Fit::rejected : Fit::untried, "kernel", outlook.reason};
}

std::optional<Objection> compiler_objection(const CatalogueEntry& entry, const BuildTarget& kernel) {
  const bool limited = entry.gcc_min || entry.gcc_below;
  if (!kernel.compiler)
    return limited ? std::optional(Objection{
                         Fit::open, "compiler",
                         fmt::format("{} would tell the compiler of {}", kernel.compiler_source, kernel.release)})
                   : std::nullopt;
  const Compiler& compiler = *kernel.compiler;
  const std::string built = fmt::format("{} was built with {} {}", kernel.release, compiler.family, compiler.major);
  if (compiler.family != "gcc")
    return Objection{Fit::rejected, "compiler", built + "; requires a kernel built with gcc"};
  if (entry.gcc_below && compiler.major >= *entry.gcc_below)
    return Objection{Fit::rejected, "compiler",
                     fmt::format("{}; requires a kernel built with gcc older than {}", built, *entry.gcc_below)};
  if (entry.gcc_min && compiler.major < *entry.gcc_min)
    return Objection{Fit::rejected, "compiler",
                     fmt::format("{}; requires a kernel built with gcc {} or newer", built, *entry.gcc_min)};
  return std::nullopt;
}

/// Objects to headers with a change that the source does not support and no compat header compensates.
std::optional<Objection> headers_objection(const Catalogue& catalogue, const CatalogueEntry& entry,
                                           const Machine::Target& kernel) {
  std::optional<Objection> open;
  for (const std::string& name : entry.compat) {
    const CompatRule& rule = catalogue.compat_rules.at(name);
    if (!rule.include.empty()) continue;
    const auto known = kernel.rules.find(name);
    if (known == kernel.rules.end())
      open = Objection{
          Fit::open, "headers",
          fmt::format("the headers of {} are not readable, and it does not build where {}", kernel.release, rule.why)};
    else if (known->second)
      return Objection{Fit::rejected, "headers",
                       fmt::format("in {}, {}, which its source does not support; requires an older build of that "
                                   "kernel, or an entry that supports it",
                                   kernel.release, rule.why)};
  }
  return open;
}

/// Gravest objection: a rejection precedes an unknown fact, and that precedes an untried build.
std::optional<Objection> objection(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine,
                                   const Machine::Target& kernel) {
  std::optional<Objection> gravest;
  for (auto found : {trial_objection(entry, machine, kernel), version_objection(catalogue, entry, kernel),
                     headers_objection(catalogue, entry, kernel), compiler_objection(entry, kernel)})
    if (found && (!gravest || found->fit > gravest->fit)) gravest = std::move(found);
  return gravest;
}

/// Reason why an entry may not be used yet.
std::string not_usable(const CatalogueEntry& entry) {
  return entry.lacks.empty() ? "its hashes are confirmed by one source only" : entry.lacks + " is not known";
}

/// Judges an entry as if it could be used.
EntryVerdict judge_usable(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine) {
  EntryVerdict verdict{.entry = entry.id, .fit = Fit::fits};
  for (const std::string& generation : generations(machine)) {
    if (entry.architectures.contains(generation)) continue;
    verdict.fit = Fit::rejected;
    verdict.cause = "architecture";
    verdict.reason =
        fmt::format("it gives no P2P between {} cards; requires an entry that lists {}", generation, generation);
    return verdict;
  }
  if (entry.dynamic_bar1 &&
      std::ranges::none_of(machine.gpus, [](const Machine::Gpu& gpu) { return is_converted(gpu); })) {
    verdict.fit = Fit::rejected;
    verdict.cause = "dynamic-bar1";
    verdict.reason = "it is for cards that were converted to more memory than their BAR1 can cover";
    return verdict;
  }
  std::string running;  // set if the running kernel is not rejected
  for (const Machine::Target& kernel : machine.kernels) {
    const auto found = objection(catalogue, entry, machine, kernel);
    if (kernel.running && (!found || found->fit != Fit::rejected)) running = kernel.release;
    if (!found || found->fit <= verdict.fit) continue;
    verdict.fit = found->fit;
    verdict.cause = found->cause;
    verdict.reason = found->reason;
  }
  if (verdict.fit == Fit::rejected && !running.empty()) {
    verdict.running_only = true;
    verdict.reason =
        fmt::format("it fits the running kernel {}, but not every bootable one: {}", running, verdict.reason);
  }
  if (verdict.fit == Fit::fits) verdict.reason = "it fits every GPU and every bootable kernel";
  if (verdict.fit == Fit::untried) verdict.reason += ": apply builds it first, and changes nothing where that fails";
  for (const Defect* defect : defects_on(entry, machine)) verdict.defects.push_back(defect->text);
  return verdict;
}

}  // namespace

std::string_view to_string(EntryVerdict::Fit fit) {
  switch (fit) {
    case Fit::fits: return "fits";
    case Fit::untried: return "untried";
    case Fit::open: return "open";
    case Fit::rejected: return "rejected";
    case Fit::candidate: return "candidate";
  }
  return "rejected";
}

std::set<std::string> generations(const Machine& machine) {
  std::set<std::string> found;
  for (const Machine::Gpu& gpu : machine.gpus)
    if (gpu.model) found.insert(gpu.model->architecture);
  return found;
}

bool is_converted(const Machine::Gpu& gpu) { return is_converted(gpu.model, gpu.vram_bytes.value_or(0)); }

std::vector<const Defect*> defects_on(const CatalogueEntry& entry, const Machine& machine) {
  const std::set<std::string> there = generations(machine);
  std::vector<const Defect*> found;
  for (const Defect& defect : entry.defects) {
    const auto seen_with = [&](const std::string& generation) { return defect.architectures.contains(generation); };
    const auto is_here = [&](const std::string& generation) {
      return there.contains(generation) || machine.beside.contains(generation);
    };
    if (there.empty() || ((defect.architectures.empty() || std::ranges::any_of(there, seen_with)) &&
                          std::ranges::all_of(defect.together, is_here)))
      found.push_back(&defect);
  }
  return found;
}

EntryVerdict judge_entry(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine) {
  EntryVerdict verdict = judge_usable(catalogue, entry, machine);
  if (entry.usable()) return verdict;
  verdict.fits_if_allowed = verdict.fit != Fit::rejected;
  verdict.reason = fmt::format(
      "not used, because {}; {}", not_usable(entry),
      verdict.fits_if_allowed ? "allowed, it would fit" : "and even then it would not fit: " + verdict.reason);
  verdict.fit = Fit::candidate;
  return verdict;
}

}  // namespace p2pd
