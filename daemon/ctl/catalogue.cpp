// SPDX-License-Identifier: MIT
// p2pctl catalogue: every driver build of the catalogue and of its drop-ins, with the solver's verdict for this
// machine. catalogue diff ID and catalogue allow ID: one entry, its patch, and permission to use it. catalogue_add.cpp
// adds entries.
#include "ctl/catalogue.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "base/command.hpp"
#include "base/scratch_directory.hpp"
#include "machine/catalogue/runfile.hpp"
#include "machine/catalogue/staging.hpp"
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

/// Trials of its release in the kernel table; empty: none of that exact release.
std::vector<KernelTrial> trials_of(const Catalogue& all, const CatalogueEntry& entry) {
  const auto row = all.kernels.find(parse_version(entry.base_version).value_or(Version()));
  return row == all.kernels.end() ? std::vector<KernelTrial>() : row->second;
}

/// "builds", "builds with RULE", "fails: LINE"
std::string outcome_of(const KernelTrial& trial) {
  if (!trial.failure.empty()) return "fails: " + trial.failure;
  return trial.rules.empty() ? "builds" : fmt::format("builds with {}", fmt::join(trial.rules, ", "));
}

/// "builds 6.1.192 6.12.117, fails 7.3.4"
std::string kernels_of(const Catalogue& all, const CatalogueEntry& entry) {
  std::vector<std::string> builds, fails;
  for (const KernelTrial& trial : trials_of(all, entry))
    (trial.failure.empty() ? builds : fails).push_back(trial.kernel);
  std::vector<std::string> parts;
  if (!builds.empty()) parts.push_back(fmt::format("builds {}", fmt::join(builds, " ")));
  if (!fails.empty()) parts.push_back(fmt::format("fails {}", fmt::join(fails, " ")));
  return parts.empty() ? "not tried" : fmt::format("{}", fmt::join(parts, ", "));
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
          {"evidence", choice.evidence},
          {"questions", choice.questions},
          {"notes", choice.notes},
          {"next", choice.next}};
}

std::string mark_of_fit(const EntryVerdict* verdict) {
  if (verdict == nullptr || verdict->fit == Fit::open) return mark(Verdict::unknown);
  if (verdict->fit <= Fit::untried) return mark(Verdict::pass);
  return mark(verdict->fit == Fit::candidate ? Verdict::not_applicable : Verdict::fail);
}

void print_person(const Listing& listing) {
  std::vector<std::vector<std::string>> rows = {{"", "entry", "driver", "CUDA", "known", "GPUs", "kernels"}};
  for (std::size_t i = 0; i < listing.all.entries.size(); ++i) {
    const CatalogueEntry& entry = listing.all.entries[i];
    std::vector<std::string> gpus;
    for (const auto& [name, evidence] : entry.architectures) gpus.push_back(evidence == kNoReport ? name + "?" : name);
    const EntryVerdict* verdict = verdict_of(listing, i);
    if (verdict != nullptr && verdict->cause == "other-packages") continue;
    rows.push_back({mark_of_fit(verdict), entry.id, entry.base_version, entry.cuda,
                    std::string(to_string(entry.known())), fmt::format("{}", fmt::join(gpus, " ")),
                    kernels_of(listing.all, entry)});
    if (verdict != nullptr) rows.push_back({"", verdict->reason});
    for (const Defect& defect : entry.defects) rows.push_back({"", fmt::format("known defect: {}", defect.text)});
  }
  print_table(rows);
  const Choice& choice = listing.choice;
  const bool open = choice.entry != nullptr && !choice.questions.empty();
  fmt::print("\n{}\n", harmless(paint(Colour::bold, choice.summary + (open ? ", as far as is known" : ""))));
  if (!listing.not_judged.empty() && listing.not_judged != choice.summary) print_table({{"?", listing.not_judged}});
  for (const std::string& question : choice.questions) print_table({{mark(Verdict::unknown), question}});
  if (!choice.evidence.empty()) print_table({{"evidence", choice.evidence}});
  for (const std::string& note : choice.notes) print_table({{"note", note}});
  if (!choice.next.empty()) print_table({{"next", choice.next}});
}

std::string or_asked(const std::string& hash) { return hash.empty() ? "not pinned: NVIDIA is asked" : hash; }

