// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "ctl/verb.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/catalogue/patched_source.hpp"

namespace p2pd::ctl {

// Shared parts of the verbs "p2pctl catalogue ...".

/// Catalogue of the tree, with the runfile hosts of the command line first.
Result<Catalogue> catalogue_for(const Context& context, const Host& host);
/// Entry with this id; not_found names similar ids.
Result<CatalogueEntry> entry_of(const Catalogue& all, const std::string& id);

/// Makes the source of an entry in a directory of this process; returns its patch and tree.
Result<PatchedSource> patched(const Options& options, const Catalogue& all, const CatalogueEntry& entry, int stop_fd);

/// Prints the facts about an entry, the files that its patch changes, and `how` to read it.
void print_entry(const Catalogue& all, const CatalogueEntry& entry, const PatchedSource& source,
                 std::string_view how = "read it");

/// Writes a drop-in of the catalogue. The Error names the required user.
Result<void> write_drop_in(Host& host, const std::string& path, const std::string& text);

/// Hosts that are asked for the sum of a runfile: from the command line, and the shipped ones. Hosts of drop-ins only
/// serve files with a known sum.
std::vector<std::string> sum_hosts(const Options& options);

/// Writes a drop-in that allows `entry` with these hashes, and adds the runfile hosts of the command line. Prints its
/// path on this machine, unless --json, and returns it.
Result<std::string> allow_entry(const Context& context, Host& host, const CatalogueEntry& entry,
                                const Allowance& given);

}  // namespace p2pd::ctl
