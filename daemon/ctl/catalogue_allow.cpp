// SPDX-License-Identifier: MIT
// p2pctl catalogue allow ID: shows the known and unknown facts of an entry and its changes, and asks for permission to
// use it on this machine. Fetches missing hashes from NVIDIA and pins them with the answer. Builds and runs nothing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/command.hpp"
#include "ctl/catalogue_entry.hpp"
#include "machine/catalogue/runfile.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

int tell_usable(const Options& options, const CatalogueEntry& entry) {
  if (options.json)
    print_json("p2pd.catalogue-allowance/1", {{"id", entry.id}, {"changed", false}});
  else
    fmt::print("{} may be used already: it is {}\n", entry.id, entry.allowed ? "allowed" : to_string(entry.known()));
  return kDone;
}

}  // namespace

Result<int> catalogue_allow(const Context& context) {
  TRY(context.require_directory());
  const int stop_fd = stop_signals();
  const auto runner = TRY(context.runner(stop_fd));
  Host host = TRY(context.host(*runner));
  const Catalogue all = TRY(catalogue_for(context, host));
  const CatalogueEntry entry = TRY(entry_of(all, context.options.id));
  if (entry.usable()) return tell_usable(context.options, entry);
  const PatchedSource source = TRY(patched(context.options, all, entry, stop_fd));
  Allowance given{source.base_commit, entry.commit, entry.runfile_sha256};
  std::string from = "as the catalogue has it";
  if (given.runfile_sha256.empty()) {
    const Runfile published = TRY(find_runfile(host, sum_hosts(context.options), entry.base_version));
    given.runfile_sha256 = published.sha256;
    from = published.sum_url();
  }
  if (!context.options.json) {
    fmt::print("{}\n", paint(Colour::bold, entry.id));
    print_entry(all, entry, source);
    print_table({{"runfile", fmt::format("SHA-256 {}, {}", given.runfile_sha256, from)}});
  }
  if (!TRY(said_yes(context.options, "Use it on this machine, with these hashes?"))) return kError;
  const std::string path = context.outside(TRY(write_allowance(host, entry, given, context.options.runfile_hosts)));
  if (context.options.json)
    print_json("p2pd.catalogue-allowance/1", {{"id", entry.id},
                                              {"path", path},
                                              {"changed", true},
                                              {"base_commit", given.base_commit},
                                              {"commit", given.commit},
                                              {"tree", source.tree},
                                              {"stat", source.stat},
                                              {"runfile_sha256", given.runfile_sha256}});
  else
    print_table(
        {{mark(Verdict::pass), fmt::format("allowed: {}", path)}, {"next", "p2pctl plan shows what apply would do"}});
  return kDone;
}

}  // namespace p2pd::ctl
