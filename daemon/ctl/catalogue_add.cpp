// SPDX-License-Identifier: MIT
// p2pctl catalogue add REPOSITORY BRANCH: pins a build that the catalogue lacks. Finds the commit, the release that it
// changes and the runfile with its sum, makes the patch, asks, writes all of it as a drop-in, builds the modules for
// this machine's kernels, and lets an apply use them. Only that build runs code of the source or the runfile.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/command.hpp"
#include "base/scratch_directory.hpp"
#include "base/url.hpp"
#include "ctl/catalogue.hpp"
#include "engine/state_lock.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/catalogue/runfile.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/driver_install.hpp"
#include "machine/driver/machine.hpp"
#include "machine/fetch/download.hpp"
#include "machine/modules/module_build.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

/// Known values of the new entry.
struct Pins {
  std::string id, repository, branch, commit, version, base_commit, path;
  Runfile runfile;
  std::vector<std::string> compat;
};

/// Typed address in a form that a catalogue accepts: https or file.
Result<std::string> repository_of(const std::string& typed) {
  std::error_code error;
  const bool here = typed.find("://") == std::string::npos && fs::is_directory(typed, error);
  std::string address = here ? "file://" + fs::canonical(typed, error).string() : typed;
  if (is_repository(address)) return address;
  return fail(ErrorCode::invalid,
              fmt::format("\"{}\" is neither an https or file address nor a directory", harmless(typed)),
              "Clone it, and name the directory of the clone.");
}

/// "tinygrad" for https://github.com/tinygrad/open-gpu-kernel-modules; for a directory its own name.
std::string fork_of(std::string repository) {
  const bool local = repository.starts_with("file://");
  while (repository.ends_with('/')) repository.pop_back();
  if (repository.ends_with(".git")) repository.resize(repository.size() - 4);
  const fs::path path(repository.substr(repository.find("://") + 3));
  return local ? path.filename().string() : path.parent_path().filename().string();
}

/// True if a part of an id is also valid as a file name and as a word of a command.
bool is_word(const std::string& text) {
  return is_id_part(text) && text.size() <= 100 && text.front() != '-' && text.front() != '.';
}

/// Refuses addresses with user info: every user can read a drop-in.
Result<void> check_secrets(const Options& options) {
  std::vector<std::string> addresses = options.runfile_hosts;
  addresses.push_back(options.repository);
  for (const std::string& address : addresses)
    if (without_user_info(address) != address)
      return fail(ErrorCode::invalid,
                  without_user_info(address) + ": a user name in the address would be readable by all",
                  "Give the address without it; use a clone or mirror that needs no password.");
  return {};
}

/// Id and file of the new entry; an Error if the id is invalid or exists.
Result<Pins> named(const Options& options, const Catalogue& all, const Host& host) {
  TRY(check_secrets(options));
  Pins pins;
  pins.repository = TRY(repository_of(options.repository));
  pins.branch = options.branch;
  if (!is_word(options.branch))
    return fail(ErrorCode::invalid,
                fmt::format("branch \"{}\" has characters that no id of the catalogue has", harmless(options.branch)),
                "In a clone, give it a branch of letters, digits, '.', '_' and '-', and name the clone.");
  pins.id = options.id.empty() ? fork_of(pins.repository) + "/" + options.branch : options.id;
  const std::string fork = pins.id.substr(0, pins.id.find('/'));
  if (!is_word(fork) || pins.id != fork + "/" + options.branch)
    return fail(ErrorCode::invalid,
                fmt::format("\"{}\" cannot be the entry's id: it has to be FORK/{}", harmless(pins.id), options.branch),
                fmt::format("--id FORK/{}", options.branch));
  const auto same = std::ranges::find(all.entries, pins.id, &CatalogueEntry::id);
  if (same != all.entries.end())
    return fail(
        ErrorCode::invalid, fmt::format("{} is in the catalogue already ({})", pins.id, same->source),
        fmt::format("\"sudo p2pctl catalogue allow {}\" lets this machine use it; --id OTHER/{} names yours otherwise.",
                    pins.id, options.branch));
  pins.path = fmt::format("{}/{}-{}.yaml", kCatalogueDropIns, fork, options.branch);
  if (TRY(host.files().capture(pins.path)).kind != FileState::Kind::absent)
    return fail(ErrorCode::invalid, pins.path + " exists, and is not overwritten",
                "Read it; remove it if it is not needed.");
  return pins;
}

