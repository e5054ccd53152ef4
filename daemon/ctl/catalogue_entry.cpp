// SPDX-License-Identifier: MIT
#include "ctl/catalogue_entry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/command.hpp"
#include "base/scratch_directory.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

/// "aikitoria/570.86.16-p2p" as part of a file name.
std::string file_name(const std::string& id) {
  const std::size_t slash = id.find('/');
  return id.substr(0, slash) + "--" + id.substr(slash + 1);
}

std::string or_asked(const std::string& hash) { return hash.empty() ? "not pinned: NVIDIA is asked" : hash; }

}  // namespace

Result<Catalogue> catalogue_for(const Context& context, const Host& host) {
  return p2pd::catalogue(
      host, {{"--runfile-host", {{"schema", "p2pd.catalogue/2"}, {"runfile_hosts", context.options.runfile_hosts}}}});
}

Result<CatalogueEntry> entry_of(const Catalogue& all, const std::string& id) {
  const auto found = std::ranges::find(all.entries, id, &CatalogueEntry::id);
  if (found != all.entries.end()) return *found;
  std::vector<std::string_view> ids;
  for (const CatalogueEntry& entry : all.entries) ids.push_back(entry.id);
  const std::string near = nearest(id, ids);
  return fail(ErrorCode::not_found, fmt::format("the catalogue has no entry \"{}\"", harmless(id)),
              near.empty() ? "\"p2pctl catalogue\" lists them." : fmt::format("Did you mean {}?", near));
}

std::vector<KernelTrial> trials_of(const Catalogue& all, const CatalogueEntry& entry) {
  const auto row = all.kernels.find(parse_version(entry.base_version).value_or(Version()));
  return row == all.kernels.end() ? std::vector<KernelTrial>() : row->second;
}

std::string outcome_of(const KernelTrial& trial) {
  if (!trial.failure.empty()) return "fails: " + trial.failure;
  return trial.rules.empty() ? "builds" : fmt::format("builds with {}", fmt::join(trial.rules, ", "));
}

std::string kernels_of(const Catalogue& all, const CatalogueEntry& entry) {
  std::vector<std::string> builds, fails;
  for (const KernelTrial& trial : trials_of(all, entry))
    (trial.failure.empty() ? builds : fails).push_back(trial.kernel);
  std::vector<std::string> parts;
  if (!builds.empty()) parts.push_back(fmt::format("builds {}", fmt::join(builds, " ")));
  if (!fails.empty()) parts.push_back(fmt::format("fails {}", fmt::join(fails, " ")));
  return parts.empty() ? "not tried" : fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<std::vector<std::string>> what_is_known(const Catalogue& all, const CatalogueEntry& entry) {
  std::vector<std::vector<std::string>> rows = {
      {"driver",
       entry.cuda.empty() ? entry.base_version : fmt::format("{}, up to CUDA {}", entry.base_version, entry.cuda)},
      {"source", fmt::format("NVIDIA's {}: {} ({})", entry.base_version, or_asked(entry.base_commit),
                             to_string(entry.base_known))},
      {"patch", fmt::format("{}: {} ({})",
                            entry.patch_file.empty() ? fmt::format("{}, branch {}", entry.repository, entry.branch)
                                                     : entry.patch_file,
                            entry.commit, to_string(entry.patch_known))},
      {"runfile", fmt::format("{}: SHA-256 {} ({})", entry.runfile_path, or_asked(entry.runfile_sha256),
                              to_string(entry.runfile_known))},
      {"kernels", kernels_of(all, entry)}};
  if (entry.is_graft())
    rows.push_back(
        {"graft", fmt::format("the patch was made for {}; p2pd puts it on {}", entry.made_for, entry.base_version)});
  for (const auto& [architecture, evidence] : entry.architectures)
    rows.push_back(
        {"GPUs", fmt::format("{}: {}", architecture, evidence == "reported" ? "P2P reported" : "no report")});
  for (const std::string& report : entry.reports) rows.push_back({"report", report});
  for (const Defect& defect : entry.defects) rows.push_back({"defect", defect.text});
  return rows;
}

void print_entry(const Catalogue& all, const CatalogueEntry& entry, const PatchedSource& source) {
  print_table(what_is_known(all, entry));
  fmt::print("\n{}\n", harmless(fmt::format("{}", fmt::join(source.stat, "\n"))));
  print_table({{"tree", source.tree}, {"next", fmt::format("read it: p2pctl catalogue diff {}", entry.id)}});
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

Result<std::string> write_allowance(Host& host, const CatalogueEntry& entry, const Allowance& given,
                                    const std::vector<std::string>& hosts) {
  const std::string path = fmt::format("{}/allowed-{}.yaml", kCatalogueDropIns, file_name(entry.id));
  const std::string text = fmt::format(
      "# Written by \"p2pctl catalogue allow\": this machine may use the build with these hashes. Remove the file to "
      "revoke it.\n"
      "schema: p2pd.catalogue/2\n{}allowed:\n  {}:\n    base_commit: \"{}\"\n    commit: \"{}\"\n    runfile_sha256: "
      "\"{}\"\n",
      hosts.empty() ? "" : fmt::format("runfile_hosts: [\"{}\"]\n", fmt::join(hosts, "\", \"")), entry.id,
      given.base_commit, given.commit, given.runfile_sha256);
  TRY(write_drop_in(host, path, text));
  return path;
}

}  // namespace p2pd::ctl
