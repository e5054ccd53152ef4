// SPDX-License-Identifier: MIT
// p2pctl catalogue: every driver build of the catalogue and of its drop-ins, with the solver's verdict for this
// machine.
#include "machine/catalogue/catalogue.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ctl/catalogue_entry.hpp"
#include "ctl/verb.hpp"
#include "machine/driver/machine.hpp"
#include "machine/driver/solver.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;
using Fit = EntryVerdict::Fit;

/// Catalogue with the verdicts for a machine.
struct Listing {
  Catalogue all;
  Choice choice;
  std::string not_judged;  ///< reason why no entry has a verdict; empty: every entry has one
};

/// Reason why no entry can be judged. The solver ignores unknown values, and without these every entry would seem to
/// fit.
std::string missing_for_verdicts(const Machine& machine) {
  if (machine.gpus.empty()) return "this machine has no NVIDIA GPU, so entries are not checked against it";
  for (const Machine::Gpu& gpu : machine.gpus)
    if (!gpu.model)
      return fmt::format("{} ({}) has a chip newer than this p2pd, so entries are not checked against it", gpu.id,
                         gpu.address);
  if (machine.kernels.empty()) return "no bootable kernel was found, so entries are not checked against it";
  return {};
}

Listing listing_of(const Host& host, Catalogue all) {
  Listing listing{std::move(all), {}, {}};
  const Result<Machine> machine = machine_of(host, listing.all);
  if (machine) {
    listing.choice = choose_driver(listing.all, *machine);
    listing.not_judged = missing_for_verdicts(*machine);
  } else {
    listing.not_judged = "this machine could not be read: " + machine.error().message;
    listing.choice.summary = listing.not_judged;
    listing.choice.next = machine.error().next;
  }
  return listing;
}

const EntryVerdict* verdict_of(const Listing& listing, std::size_t index) {
  return listing.not_judged.empty() ? &listing.choice.table[index] : nullptr;
}

json or_null(const std::string& text) { return text.empty() ? json() : json(text); }

json to_json(const Listing& listing) {
  json entries = json::array();
  for (std::size_t i = 0; i < listing.all.entries.size(); ++i) {
    const CatalogueEntry& entry = listing.all.entries[i];
    const EntryVerdict* verdict = verdict_of(listing, i);
    json kernels = json::object();
    for (const KernelTrial& trial : trials_of(listing.all, entry)) kernels[trial.kernel] = outcome_of(trial);
    json defects = json::array();
    for (const Defect& defect : entry.defects)
      defects.push_back({{"id", defect.id}, {"text", defect.text}, {"grave", defect.grave}});
    entries.push_back({{"id", entry.id},
                       {"usable", entry.usable()},
                       {"known", to_string(entry.known())},
                       {"driver_version", entry.base_version},
                       {"cuda", or_null(entry.cuda)},
                       {"base_commit", or_null(entry.base_commit)},
                       {"repository", or_null(entry.repository)},
                       {"commit", or_null(entry.commit)},
                       {"tree", or_null(entry.tree)},
                       {"architectures", entry.architectures},
                       {"kernel_min", or_null(entry.kernel_min ? dotted(*entry.kernel_min) : "")},
                       {"kernels", std::move(kernels)},
                       {"defects", std::move(defects)},
                       {"source", entry.source},
                       {"fit", verdict == nullptr ? json("unknown") : json(to_string(verdict->fit))},
                       {"running_kernel_only", verdict != nullptr && verdict->running_only},
                       {"reason", verdict == nullptr ? listing.not_judged : verdict->reason}});
  }
  const Choice& choice = listing.choice;
  return {{"entries", std::move(entries)},
          {"entry", choice.entry == nullptr ? json() : json(choice.entry->id)},
          {"already_p2p", choice.already_p2p},
          {"summary", choice.summary},
          {"questions", choice.questions},
          {"notes", choice.notes},
          {"next", choice.next}};
}

std::string mark_of(const EntryVerdict* verdict) {
  if (verdict == nullptr || verdict->fit == Fit::open) return mark(Verdict::unknown);
  if (verdict->fit <= Fit::untried) return mark(Verdict::pass);
  return mark(verdict->fit == Fit::candidate ? Verdict::not_applicable : Verdict::fail);
}

void print_person(const Listing& listing) {
  std::vector<std::vector<std::string>> rows = {{"", "entry", "driver", "CUDA", "known", "GPUs", "kernels"}};
  for (std::size_t i = 0; i < listing.all.entries.size(); ++i) {
    const CatalogueEntry& entry = listing.all.entries[i];
    std::vector<std::string> gpus;
    for (const auto& [name, evidence] : entry.architectures) gpus.push_back(evidence == "reported" ? name : name + "?");
    rows.push_back({mark_of(verdict_of(listing, i)), entry.id, entry.base_version, entry.cuda,
                    std::string(to_string(entry.known())), fmt::format("{}", fmt::join(gpus, " ")),
                    kernels_of(listing.all, entry)});
    const EntryVerdict* verdict = verdict_of(listing, i);
    if (verdict != nullptr) rows.push_back({"", verdict->reason});
    for (const Defect& defect : entry.defects) rows.push_back({"", fmt::format("known defect: {}", defect.text)});
  }
  print_table(rows);
  const Choice& choice = listing.choice;
  const bool open = choice.entry != nullptr && !choice.questions.empty();
  fmt::print("\n{}\n", harmless(paint(Colour::bold, choice.summary + (open ? ", as far as is known" : ""))));
  if (!listing.not_judged.empty() && listing.not_judged != choice.summary) print_table({{"?", listing.not_judged}});
  for (const std::string& question : choice.questions) print_table({{mark(Verdict::unknown), question}});
  for (const std::string& note : choice.notes) print_table({{"note", note}});
  if (!choice.next.empty()) print_table({{"next", choice.next}});
}

}  // namespace

Result<int> catalogue(const Context& context) {
  if (context.options.catalogue_verb != nullptr) return context.options.catalogue_verb(context);
  const auto runner = TRY(context.runner());
  const Host host = TRY(context.host_of_plan(*runner));
  const Listing listing = listing_of(host, TRY(p2pd::catalogue(host)));
  if (context.options.json)
    print_json("p2pd.catalogue-list/2", to_json(listing));
  else
    print_person(listing);
  return kDone;
}

}  // namespace p2pd::ctl