/// Compat rules for changes that the source does not contain itself.
std::vector<std::string> needed_rules(const Catalogue& all, const std::string& conftest) {
  std::vector<std::string> needed;
  for (const auto& [name, rule] : all.compat_rules)
    if (conftest.find(rule.pattern) == std::string::npos) needed.push_back(name);
  return needed;
}

/// `packaged`: version of the driver's packages that stay on this machine; it needs no runfile of that version.
Result<void> find_out(Pins& pins, const Catalogue& all, const Options& options, const std::string& packaged,
                      int stop_fd) {
  const ScratchDirectory scratch = TRY(ScratchDirectory::make("source"));
  ProcessRunner runner("/", stop_fd);  // runs git of this machine, even for an entry of another tree
  Host host(TRY(Root::open("/")), runner);
  GitStore store = TRY(GitStore::make(host, scratch.path()));
  const std::string place = local_path(pins.repository).value_or(pins.repository), ref = "refs/heads/" + pins.branch;
  pins.commit = TRY(store.commit_of(place, ref));
  TRY(store.fetch(place, pins.commit, ref));
  const std::string where = fmt::format("{}, branch {}", pins.repository, pins.branch);
  pins.version = TRY_IN(where, version_of_modules(TRY_IN(where, store.file(pins.commit, "version.mk"))));
  pins.compat = needed_rules(all, store.file(pins.commit, "kernel-open/conftest.sh").value_or(""));
  for (const CatalogueEntry& entry : all.entries)
    if (entry.base_version == pins.version) {
      pins.base_commit = entry.base_commit;
      pins.runfile = {all.runfile_hosts.front(), entry.runfile_path, entry.runfile_sha256, entry.runfile_bytes};
    }
  if (pins.base_commit.empty()) pins.base_commit = TRY(release_commit(host, store, all, pins.version, options.mirrors));
  if (!pins.runfile.sha256.empty()) return {};
  Result<Runfile> published = find_runfile(host, sum_hosts(options), pins.version);
  if (!published && (published.error().code == ErrorCode::interrupted || pins.version != packaged))
    return Failure(std::move(published).error());
  pins.runfile = published ? *std::move(published) : Runfile{};
  return {};
}

/// Architectures of this machine's GPUs, or of all generations with peer access; an Error if the driver is too old for
/// them.
Result<std::string> architectures(const Host& host, const Catalogue& all, const std::string& version) {
  const Result<Machine> machine = machine_of(host, all);
  std::set<std::string> names = machine ? generations(*machine) : std::set<std::string>();
  std::erase_if(names, [](const std::string& name) { return !is_architecture(name); });
  if (names.empty()) names = {"Ampere", "Ada", "Blackwell"};
  if (*parse_version(version) < Version{575}) names.erase("Blackwell");  // tinygrad issues 29, 35, 44
  if (names.empty())
    return fail(ErrorCode::invalid, fmt::format("driver {} gives no P2P between Blackwell cards", version),
                "Use a branch of driver 575 or later.");
  return fmt::format("{}: unknown", fmt::join(names, ": unknown, "));
}

/// Text of the drop-in. `tree` is empty until the tree is made.
std::string drop_in(const Pins& pins, const Catalogue& all, const std::string& gpus, const std::string& tree) {
  const bool has_runfile = !pins.runfile.sha256.empty();
  const bool is_new = std::ranges::none_of(all.entries, [&](const CatalogueEntry& entry) {
    return entry.base_version == pins.version && (entry.has_runfile() || !has_runfile);
  });
  std::string text = fmt::format(
      "# Written by \"p2pctl catalogue add\". Edit what is known better: reports, GPUs (\"reported\"), module "
      "options.\n"
      "schema: p2pd.catalogue/2\n");
  if (is_new) {
    text += fmt::format("releases:\n  \"{}\":\n    commit: \"{}\"  # of NVIDIA's tag\n    known: single-source\n",
                        pins.version, pins.base_commit);
    text += fmt::format("    compat: [{}]\n", fmt::join(pins.compat, ", "));
  }
  if (is_new && has_runfile)
    text += fmt::format(
        "    runfile:\n      path: {}\n      sha256: \"{}\"  # {}\n      bytes: {}\n      known: single-source\n",
        pins.runfile.path, pins.runfile.sha256,
        pins.runfile.host.starts_with("http://") ? "published over plain http: compare it with another source"
                                                 : "as its host publishes it",
        pins.runfile.bytes);
  text += fmt::format(
      "patches:\n  {}:\n    repository: \"{}\"\n    branch: \"{}\"\n    commit: \"{}\"\n    known: single-source\n    "
      "base: \"{}\"\n",
      pins.id, pins.repository, pins.branch, pins.commit, pins.version);
  if (!tree.empty()) text += fmt::format("    tree: \"{}\"\n", tree);
  text += fmt::format("    architectures: {{{}}}\n", gpus);
  if (*parse_version(pins.version) < Version{575})  // until then 1 selected the mailbox, which overrides BAR1
    text += "    registry_dwords_forbidden: {RMForceP2PType: 1}\n";
  return text;
}

