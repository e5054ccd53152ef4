// SPDX-License-Identifier: MIT
#include "machine/driver/solver.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "base/units.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/hardware/bar1.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "machine/modules/own_place.hpp"

namespace p2pd {
namespace {

using Fit = EntryVerdict::Fit;
constexpr std::string_view kFits[] = {"fits", "untried", "open", "rejected", "candidate"};

Version version_of(const CatalogueEntry& entry) { return parse_version(entry.base_version).value_or(Version()); }

/// An objection to an entry on one kernel.
struct Objection {
  Fit fit = Fit::rejected;  ///< rejected; open: could not be found out; untried: the build decides
  std::string cause;
  std::string reason;
};

/// Objects if a build for it failed on this machine, whatever was expected of it.
std::optional<Objection> trial_objection(const CatalogueEntry& entry, const Machine& machine,
                                         const BuildTarget& kernel) {
  const std::string build = build_name(entry, kernel.release), source = build_name(entry, kNoSource);
  for (const auto& [cause, what, name] :
       {std::tuple("kernel", "it did not build here for " + kernel.release, build),
        std::tuple("source", std::string("its source could not be made here"), source)})
    if (const auto failed = machine.failed_builds.find(name); failed != machine.failed_builds.end())
      return Objection{Fit::rejected, cause,
                       fmt::format("{}: {}; remove {} to try it again", what, failed->second, build_log_of(name))};
  return std::nullopt;
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
  const KernelOutlook outlook = kernel_outlook(catalogue.kernels, version_of(entry), kernel.release, entry.compat);
  if (outlook.kind == KernelOutlook::Kind::builds) return std::nullopt;
  return Objection{outlook.kind == KernelOutlook::Kind::fails ? Fit::rejected : Fit::untried, "kernel", outlook.reason};
}

std::optional<Objection> compiler_objection(const CatalogueEntry& entry, const BuildTarget& kernel) {
  if (!kernel.compiler) {
    if (!entry.gcc_min && !entry.gcc_below) return std::nullopt;
    return Objection{Fit::open, "compiler",
                     fmt::format("{} would tell the compiler of {}", kernel.compiler_source, kernel.release)};
  }
  const auto& [family, major] = *kernel.compiler;
  std::string needed;
  if (family != "gcc")
    needed = "gcc";
  else if (entry.gcc_below && major >= *entry.gcc_below)
    needed = fmt::format("gcc older than {}", *entry.gcc_below);
  else if (entry.gcc_min && major < *entry.gcc_min)
    needed = fmt::format("gcc {} or newer", *entry.gcc_min);
  if (needed.empty()) return std::nullopt;
  return Objection{
      Fit::rejected, "compiler",
      fmt::format("{} was built with {} {}; requires a kernel built with {}", kernel.release, family, major, needed)};
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

/// Judges an entry as if it could be used.
EntryVerdict judge_usable(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine) {
  EntryVerdict verdict{.entry = &entry, .fit = Fit::fits, .reason = "it fits every GPU and every bootable kernel"};
  const auto object = [&](Objection found) {
    verdict.fit = found.fit;
    verdict.cause = std::move(found.cause);
    verdict.reason = std::move(found.reason);
    return verdict;
  };
  const bool keeps = keeps_packages(entry, machine);
  if (!entry.has_runfile() && entry.base_version != machine.packages.version)
    return object({Fit::rejected, "other-packages",
                   fmt::format("it is for machines with packages of {}: no runfile is listed", entry.base_version)});
  if (!entry.has_runfile() && !keeps)
    return object({Fit::rejected, "packages", "the installed packages cannot stay: " + machine.packages.why_not});
  for (const std::string& generation : generations(machine))
    if (!entry.architectures.contains(generation))
      return object(
          {Fit::rejected, "architecture",
           fmt::format("it gives no P2P between {} cards; requires an entry that lists {}", generation, generation)});
  const auto converted = [](const Machine::Gpu& gpu) { return is_converted(gpu); };
  if (entry.dynamic_bar1 && std::ranges::none_of(machine.gpus, converted))
    return object({Fit::rejected, "dynamic-bar1",
                   "it is for cards that were converted to more memory than their BAR1 can cover"});
  if (!keeps && version_of(entry) < parse_version(machine.installed).value_or(Version()))
    return object({Fit::rejected, "older", fmt::format("it is older than the installed {}", machine.installed)});
  std::string running;  // set if the running kernel is not rejected
  for (const Machine::Target& kernel : machine.kernels) {
    auto found = objection(catalogue, entry, machine, kernel);
    if (kernel.running && (!found || found->fit != Fit::rejected)) running = kernel.release;
    if (found && found->fit > verdict.fit) object(*std::move(found));
  }
  if (verdict.fit == Fit::rejected && !running.empty()) {
    verdict.running_only = true;
    verdict.reason =
        fmt::format("it fits the running kernel {}, but not every bootable one: {}", running, verdict.reason);
  }
  if (verdict.fit == Fit::untried && machine.distribution.uses_apt())
    verdict.reason += ": apply builds it first, and changes nothing where that fails";
  return verdict;
}

/// Judges one entry on this machine, regardless of other obstacles to P2P; reads nothing.
EntryVerdict judge_entry(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine) {
  EntryVerdict verdict = judge_usable(catalogue, entry, machine);
  if (keeps_packages(entry, machine) ? entry.modules_usable() : entry.usable()) return verdict;
  verdict.fits_if_allowed = verdict.fit != Fit::rejected;
  verdict.reason = fmt::format(
      "not used, because {}; {}", entry.why_not_usable(),
      verdict.fits_if_allowed ? "allowed, it would fit" : "and even then it would not fit: " + verdict.reason);
  verdict.fit = Fit::candidate;
  return verdict;
}

std::string size_text(std::uint64_t bytes) {
  const std::uint64_t mib = bytes / kMiB;
  return mib >= 1024 && mib % 1024 == 0 ? fmt::format("{} GiB", mib / 1024) : fmt::format("{} MiB", mib);
}

/// An obstacle that no driver removes.
struct Gate {
  std::string cause, summary, next;
};

std::optional<Gate> model_gate(const Machine& machine) {
  if (machine.gpus.empty() && machine.gpus_known)
    return Gate{"no-gpu", "no NVIDIA GPU, so no driver to choose", "Install two GPUs of one model."};
  if (const auto problem = generation_problem({machine.gpus.begin(), machine.gpus.end()}); problem && !machine.divided)
    return Gate{problem->cause, problem->summary, problem->next};
  for (const Machine::Gpu& gpu : machine.gpus)
    if (!gpu.model)
      return Gate{"unknown-gpu", name_of(gpu) + " has a chip newer than this p2pd: the fitting driver is not known",
                  "Update p2pd, or report the card's PCI id and name; a driver that is installed by hand is proven all "
                  "the same."};
  return std::nullopt;
}

/// Gate for a converted card: only a build with dynamic BAR1 helps; nullopt if one may be used.
std::optional<Gate> converted_gate(const Catalogue& catalogue, const Machine& machine, const std::string& summary) {
  const CatalogueEntry* build = dynamic_bar1_build(catalogue, generations(machine));
  if (build != nullptr && build->usable()) return std::nullopt;
  if (build == nullptr)
    return Gate{"converted-card", summary,
                "Use cards with the memory that their maker gave them: BAR1 of this one stays that of its model."};
  return Gate{
      "converted-card", summary,
      fmt::format("Builds with \"dynamic BAR1\" map it piece by piece: \"sudo p2pctl catalogue allow {}\" shows "
                  "what is known of one.",
                  build->id)};
}

/// Checks that BAR1 can cover the VRAM; an unknown size becomes a question, a BAR1 that can still grow a note.
std::optional<Gate> bar1_gate(const Catalogue& catalogue, const Machine& machine, Choice& choice) {
  for (const Machine::Gpu& gpu : machine.gpus) {
    const auto known = vram_bytes(gpu.model, gpu.vram_bytes.value_or(0));
    const auto need = known ? known : gpu.bar1_most_bytes;  // the largest size covers what a card is sold with
    if (!need) {
      choice.questions.push_back(name_of(gpu) + ": gpus.yaml has no VRAM size for it, and no driver told one");
      continue;
    }
    if (gpu.bar1_bytes && *gpu.bar1_bytes >= *need) continue;
    if (!gpu.bar1_most_bytes) {
      choice.questions.push_back(name_of(gpu) +
                                 ": how large BAR1 can become is in extended configuration space; root could read it");
    } else if (*gpu.bar1_most_bytes >= *need) {
      choice.notes.push_back(fmt::format("{}: BAR1 is {} now and has to grow over {} of VRAM", name_of(gpu),
                                         gpu.bar1_bytes ? size_text(*gpu.bar1_bytes) : "not readable",
                                         size_text(*need)));
    } else if (is_converted(gpu)) {
      choice.needs_dynamic_bar1 = true;
      if (auto gate = converted_gate(catalogue, machine,
                                     fmt::format("{} was converted to {} of VRAM, and its BAR1 cannot exceed {}",
                                                 name_of(gpu), size_text(*need), size_text(*gpu.bar1_most_bytes))))
        return gate;
    } else {
      return Gate{"bar1-too-small",
                  fmt::format("BAR1 of {} cannot exceed {}, less than {} of VRAM: no driver helps", name_of(gpu),
                              size_text(*gpu.bar1_most_bytes), size_text(*need)),
                  kUpdateVbios};
    }
  }
  return std::nullopt;
}

/// Checks for data-centre and professional cards only: NVIDIA's own driver has P2P.
bool needs_no_patch(const Machine& machine) {
  return machine.gpus_known &&
         std::ranges::none_of(machine.gpus, [](const Machine::Gpu& gpu) { return may_be_geforce(gpu.model); });
}

void settle(Choice& choice, const Gate& gate) {
  std::tie(choice.cause, choice.summary, choice.next) = std::tie(gate.cause, gate.summary, gate.next);
}

void settle_without_patch(Choice& choice, const Machine& machine) {
  choice.already_p2p = !machine.driver_version.empty();
  if (!choice.already_p2p)
    return settle(choice, {"no-driver", "NVIDIA's own driver gives P2P between these cards, and none is loaded",
                           "Install NVIDIA's driver for these cards; none of this catalogue is needed."});
  choice.summary = fmt::format("driver {} already gives P2P between {} x {}: only the proof is missing",
                               machine.driver_version, machine.gpus.size(), machine.gpus.front().model->name);
}

/// How near an entry was to a fit, by the cause of its rejection; more is nearer.
std::ptrdiff_t nearness_of(const EntryVerdict& verdict) {
  constexpr std::string_view kCauses[] = {"other-packages", "packages", "dynamic-bar1", "architecture", "older",
                                          "source",         "kernel",   "compiler",     "headers"};
  const auto found = std::ranges::find(kCauses, verdict.cause);
  return verdict.running_only ? std::ssize(kCauses) + 1 : found - std::begin(kCauses);
}

/// Settles if no usable entry fits: names the nearest one, and candidates that would fit.
void settle_without_entry(Choice& choice, const Machine& machine) {
  const auto nearness = [](const EntryVerdict& one) { return std::pair(nearness_of(one), version_of(*one.entry)); };
  const EntryVerdict* nearest = nullptr;
  std::vector<std::string> candidates;
  for (const EntryVerdict& verdict : choice.table) {
    if (verdict.fits_if_allowed) candidates.push_back(verdict.entry->id);
    if (verdict.fit == Fit::rejected && (nearest == nullptr || nearness(verdict) > nearness(*nearest)))
      nearest = &verdict;
  }
  for (auto graft = choice.possible.rbegin(); graft != choice.possible.rend(); ++graft) candidates.push_back(graft->id);
  const std::string cards = fmt::format("{}", fmt::join(generations(machine), ", "));
  Gate gate{"no-entry", "no build of the catalogue is allowed on this machine",
            "\"sudo p2pctl catalogue add REPOSITORY BRANCH\" adds one."};
  if (nearest != nullptr && nearest->cause == "architecture")
    gate = {nearest->cause, fmt::format("no driver of the catalogue gives P2P between {} cards", cards),
            "No kernel or setting changes that."};
  else if (nearest != nullptr && nearest->cause == "older")
    gate = {nearest->cause,
            fmt::format("every build that could fit is older than the installed driver {}", machine.installed),
            "p2pd installs no older driver."};
  else if (nearest != nullptr)
    gate = {nearest->cause, fmt::format("no driver fits; {} comes nearest: {}", nearest->entry->id, nearest->reason),
            nearest->cause == "source" ? "Report it: the catalogue says that the patch applies."
                                       : "Boot a kernel that it fits, and remove those that it does not."};
  if (!candidates.empty())
    gate.next += fmt::format(
        " Would fit, and may not be used yet: {}. \"sudo p2pctl catalogue allow {}\" shows what is known, and asks.",
        fmt::join(candidates, ", "), candidates.back());
  settle(choice, gate);
}

/// True for a defect that takes GPUs or host down, not only in a use that a program has to ask for.
bool is_danger(const Defect* defect) {
  const auto is_its = [&](P2pUse use) { return to_string(use) == defect->use; };
  return defect->grave && (defect->use.empty() || std::ranges::any_of(usual_uses(), is_its));
}

/// Criteria that make one fitting entry better than another, the most important first; more is better.
auto rank(const EntryVerdict& verdict, const Machine& machine) {
  const CatalogueEntry& entry = *verdict.entry;
  const auto defects = defects_on(entry, machine);
  const Version version = version_of(entry);
  const auto evidence = [&](std::string_view at_least) {
    return std::ranges::all_of(generations(machine), [&](const std::string& generation) {
      const std::string& known = entry.architectures.at(generation);
      return known == kReported || known == at_least;
    });
  };
  const int reported = evidence(kReported) ? 2 : evidence(kInherited) ? 1 : 0;
  const int made = !entry.tree.empty() ? 2 : entry.is_graft() ? 0 : 1;
  const int keeps_nvlink = entry.nvlink == "kept" ? 2 : entry.nvlink.empty() ? 1 : 0;
  return std::tuple(verdict.fit != Fit::open,  // no question is open
                    entry.of_this_machine,     // added by an administrator here
                    std::ranges::none_of(defects, is_danger),
                    machine.nvlink ? keeps_nvlink : 0,  // bridged GPUs keep the faster path
                    keeps_packages(entry, machine),     // smallest change; its build is tried before anything changes
                    -static_cast<int>(verdict.fit),     // known to build
                    std::ranges::none_of(defects, &Defect::grave),
                    reported,  // reports of data moved between such cards
                    made,      // somebody has made that source
                    version, entry.known(), entry.patch_known);
}

/// Verdict on the best entry that fits, or could as far as is known; null if there is none.
const EntryVerdict* best_verdict(const Choice& choice, const Machine& machine) {
  const EntryVerdict* best = nullptr;
  for (const EntryVerdict& verdict : choice.table)
    if (verdict.fit <= Fit::open && verdict.entry->dynamic_bar1 == choice.needs_dynamic_bar1 &&
        (best == nullptr || rank(verdict, machine) > rank(*best, machine)))
      best = &verdict;
  return best;
}

/// Cost of a swap to an older `entry`: the newer driver, and the CUDA that came with it.
std::string lowered(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine) {
  const Version now = parse_version(machine.driver_version).value_or(Version());
  if (now <= version_of(entry)) return {};
  std::string cuda;  // CUDA of the running branch
  for (const CatalogueEntry& other : catalogue.entries)
    if (!other.cuda.empty() && parse_version(other.base_version)->front() == now.front()) cuda = other.cuda;
  std::string text = fmt::format("it lowers the driver from {} to {}", machine.driver_version, entry.base_version);
  if (!entry.cuda.empty() && entry.cuda != cuda)
    text += fmt::format(": programs that need a CUDA newer than {} stop working{}", entry.cuda,
                        cuda.empty() ? "" : fmt::format(" (now {})", cuda));
  return text;
}

/// Builds of the installed packages' version that no file lists: what a person could allow, best first.
std::vector<CatalogueEntry> possible_grafts(const Catalogue& catalogue, const Machine& machine) {
  std::vector<CatalogueEntry> found;
  if (!machine.packages.can_stay()) return found;
  for (const CatalogueEntry& entry : catalogue.entries) {
    if (entry.is_graft() || entry.dynamic_bar1) continue;
    auto graft = unlisted_graft(catalogue, fmt::format("{}-on-{}", entry.id, machine.packages.version));
    const auto listed = [&](const CatalogueEntry& other) { return other.id == graft->id; };
    if (graft && std::ranges::none_of(catalogue.entries, listed) &&
        judge_usable(catalogue, *graft, machine).fit <= Fit::untried)
      found.push_back(*std::move(graft));
  }
  std::ranges::sort(found, std::greater(), [&](const CatalogueEntry& graft) {
    return rank(judge_usable(catalogue, graft, machine), machine);
  });
  return found;
}

/// Reason why the installed packages cannot stay with the choice; empty: there are none.
std::string why_packages_go(const Choice& choice, const Machine& machine) {
  const PackagedUserspace& packages = machine.packages;
  const CatalogueEntry* build = nullptr;  // fitting build of their version
  for (const EntryVerdict& verdict : choice.table)
    if (verdict.entry->base_version == packages.version && verdict.fit <= Fit::open &&
        verdict.entry->dynamic_bar1 == choice.needs_dynamic_bar1)
      build = verdict.entry;
  if (packages.version.empty() || !packages.why_not.empty()) return packages.why_not;
  if (build == nullptr && choice.possible.empty())
    return fmt::format("no build of {} may be used and fits", packages.version);
  if (build == nullptr)
    return fmt::format("no build of {} is listed; \"sudo p2pctl catalogue allow {}\" shows one that may fit, and asks",
                       packages.version, choice.possible.front().id);
  if (machine.nvlink && build->nvlink == "lost")
    return fmt::format("with {}, the build of their version, bridged GPUs lose their NVLink", build->id);
  if (choice.entry->of_this_machine) return fmt::format("{} was added on this machine", choice.entry->id);
  return fmt::format("{}, the build of their version, has known defects that {} has not", build->id, choice.entry->id);
}

/// "built in tests for Linux 6.14": other kernels of a line count, and other releases of a branch.
std::string test_builds(const Catalogue& catalogue, const EntryVerdict& verdict, const Machine& machine) {
  if (verdict.fit == Fit::open) return "test builds: not known";
  const std::string& release = machine.kernels.front().release;
  const std::string kernels = machine.kernels.size() > 1
                                  ? "every kernel here"
                                  : "Linux " + release.substr(0, release.find('.', release.find('.') + 1));
  if (verdict.fit != Fit::fits) return "no test build for " + kernels;
  const std::string tested = tested_release(catalogue.kernels, version_of(*verdict.entry));
  return (tested == verdict.entry->base_version ? "" : tested + " ") + "built in tests for " + kernels;
}

/// Evidence for an entry on such a machine, for a person.
void tell_evidence(Choice& choice, const Catalogue& catalogue, const EntryVerdict& verdict, const Machine& machine) {
  const CatalogueEntry& entry = *verdict.entry;
  const std::set<std::string> cards = generations(machine);
  std::vector<std::string> parts;
  if (!machine.kernels.empty()) parts.push_back(test_builds(catalogue, verdict, machine));
  choice.reported = !cards.empty();
  for (const std::string& generation : cards) {
    const auto known = entry.architectures.find(generation);
    const std::string_view how = known == entry.architectures.end() ? kNoReport : std::string_view(known->second);
    choice.reported &= how == kReported;
    parts.push_back(fmt::format("P2P between {} cards: {}", generation,
                                how == kReported    ? "reported"
                                : how == kInherited ? "reported with this patch on " + entry.made_for
                                                    : "nobody reported it yet"));
  }
  if (std::ranges::any_of(machine.gpus, [](const auto& gpu) { return gpu.model && gpu.model->segment == "GeForce"; }))
    parts.emplace_back("p2pd itself has not run on GeForce cards");
  choice.evidence = fmt::format("{}", fmt::join(parts, "; "));
}

void settle_with(Choice& choice, const Catalogue& catalogue, const EntryVerdict& verdict, const Machine& machine) {
  const CatalogueEntry& entry = *verdict.entry;
  choice.entry = &entry;
  choice.keeps_packages = keeps_packages(entry, machine);
  const std::string cards = machine.gpus_known ? fmt::format("{} and ", fmt::join(generations(machine), ", ")) : "";
  choice.summary =
      fmt::format("{} {} {}{} bootable kernel{}", entry.id, verdict.fit == Fit::untried ? "may fit" : "fits", cards,
                  machine.kernels.size(), machine.kernels.size() == 1 ? "" : "s");
  if (choice.keeps_packages)
    choice.summary += fmt::format(", and the installed packages of {} stay", entry.base_version);
  else if (!machine.packages.version.empty())
    choice.summary += fmt::format(", and the packages of {} are purged", machine.packages.version);
  if (!machine.gpus_known) {
    std::vector<std::string_view> known;
    for (const auto& [generation, how] : entry.architectures) known.push_back(generation);
    choice.notes.push_back(
        fmt::format("an image: whether its GPUs are of {} is checked when it boots", fmt::join(known, ", ")));
  }
  tell_evidence(choice, catalogue, verdict, machine);
  if (const std::string why = choice.keeps_packages ? "" : why_packages_go(choice, machine); !why.empty())
    choice.notes.push_back("the driver's packages cannot stay: " + why);
  for (std::string& note : notes_on(catalogue, entry, machine)) choice.notes.push_back(std::move(note));
  for (const Machine::Target& kernel : machine.kernels)
    if (kernel.compiler && kernel.compiler->family == "gcc" && !kernel.compiler_installed)
      choice.notes.push_back(
          fmt::format("{}, the compiler of {}, is not installed", kernel.compiler->text(), kernel.release));
}

/// Words for a shell: packages that a build needs on `system`, kernel `release` with headers in `headers`.
std::string install_tools(const Distribution& system, const std::string& headers) {
  switch (system.manager) {
    case PackageManager::pacman: return fmt::format("sudo pacman -S --needed {} base-devel git", headers);
    case PackageManager::dnf: return fmt::format("sudo dnf install {} gcc gcc-c++ git make xz", headers);
    default: return fmt::format("# install the kernel's headers, its compiler, g++, git and make");
  }
}

/// Package of the driver with open modules, in the family of `system`.
std::string_view driver_package(const Distribution& system) {
  switch (system.manager) {
    case PackageManager::pacman: return "nvidia-open-dkms";
    case PackageManager::dnf: return "akmod-nvidia (RPM Fusion) or kmod-nvidia-open-dkms (NVIDIA's repository)";
    default: return "NVIDIA's driver with open modules";
  }
}

/// Commands that replace the modules of the installed driver by those of `entry`, for the running kernel.
std::vector<std::string> commands_by_hand(const Catalogue& catalogue, const CatalogueEntry& entry,
                                          const Machine& machine) {
  const auto running = std::ranges::find_if(machine.kernels, &Machine::Target::running);
  const bool clang = running != machine.kernels.end() && running->compiler && running->compiler->family == "clang";
  std::vector<std::string> commands = {
      install_tools(machine.distribution, running == machine.kernels.end() ? "" : running->headers),
      "git init --quiet p2p-driver && cd p2p-driver",
      fmt::format("git fetch --depth 1 {} {} && git checkout --quiet FETCH_HEAD", catalogue.releases_at,
                  entry.base_commit.empty() ? entry.base_version : entry.base_commit),
      fmt::format("p2pctl catalogue diff {} | git apply", entry.id)};
  commands.push_back(fmt::format("make -j\"$(nproc)\"{} modules", clang ? " LLVM=1" : ""));
  commands.push_back(
      fmt::format("sudo install -D -m 644 -t \"/lib/modules/$(uname -r)/{}\" kernel-open/nvidia*.ko", kHandPlace));
  commands.push_back(
      fmt::format("printf 'override %s * {}\\n' nvidia nvidia-modeset nvidia-drm nvidia-uvm nvidia-peermem | sudo tee "
                  "/etc/depmod.d/p2p-by-hand.conf",
                  kHandPlace));
  commands.emplace_back("sudo depmod");
  if (machine.distribution.manager == PackageManager::pacman) commands.emplace_back("sudo mkinitcpio -P");
  if (machine.distribution.manager == PackageManager::dnf) commands.emplace_back("sudo dracut --force");
  commands.emplace_back("sudo reboot    # then: sudo p2pctl apply");
  return commands;
}

/// The machine without what keeps p2pd's own build from it: a person may build with clang, and for one kernel.
Machine as_by_hand(Machine machine) {
  std::erase_if(machine.kernels, [](const Machine::Target& kernel) { return !kernel.running; });
  for (Machine::Target& kernel : machine.kernels)
    if (kernel.compiler && kernel.compiler->family == "clang") kernel.compiler.reset();
  if (machine.packages.version.empty()) machine.packages.version = machine.driver_version;
  machine.installed.clear();  // nor does an older driver
  return machine;
}

/// Settles on a system without apt, whose driver p2pd does not replace: names the build, and has the commands.
void settle_by_hand(Choice& choice, const Catalogue& catalogue, const Machine& machine) {
  const std::string& system = machine.distribution.name.empty() ? machine.distribution.id : machine.distribution.name;
  const Machine by_hand = as_by_hand(machine);
  const EntryVerdict* best = best_verdict(choice, by_hand);
  Gate gate{"distribution",
            fmt::format("p2pd replaces drivers by apt, which {} does not have",
                        system.empty() ? std::string_view("this system") : system),
            ""};
  if (best == nullptr) {
    Choice other = choice;
    settle_without_entry(other, by_hand);
    gate.next = fmt::format("Install a driver with P2P by hand; {}. {}", other.summary, other.next);
    return settle(choice, gate);
  }
  const CatalogueEntry& entry = *best->entry;
  choice.by_hand = &entry;
  choice.commands = commands_by_hand(catalogue, entry, machine);
  tell_evidence(choice, catalogue, *best, by_hand);
  for (std::string& note : notes_on(catalogue, entry, by_hand)) choice.notes.push_back(std::move(note));
  gate.next = machine.driver_version == entry.base_version
                  ? fmt::format("Put the modules of {} in place of those of {}", entry.id, entry.base_version)
                  : fmt::format("Install {} {}, then the modules of {}", driver_package(machine.distribution),
                                entry.base_version, entry.id);
  gate.next += ": \"p2pctl catalogue\" ends with the commands.";
  settle(choice, gate);
}

Choice choose_for_all(const Catalogue& catalogue, const Machine& machine) {
  Choice choice;
  choice.notes = catalogue.notes;
  const bool apt = machine.distribution.uses_apt();
  const Machine judged = apt ? machine : as_by_hand(machine);
  for (const CatalogueEntry& entry : catalogue.entries) choice.table.push_back(judge_entry(catalogue, entry, judged));
  choice.possible = possible_grafts(catalogue, machine);
  if (auto gate = model_gate(machine)) return settle(choice, *gate), choice;
  if (needs_no_patch(machine)) return settle_without_patch(choice, machine), choice;
  if (auto gate = bar1_gate(catalogue, machine, choice)) return settle(choice, *gate), choice;
  if (!apt) return settle_by_hand(choice, catalogue, machine), choice;
  if (machine.kernels.empty()) choice.questions.push_back("no bootable kernel is known");
  const EntryVerdict* best = best_verdict(choice, machine);
  if (best == nullptr) return settle_without_entry(choice, machine), choice;
  settle_with(choice, catalogue, *best, machine);
  if (best->fit == Fit::open) choice.questions.push_back(best->reason);
  return choice;
}

}  // namespace

std::string_view to_string(EntryVerdict::Fit fit) { return kFits[static_cast<std::size_t>(fit)]; }

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

std::vector<std::string> notes_on(const Catalogue& catalogue, const CatalogueEntry& entry, const Machine& machine) {
  std::vector<std::string> notes;
  if (std::string loss = lowered(catalogue, entry, machine); !loss.empty()) notes.push_back(std::move(loss));
  for (const Defect* defect : defects_on(entry, machine)) notes.push_back("known defect: " + defect->text);
  if (machine.nvlink && entry.nvlink == "lost")
    notes.push_back("bridged GPUs lose their NVLink with this build, and use PCIe");
  if (machine.nvlink && entry.nvlink.empty())
    notes.push_back("whether bridged GPUs keep their NVLink with this build is not known");
  if (EntryVerdict verdict = judge_entry(catalogue, entry, machine); verdict.fit == Fit::untried)
    notes.push_back(std::move(verdict.reason));
  return notes;
}

bool keeps_packages(const CatalogueEntry& entry, const Machine& machine) {
  return machine.packages.can_stay() && entry.base_version == machine.packages.version;
}

namespace {

/// Names the build that would do for fewer groups of GPUs, and those that it leaves out: the smallest groups go first.
void name_build_for_fewer(Choice& choice, const Catalogue& catalogue, Machine machine) {
  std::vector<std::string> without;
  for (std::set<std::string> left = generations(machine); left.size() > 1; left = generations(machine)) {
    const auto members = [&](const std::string& generation) {
      return std::ranges::count_if(
          machine.gpus, [&](const Machine::Gpu& gpu) { return gpu.model && gpu.model->architecture == generation; });
    };
    const std::string smallest = *std::ranges::min_element(left, {}, members);
    for (const Machine::Gpu& gpu : machine.gpus)
      if (gpu.model && gpu.model->architecture == smallest) without.push_back(gpu.address);
    machine.beside.insert(smallest);
    std::erase_if(machine.gpus, [&](const auto& gpu) { return gpu.model && gpu.model->architecture == smallest; });
    const Choice fewer = choose_for_all(catalogue, machine);
    if (fewer.entry == nullptr) continue;
    choice.next += fmt::format(" Without {}, {} fits: \"gpus: {{exclude: [{}]}}\" in /etc/p2pd/p2pd.yaml.",
                               without.size() == 1 ? "one GPU" : fmt::format("{} GPUs", without.size()),
                               fewer.entry->id, fmt::join(without, ", "));
    return;
  }
}

/// Names the build that would be chosen without the installed driver.
void name_build_after_removal(Choice& choice, const Catalogue& catalogue, Machine machine) {
  for (std::string* version : {&machine.installed, &machine.driver_version, &machine.packages.version})
    version->clear();
  if (const Choice then = choose_for_all(catalogue, machine); then.entry != nullptr)
    choice.next = fmt::format("Remove that driver and restart to have {} chosen. {}", then.entry->id, choice.next);
}

}  // namespace

Choice choose_driver(const Catalogue& catalogue, const Machine& machine) {
  Choice choice = choose_for_all(catalogue, machine);
  if (machine.divided && choice.entry == nullptr) name_build_for_fewer(choice, catalogue, machine);
  if (choice.cause == "older") name_build_after_removal(choice, catalogue, machine);
  Machine less = machine;
  std::erase_if(less.kernels, [](const Machine::Target& kernel) { return kernel.held_back; });
  const bool settled = choice.already_p2p || (choice.entry != nullptr && choice.questions.empty());
  if (settled || less.kernels.size() == machine.kernels.size()) return choice;
  Choice without = choose_for_all(catalogue, less);
  if (without.entry == nullptr) return choice;
  without.notes.push_back(
      fmt::format("{} starts by default: newer kernels have no modules", less.kernels.back().release));
  return without;
}

}  // namespace p2pd
