// SPDX-License-Identifier: MIT
// p2pctl catalogue: every driver build of the catalogue and of its drop-ins, with what the solver says of it here.
#include "base/driver/catalogue.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/driver/machine.hpp"
#include "base/driver/solver.hpp"
#include "ctl/print.hpp"
#include "ctl/verb.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;
using Fit = EntryVerdict::Fit;

/// The catalogue as a machine sees it.
struct Listing {
  Catalogue all;
  Choice choice;
  std::string not_judged;  ///< why there is no verdict on any entry; empty: there is one on each
};

std::string dotted(const std::optional<Version>& version) {
  return version ? fmt::format("{}", fmt::join(*version, ".")) : "";
}

/// Why no entry can be judged: the solver leaves out what is not known, and then everything would seem to fit.
std::string missing_for_verdicts(const Machine& machine) {
  if (machine.gpus.empty()) return "no NVIDIA GPU is here, so none of them can be judged";
  for (const Machine::Gpu& gpu : machine.gpus)
    if (!gpu.model) return fmt::format("{} ({}) is of a chip that is newer than this p2pd, so none can be judged", gpu.id, gpu.address);
  if (machine.kernels.empty()) return "no bootable kernel is known, so none can be judged";
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
    entries.push_back({{"id", entry.id},
                       {"enabled", entry.enabled},
                       {"driver_version", entry.base_version},
                       {"repository", entry.repository},
                       {"commit", or_null(entry.commit)},
                       {"architectures", entry.architectures},
                       {"kernel_min", or_null(dotted(entry.kernel_min))},
                       {"kernel_below", or_null(dotted(entry.kernel_below))},
                       {"source", entry.source},
                       {"fit", verdict == nullptr ? json("unknown") : json(to_string(verdict->fit))},
                       {"running_kernel_only", verdict != nullptr && verdict->running_only},
                       {"reason", verdict == nullptr ? listing.not_judged : verdict->reason}});
  }
  const Choice& choice = listing.choice;
  return {{"entries", std::move(entries)},     {"entry", choice.entry == nullptr ? json() : json(choice.entry->id)},
          {"already_p2p", choice.already_p2p}, {"summary", choice.summary},
          {"questions", choice.questions},     {"next", choice.next}};
}

std::string mark_of(const EntryVerdict* verdict) {
  if (verdict == nullptr || verdict->fit == Fit::open) return mark(Verdict::unknown);
  if (verdict->fit == Fit::fits) return mark(Verdict::pass);
  return mark(verdict->fit == Fit::candidate ? Verdict::not_applicable : Verdict::fail);
}

std::string kernels_of(const CatalogueEntry& entry) {
  std::string text = entry.kernel_min ? "from " + dotted(entry.kernel_min) : "";
  if (entry.kernel_below) text += (text.empty() ? "below " : ", below ") + dotted(entry.kernel_below);
  return text.empty() ? "not told" : text;
}

void print_person(const Listing& listing) {
  std::vector<std::vector<std::string>> rows = {{"", "entry", "", "driver", "GPUs", "kernels"}};
  for (std::size_t i = 0; i < listing.all.entries.size(); ++i) {
    const CatalogueEntry& entry = listing.all.entries[i];
    std::vector<std::string> gpus;
    for (const auto& [name, evidence] : entry.architectures) gpus.push_back(evidence == "reported" ? name : name + "?");
    rows.push_back({mark_of(verdict_of(listing, i)), entry.id, entry.enabled ? "enabled" : "candidate",
                    entry.base_version, gpus.empty() ? "not told" : fmt::format("{}", fmt::join(gpus, " ")),
                    kernels_of(entry)});
    if (const EntryVerdict* verdict = verdict_of(listing, i)) rows.push_back({"", verdict->reason});
  }
  print_table(rows);
  const Choice& choice = listing.choice;
  const bool open = choice.entry != nullptr && !choice.questions.empty();
  fmt::print("\n{}\n", harmless(paint(Colour::bold, choice.summary + (open ? ", as far as is known" : ""))));
  if (!listing.not_judged.empty() && listing.not_judged != choice.summary) print_table({{"?", listing.not_judged}});
  for (const std::string& question : choice.questions) print_table({{mark(Verdict::unknown), question}});
  if (!choice.next.empty()) print_table({{"next", choice.next}});
}

}  // namespace

Result<int> catalogue(const Context& context) {
  if (context.options.add) return catalogue_add(context);
  const auto runner = TRY(context.runner());
  const Host host = TRY(context.host_of_plan(*runner));
  const Listing listing = listing_of(host, TRY(p2pd::catalogue(host)));
  if (context.options.json)
    print_json("p2pd.catalogue-list/1", to_json(listing));
  else
    print_person(listing);
  return kDone;
}

}  // namespace p2pd::ctl