/// Facts about an entry, row by row, for a person.
Rows what_is_known(const Catalogue& all, const CatalogueEntry& entry) {
  std::vector<std::vector<std::string>> rows = {
      {"driver",
       entry.cuda.empty() ? entry.base_version : fmt::format("{}, up to CUDA {}", entry.base_version, entry.cuda)},
      {"source", fmt::format("NVIDIA's {}: {} ({})", entry.base_version, or_asked(entry.base_commit),
                             to_string(entry.base_known))},
      {"patch", fmt::format("{}: {} ({})",
                            entry.patch_file.empty() ? fmt::format("{}, branch {}", entry.repository, entry.branch)
                                                     : entry.patch_file,
                            entry.commit, to_string(entry.patch_known))},
      {"runfile", entry.has_runfile() ? fmt::format("{}: SHA-256 {} ({})", entry.runfile_path,
                                                    or_asked(entry.runfile_sha256), to_string(entry.runfile_known))
                                      : "none: libraries and programs are those of installed packages"},
      {"kernels", kernels_of(all, entry)}};
  if (entry.is_graft())
    rows.push_back(
        {"graft", fmt::format("the patch was made for {}; p2pd puts it on {}", entry.made_for, entry.base_version)});
  for (const auto& [architecture, evidence] : entry.architectures)
    rows.push_back({"GPUs", fmt::format("{}: {}", architecture,
                                        evidence == kReported    ? "P2P reported"
                                        : evidence == kInherited ? "P2P reported on " + entry.made_for
                                                                 : "no report")});
  for (const std::string& report : entry.reports) rows.push_back({"report", report});
  for (const Defect& defect : entry.defects) rows.push_back({"defect", defect.text});
  return rows;
}

int tell_usable(const Options& options, const CatalogueEntry& entry) {
  if (options.json)
    print_json("p2pd.catalogue-allowance/1", {{"id", entry.id}, {"changed", false}});
  else
    fmt::print("{} may be used already: it is {}\n", entry.id, entry.allowed ? "allowed" : to_string(entry.known()));
  return kDone;
}

}  // namespace

Result<Catalogue> catalogue_for(const Context& context, const Host& host) {
  return p2pd::catalogue(
      host, {{"--runfile-host", {{"schema", "p2pd.catalogue/2"}, {"runfile_hosts", context.options.runfile_hosts}}}});
}

Result<CatalogueEntry> entry_of(const Catalogue& all, const std::string& id) {
  const auto found = std::ranges::find(all.entries, id, &CatalogueEntry::id);
  if (found != all.entries.end()) return *found;
  if (auto graft = unlisted_graft(all, id)) return *std::move(graft);
  std::vector<std::string_view> ids;
  for (const CatalogueEntry& entry : all.entries) ids.push_back(entry.id);
  return fail(ErrorCode::not_found,
              fmt::format("the catalogue has no entry \"{}\"{}", harmless(id), did_you_mean(id, ids)),
              "\"p2pctl catalogue\" lists them.");
}

void print_entry(const Catalogue& all, const CatalogueEntry& entry, const PatchedSource& source, std::string_view how) {
  fmt::print("{}\n", paint(Colour::bold, entry.id));
  print_table(what_is_known(all, entry));
  fmt::print("\n{}\n", harmless(fmt::format("{}", fmt::join(source.stat, "\n"))));
  print_table({{"tree", source.tree}, {"next", fmt::format("{}: p2pctl catalogue diff {}", how, entry.id)}});
}

Result<PatchedSource> patched(const Options& options, const Catalogue& all, const CatalogueEntry& entry, int stop_fd) {
  TRY(check_mirrors(options.mirrors));
  const ScratchDirectory scratch = TRY(ScratchDirectory::make("source"));
  ProcessRunner runner("/", stop_fd);  // runs git of this machine, even for an entry of another tree
  Host host(TRY(Root::open("/")), runner);
  GitStore store = TRY(GitStore::make(host, scratch.path()));
  return make_patched_source(host, store, all, entry, options.mirrors);
}

Result<void> write_drop_in(Host& host, const std::string& path, const std::string& text) {
  Result<void> written = host.write(path, text);
  if (!written && written.error().code == ErrorCode::denied) written.error().next = "Run it as root.";
  return written;
}

std::vector<std::string> sum_hosts(const Options& options) {
  std::vector<std::string> hosts = options.runfile_hosts;
  if (const auto shipped = parse_catalogue({shipped_catalogue()}))
    hosts.insert(hosts.end(), shipped->runfile_hosts.begin(), shipped->runfile_hosts.end());
  return hosts;
}

