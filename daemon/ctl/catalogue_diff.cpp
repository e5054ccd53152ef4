// SPDX-License-Identifier: MIT
// p2pctl catalogue diff ID: prints the change of an entry to NVIDIA's source as a patch for git-apply(1), after
// comments with the entry's facts. Fetches release and fork into a directory of its own, and runs nothing from them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "base/command.hpp"
#include "ctl/catalogue_entry.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {

Result<int> catalogue_diff(const Context& context) {
  const int stop_fd = stop_signals();
  const auto runner = TRY(context.runner(stop_fd));
  const Host host = TRY(context.host(*runner));
  const Catalogue all = TRY(catalogue_for(context, host));
  const CatalogueEntry entry = TRY(entry_of(all, context.options.id));
  const PatchedSource source = TRY(patched(context.options, all, entry, stop_fd));
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

}  // namespace p2pd::ctl
