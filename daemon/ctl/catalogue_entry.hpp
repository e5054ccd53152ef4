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

/// Facts about an entry, row by row, for a person.
std::vector<std::vector<std::string>> what_is_known(const Catalogue& all, const CatalogueEntry& entry);
/// Trials of its release in the kernel table; empty: none of that exact release.
std::vector<KernelTrial> trials_of(const Catalogue& all, const CatalogueEntry& entry);
std::string outcome_of(const KernelTrial& trial);  ///< "builds", "builds with RULE", "fails: LINE"
/// "builds 6.1.192 6.12.117, fails 7.3.4"
std::string kernels_of(const Catalogue& all, const CatalogueEntry& entry);

/// Makes the source of an entry in a directory of this process; returns its patch and tree.
Result<PatchedSource> patched(const Options& options, const Catalogue& all, const CatalogueEntry& entry, int stop_fd);

/// Prints the facts about an entry, and the files that its patch changes.
void print_entry(const Catalogue& all, const CatalogueEntry& entry, const PatchedSource& source);

/// Writes a drop-in of the catalogue. The Error names the required user.
Result<void> write_drop_in(Host& host, const std::string& path, const std::string& text);

/// Hosts that are asked for the sum of a runfile: from the command line, and the shipped ones. Hosts of drop-ins only
/// serve files with a known sum.
std::vector<std::string> sum_hosts(const Options& options);

/// Writes a drop-in that allows `entry` with these hashes, and adds these runfile hosts. Returns the file.
Result<std::string> write_allowance(Host& host, const CatalogueEntry& entry, const Allowance& given,
                                    const std::vector<std::string>& hosts);

}  // namespace p2pd::ctl