/// Entry that results from the drop-in.
Result<CatalogueEntry> entry_in(const Host& host, const Pins& pins, const std::string& text, Catalogue& all) {
  all = TRY(p2pd::catalogue(host, {TRY(catalogue_file(pins.path, text))}));
  return entry_of(all, pins.id);
}

Result<void> build_here(const Context& context, const Catalogue& all, const CatalogueEntry& entry, int stop_fd) {
  const StateLock lock = TRY(StateLock::take(context.options.root, context.options.state, "p2pctl catalogue add"));
  Host host = TRY(context.host(stop_fd));
  TRY(stage_source(host, all, entry, context.options.mirrors));
  return make_builds(host, all, entry);
}

}  // namespace

Result<int> catalogue_add(const Context& context) {
  TRY(context.require_directory());
  const Options& options = context.options;
  if (!options.pin_only) TRY(require_consent(options));
  const int stop_fd = stop_signals();
  Host host = TRY(context.host(stop_fd));
  Catalogue all = TRY(catalogue_for(context, host));
  Pins pins = TRY(named(options, all, host));
  const Result<PackagedUserspace> packages = packaged_userspace(host);
  TRY(find_out(pins, all, options, packages && packages->can_stay() ? packages->version : "", stop_fd));
  const std::string gpus = TRY(architectures(host, all, pins.version));
  const Catalogue before = all;
  const CatalogueEntry found = TRY(entry_in(host, pins, drop_in(pins, before, gpus, ""), all));
  const PatchedSource source = TRY(patched(options, all, found, stop_fd));
  const std::string text = drop_in(pins, before, gpus, source.tree);
  const CatalogueEntry entry = TRY(entry_in(host, pins, text, all));
  const bool builds_here = !options.no_build && !options.pin_only;
  if (!options.json) print_entry(all, entry, source, options.pin_only ? "read it" : "read it first, with --pin-only");
  const char* const question = builds_here ? "Pin it, build it (minutes), and use it here, with these hashes?"
                                           : "Pin it and use it here, with these hashes?";
  if (!options.pin_only && !TRY(said_yes(options, question))) return not_wanted();
  TRY(write_drop_in(host, pins.path, text));
  const std::string file = context.outside(pins.path);
  if (!options.json) fmt::print("{} is pinned: {}\n", entry.id, file);
  if (builds_here) TRY_IN(fmt::format("{} is pinned, but", entry.id), build_here(context, all, entry, stop_fd));
  if (!options.pin_only)
    TRY(allow_entry(context, host, entry, Allowance{source.base_commit, entry.commit, pins.runfile.sha256}));
  else if (!options.json)
    print_table({{"", fmt::format("\"sudo p2pctl catalogue allow {}\" lets this machine use it", entry.id)}});
  if (options.json)
    print_json("p2pd.catalogue-addition/2",
               {{"id", entry.id},
                {"path", file},
                {"changed", true},
                {"base_commit", source.base_commit},
                {"commit", entry.commit},
                {"tree", source.tree},
                {"stat", source.stat},
                {"left_out", source.left_out},
                {"driver_version", entry.base_version},
                {"runfile", pins.runfile.sha256.empty() ? json()
                                                        : json{{"url", pins.runfile.url()},
                                                               {"sha256", pins.runfile.sha256},
                                                               {"bytes", pins.runfile.bytes}}}});
  return kDone;
}

}  // namespace p2pd::ctl
