// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "ctl/verb.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/catalogue/patched_source.hpp"

namespace p2pd::ctl {

// What the verbs "p2pctl catalogue ..." have in common.

/// The catalogue of the tree, with the runfile hosts that were typed in front.
Result<Catalogue> catalogue_for(const Context& context, const Host& host);
/// The entry of that id; not_found names near ones.
Result<CatalogueEntry> entry_of(const Catalogue& all, const std::string& id);

/// What is known of an entry, row by row, for a person.
std::vector<std::vector<std::string>> what_is_known(const Catalogue& all, const CatalogueEntry& entry);
/// Trials of its release in the kernel table; empty: there are none of that very release.
std::vector<KernelTrial> trials_of(const Catalogue& all, const CatalogueEntry& entry);
std::string outcome_of(const KernelTrial& trial);  ///< "builds", "builds with RULE", "fails: LINE"
/// "builds 6.1.192 6.12.117, fails 7.3.4"
std::string kernels_of(const Catalogue& all, const CatalogueEntry& entry);

/// Makes the source of an entry in a directory of this process; its patch and tree.
Result<PatchedSource> patched(const Options& options, const Catalogue& all, const CatalogueEntry& entry, int stop_fd);

/// Tells a person what is known of an entry, and which files its patch changes.
void print_entry(const Catalogue& all, const CatalogueEntry& entry, const PatchedSource& source);

/// Whether a person at the terminal says yes; an Error where nobody is there to be asked.
Result<bool> said_yes(const Options& options, const std::string& question);

/// Writes a drop-in of the catalogue; Error: says who may.
Result<void> write_drop_in(Host& host, const std::string& path, const std::string& text);

/// Who is asked for the sum of a runfile: the hosts that were typed, and those that are shipped. What drop-ins name serves files
/// whose sum is known.
std::vector<std::string> sum_hosts(const Options& options);

/// Notes in a drop-in that this machine may use `entry` with these hashes, and has its runfile from these hosts too; the file.
Result<std::string> write_allowance(Host& host, const CatalogueEntry& entry, const Allowance& given, const std::vector<std::string>& hosts);

}  // namespace p2pd::ctl