Result<std::string> allow_entry(const Context& context, Host& host, const CatalogueEntry& entry,
                                const Allowance& given) {
  const std::vector<std::string>& hosts = context.options.runfile_hosts;
  const std::size_t slash = entry.id.find('/');
  const std::string path =
      fmt::format("{}/allowed-{}--{}.yaml", kCatalogueDropIns, entry.id.substr(0, slash), entry.id.substr(slash + 1));
  const std::string text = fmt::format(
      "# Written by \"p2pctl catalogue allow\": this machine may use the build with these hashes. Remove the file to "
      "revoke it.\n"
      "schema: p2pd.catalogue/2\n{}allowed:\n  {}:\n    base_commit: \"{}\"\n    commit: \"{}\"\n{}",
      hosts.empty() ? "" : fmt::format("runfile_hosts: [\"{}\"]\n", fmt::join(hosts, "\", \"")), entry.id,
      given.base_commit, given.commit,
      given.runfile_sha256.empty() ? "" : fmt::format("    runfile_sha256: \"{}\"\n", given.runfile_sha256));
  TRY(write_drop_in(host, path, text));
  if (!context.options.json)
    print_table({{mark(Verdict::pass), fmt::format("allowed: {}", context.outside(path))},
                 {"next", "p2pctl plan shows what apply would do"}});
  return context.outside(path);
}

Result<int> catalogue(const Context& context) {
  if (context.options.catalogue_verb != nullptr) return context.options.catalogue_verb(context);
  const auto host = TRY(context.host_of_plan());
  const Listing listing = listing_of(*host, TRY(p2pd::catalogue(*host)));
  if (context.options.json)
    print_json("p2pd.catalogue-list/2", to_json(listing));
  else
    print_person(listing);
  return kDone;
}

/// Prints the change of an entry to NVIDIA's source as a patch for git-apply(1), after comments with the entry's facts.
/// Fetches release and fork into a directory of its own, and runs nothing from them.
Result<int> catalogue_diff(const Context& context) {
  const int stop_fd = stop_signals();
  const Host host = TRY(context.host(stop_fd));
  const Catalogue all = TRY(catalogue_for(context, host));
  CatalogueEntry entry = TRY(entry_of(all, context.options.id));
  const PatchedSource source = TRY(patched(context.options, all, entry, stop_fd));
  entry.commit = source.commit;
  if (context.options.json) {
    print_json("p2pd.catalogue-diff/1", {{"id", entry.id},
                                         {"base_commit", source.base_commit},
                                         {"commit", source.commit},
                                         {"tree", source.tree},
                                         {"left_out", source.left_out},
                                         {"stat", source.stat},
                                         {"patch", source.patch}});
    return kDone;
  }
  for (const auto& row : what_is_known(all, entry)) fmt::print("# {:8} {}\n", row.front(), harmless(row.back()));
  fmt::print("# {:8} {} with the patch\n", "tree", source.tree);
  if (!source.left_out.empty())
    fmt::print("# {:8} {} (no part of the modules)\n", "left out",
               harmless(fmt::format("{}", fmt::join(source.left_out, ", "))));
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;  // a program gets the exact bytes
  fmt::print("#\n# {}\n\n{}", harmless(fmt::format("{}", fmt::join(source.stat, "\n# "))),
             is_terminal ? harmless(source.patch) : source.patch);
  return kDone;
}

/// Shows the known and unknown facts of an entry and its changes, and asks for permission to use it on this machine.
/// Fetches missing hashes from NVIDIA and pins them with the answer. Builds and runs nothing.
Result<int> catalogue_allow(const Context& context) {
  TRY(context.require_directory());
  const int stop_fd = stop_signals();
  Host host = TRY(context.host(stop_fd));
  const Catalogue all = TRY(catalogue_for(context, host));
  CatalogueEntry entry = TRY(entry_of(all, context.options.id));
  if (entry.usable()) return tell_usable(context.options, entry);
  TRY(require_consent(context.options));
  const PatchedSource source = TRY(patched(context.options, all, entry, stop_fd));
  entry.commit = source.commit;
  Allowance given{source.base_commit, source.commit, entry.runfile_sha256};
  std::string from = "as the catalogue has it";
  if (entry.has_runfile() && given.runfile_sha256.empty()) {
    const Runfile published = TRY(find_runfile(host, sum_hosts(context.options), entry.base_version));
    given.runfile_sha256 = published.sha256;
    from = published.sum_url();
  }
  if (!context.options.json) {
    print_entry(all, entry, source);
    if (entry.has_runfile()) print_table({{"runfile", fmt::format("SHA-256 {}, {}", given.runfile_sha256, from)}});
  }
  if (!TRY(said_yes(context.options, "Use it on this machine, with these hashes?"))) return not_wanted();
  const std::string path = TRY(allow_entry(context, host, entry, given));
  if (context.options.json)
    print_json("p2pd.catalogue-allowance/1", {{"id", entry.id},
                                              {"path", path},
                                              {"changed", true},
                                              {"base_commit", given.base_commit},
                                              {"commit", given.commit},
                                              {"tree", source.tree},
                                              {"stat", source.stat},
                                              {"runfile_sha256", or_null(given.runfile_sha256)}});
  return kDone;
}

}  // namespace p2pd::ctl
