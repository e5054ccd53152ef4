// SPDX-License-Identifier: MIT
#include "base/driver/solver.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.hpp"

namespace p2pd {
namespace {

using Fit = EntryVerdict::Fit;

std::string size_text(std::uint64_t bytes) {
  const std::uint64_t mib = bytes / kMiB;
  return mib >= 1024 && mib % 1024 == 0 ? fmt::format("{} GiB", mib / 1024) : fmt::format("{} MiB", mib);
}

/// A reason that no driver changes.
struct Gate {
  std::string cause, summary, next;
};

std::optional<Gate> model_gate(const Machine& machine) {
  if (machine.gpus.empty() && machine.gpus_known)
    return Gate{"no-gpu", "no NVIDIA GPU, so no driver to choose", "Install two GPUs of one model."};
  if (const auto problem = generation_problem({machine.gpus.begin(), machine.gpus.end()}))
    return Gate{problem->cause, problem->summary, problem->next};
  for (const Machine::Gpu& gpu : machine.gpus)
    if (!gpu.model)
      return Gate{"unknown-gpu", name_of(gpu) + " is of a chip that is newer than this p2pd: which driver fits it is not known",
                  "Update p2pd, or report the card's PCI id and name; a driver that is installed by hand is proven all the same."};
  return std::nullopt;
}

/// Converted cards carry more memory than their model, and keep its BAR1.
bool is_converted(const Machine::Gpu& gpu) {
  return gpu.vram_bytes && gpu.model && gpu.model->vram_mib &&
         *gpu.vram_bytes / kMiB > *gpu.model->vram_mib * 21ULL / 20;
}

std::optional<std::uint64_t> vram(const Machine::Gpu& gpu) {
  if (gpu.vram_bytes) return gpu.vram_bytes;
  if (gpu.model && gpu.model->vram_mib) return *gpu.model->vram_mib * kMiB;
  return std::nullopt;
}

/// BAR1 must be able to cover the VRAM; what cannot be told is a question, what can still grow a note.
std::optional<Gate> bar1_gate(const Machine& machine, Choice& choice) {
  for (const Machine::Gpu& gpu : machine.gpus) {
    const auto need = vram(gpu);
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
      return Gate{"converted-card",
                  fmt::format("{} was converted to {} of VRAM, and its BAR1 cannot exceed {}: P2P is impossible",
                              name_of(gpu), size_text(*need), size_text(*gpu.bar1_most_bytes)),
                  "Use cards with the memory that their maker gave them: BAR1 of this one stays that of its model."};
    } else {
      return Gate{"bar1-too-small",
                  fmt::format("BAR1 of {} cannot exceed {}, less than {} of VRAM: no driver helps", name_of(gpu),
                              size_text(*gpu.bar1_most_bytes), size_text(*need)),
                  "Update the card's vBIOS to one with Resizable BAR; in a virtual machine, look at the host instead."};
    }
  }
  return std::nullopt;
}

std::optional<Gate> distribution_gate(const Machine& machine) {
  const Distribution& found = machine.distribution;
  if (found.uses_apt) return std::nullopt;
  return Gate{"distribution",
              fmt::format("p2pd replaces drivers on Debian, Ubuntu and their like; this is '{}'", found.id),
              "Install Debian or Ubuntu, or a catalogue entry's build by hand."};
}

/// Data-centre and professional cards have P2P in NVIDIA's own driver: nothing to replace.
bool needs_no_patch(const Machine& machine) {
  return machine.gpus_known && std::ranges::none_of(machine.gpus, [](const Machine::Gpu& gpu) {
           return may_be_geforce(gpu.model);
         });
}

void settle(Choice& choice, Gate gate) {
  choice.cause = std::move(gate.cause);
  choice.summary = std::move(gate.summary);
  choice.next = std::move(gate.next);
}

void settle_without_patch(Choice& choice, const Machine& machine) {
  choice.already_p2p = !machine.driver_version.empty();
  if (!choice.already_p2p)
    return settle(choice, {"no-driver", "NVIDIA's own driver gives P2P between these cards, and none is loaded",
                           "Install NVIDIA's driver for these cards; none of this catalogue is needed."});
  choice.summary = fmt::format("driver {} already gives P2P between {} x {}: only the proof is missing",
                               machine.driver_version, machine.gpus.size(), machine.gpus.front().model->name);
}

/// How far an entry came before it was rejected; more is nearer.
int distance(const EntryVerdict& verdict) {
  constexpr std::string_view kCauses[] = {"architecture", "kernel", "compiler", "headers"};
  const auto found = std::ranges::find(kCauses, verdict.cause);
  return verdict.running_only ? 10 : static_cast<int>(found - std::begin(kCauses));
}

/// No enabled entry fits: names the one that comes nearest, and candidates that would.
void settle_without_entry(Choice& choice, const Catalogue& catalogue, const Machine& machine) {
  const EntryVerdict* nearest = nullptr;
  std::vector<std::string> candidates;
  Version newest;
  for (std::size_t i = 0; i < choice.table.size(); ++i) {
    const EntryVerdict& verdict = choice.table[i];
    if (verdict.needs_pins_only) candidates.push_back(verdict.entry);
    if (verdict.fit != Fit::rejected) continue;
    const Version version = parse_version(catalogue.entries[i].base_version).value_or(Version());
    if (nearest != nullptr && std::pair(distance(*nearest), newest) >= std::pair(distance(verdict), version)) continue;
    nearest = &verdict;
    newest = version;
  }
  const std::string cards = fmt::format("{}", fmt::join(generations(machine), ", "));
  Gate gate{"no-entry", "no entry of the catalogue is enabled", "Add one with its pins to /etc/p2pd/catalogue.d."};
  if (nearest != nullptr) {
    const bool kernels = nearest->cause != "architecture";
    gate = {nearest->cause,
            kernels ? fmt::format("no driver fits; {} comes nearest: {}", nearest->entry, nearest->reason)
                    : fmt::format("no enabled driver gives P2P between {} cards", cards),
            kernels ? "Boot a kernel that it fits, and remove those that it does not."
                    : "No kernel or setting changes that."};
  }
  if (!candidates.empty())
    gate.next += fmt::format(
        " Candidates that would fit once they are pinned in /etc/p2pd/catalogue.d (commit read in git, SHA-256 of the "
        "runfile): {}.",
        fmt::join(candidates, ", "));
  settle(choice, std::move(gate));
}

/// The newest of the entries with this verdict; null when there is none.
const CatalogueEntry* newest_of(const Catalogue& catalogue, const Choice& choice, Fit fit) {
  const CatalogueEntry* best = nullptr;
  Version newest;
  for (std::size_t i = 0; i < choice.table.size(); ++i) {
    const Version version = parse_version(catalogue.entries[i].base_version).value_or(Version());
    if (choice.table[i].fit != fit || (best != nullptr && version <= newest)) continue;
    best = &catalogue.entries[i];
    newest = version;
  }
  return best;
}

void settle_with(Choice& choice, const CatalogueEntry& entry, const Machine& machine) {
  choice.entry = &entry;
  const std::string cards = machine.gpus_known ? fmt::format("{} and ", fmt::join(generations(machine), ", ")) : "";
  choice.summary = fmt::format("{} fits {}{} bootable kernel{}", entry.id, cards,
                               machine.kernels.size(), machine.kernels.size() == 1 ? "" : "s");
  if (!machine.gpus_known) {
    std::vector<std::string_view> known;
    for (const auto& [generation, how] : entry.architectures) known.push_back(generation);
    choice.notes.push_back(
        fmt::format("an image: whether its GPUs are of {} is told where it boots", fmt::join(known, ", ")));
  }
  for (const std::string& generation : generations(machine))
    if (entry.architectures.at(generation) != "reported")
      choice.notes.push_back(fmt::format("nobody reported P2P between {} cards with it yet", generation));
  for (const Machine::Target& kernel : machine.kernels) {
    if (!kernel.compiler || kernel.compiler->family != "gcc") continue;
    const int major = kernel.compiler->major;
    if (!entry.gcc_tested.empty() && std::ranges::count(entry.gcc_tested, major) == 0)
      choice.notes.push_back(fmt::format("{} wants gcc {}; it was built with gcc {} so far", kernel.release, major,
                                         fmt::join(entry.gcc_tested, ", ")));
    if (std::ranges::count(machine.gcc_installed, major) == 0)
      choice.notes.push_back(
          fmt::format("{}, the compiler of {}, is not installed", kernel.compiler->text(), kernel.release));
  }
}

Choice choose_for_all(const Catalogue& catalogue, const Machine& machine) {
  Choice choice;
  for (const CatalogueEntry& entry : catalogue.entries) choice.table.push_back(judge_entry(catalogue, entry, machine));
  if (auto gate = model_gate(machine)) return settle(choice, std::move(*gate)), choice;
  if (needs_no_patch(machine)) return settle_without_patch(choice, machine), choice;
  if (auto gate = bar1_gate(machine, choice)) return settle(choice, std::move(*gate)), choice;
  if (auto gate = distribution_gate(machine)) return settle(choice, std::move(*gate)), choice;
  if (machine.kernels.empty()) choice.questions.push_back("no bootable kernel is known");
  const CatalogueEntry* entry = newest_of(catalogue, choice, Fit::fits);
  if (entry == nullptr) entry = newest_of(catalogue, choice, Fit::open);
  if (entry == nullptr) return settle_without_entry(choice, catalogue, machine), choice;
  settle_with(choice, *entry, machine);
  const EntryVerdict& verdict = choice.table[static_cast<std::size_t>(entry - catalogue.entries.data())];
  if (verdict.fit == Fit::open) choice.questions.push_back(verdict.reason);
  return choice;
}

}  // namespace

Choice choose_driver(const Catalogue& catalogue, const Machine& machine) {
  Choice choice = choose_for_all(catalogue, machine);
  Machine less = machine;
  std::erase_if(less.kernels, [](const Machine::Target& kernel) { return kernel.held_back; });
  const bool settled = choice.already_p2p || (choice.entry != nullptr && choice.questions.empty());
  if (settled || less.kernels.size() == machine.kernels.size()) return choice;
  Choice without = choose_for_all(catalogue, less);
  if (without.entry == nullptr) return choice;
  without.notes.push_back(fmt::format("{} starts by default: newer kernels have no modules", less.kernels.back().release));
  return without;
}

}  // namespace p2pd
