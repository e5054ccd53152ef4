// SPDX-License-Identifier: MIT
// p2pctl catalogue add REPO BRANCH: finds out what pins a driver build (commit, driver version, runfile and its sum)
// and writes it as a drop-in that is not enabled. What only a person can tell is left out: without it an entry cannot
// be enabled. Neither the source nor the runfile is run, and the runfile is not fetched.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/command.hpp"
#include "base/driver/catalogue.hpp"
#include "base/driver/runfile.hpp"
#include "base/fetch/download.hpp"
#include "base/fetch/git.hpp"
#include "base/scratch_directory.hpp"
#include "ctl/print.hpp"
#include "ctl/verb.hpp"
#include "ctl/walks.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

/// The new entry, as far as it is known.
struct Pins {
  std::string id, fork;
  GitBranch branch;
  std::string commit;
  Runfile runfile;
  std::string version;
  std::string path;  ///< of the drop-in
};

/// What was typed as an address that a catalogue can hold: https or file.
Result<std::string> repository_of(const std::string& typed) {
  if (typed.starts_with("https://") || typed.starts_with("file:///")) return typed;
  std::error_code error;
  if (typed.find("://") == std::string::npos && fs::is_directory(typed, error))
    return "file://" + fs::canonical(typed, error).string();
  return fail(ErrorCode::invalid,
              fmt::format("\"{}\" is no https or file address, and no directory here", harmless(typed)),
              "Clone it, and name the directory of the clone.");
}

/// "tinygrad" of https://github.com/tinygrad/open-gpu-kernel-modules; of a directory its own name.
std::string fork_of(std::string repository) {
  const bool local = repository.starts_with("file://");
  while (repository.ends_with('/')) repository.pop_back();
  if (repository.ends_with(".git")) repository.resize(repository.size() - 4);
  const fs::path path(repository.substr(repository.find("://") + 3));
  return local ? path.filename().string() : path.parent_path().filename().string();
}

bool is_word(const std::string& text) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  return !text.empty() && text.size() <= 100 && text.find_first_not_of(kPlain) == std::string::npos &&
         text.front() != '-' && text.front() != '.';
}

/// A drop-in can be read by all.
Result<void> check_secrets(const Options& options) {
  std::vector<std::string> addresses = options.runfile_hosts;
  addresses.push_back(options.repository);
  for (const std::string& address : addresses)
    if (without_credentials(address) != address)
      return fail(ErrorCode::invalid,
                  without_credentials(address) + ": a user name in the address would be readable by all",
                  "Give the address without it; use a clone or mirror that needs no password.");
  return {};
}

/// Names and place of the entry; refuses what is there already.
Result<Pins> named(const Options& options, const Catalogue& all, const Host& host) {
  TRY(check_secrets(options));
  Pins pins;
  pins.branch = {TRY(repository_of(options.repository)), options.branch};
  if (!is_word(options.branch))
    return fail(ErrorCode::invalid,
                fmt::format("branch \"{}\" has characters that no id of the catalogue has", harmless(options.branch)),
                "In a clone, give it a branch of letters, digits, '.', '_' and '-', and name the clone.");
  pins.id = options.id.empty() ? fork_of(pins.branch.repository) + "/" + options.branch : options.id;
  pins.fork = pins.id.substr(0, pins.id.find('/'));
  if (!is_word(pins.fork) || pins.id != pins.fork + "/" + options.branch)
    return fail(ErrorCode::invalid,
                fmt::format("\"{}\" cannot be the entry's id: it has to be FORK/{}", harmless(pins.id), options.branch),
                fmt::format("--id FORK/{}", options.branch));
  const auto same = std::ranges::find(all.entries, pins.id, &CatalogueEntry::id);
  if (same != all.entries.end())
    return fail(ErrorCode::invalid, fmt::format("{} is in the catalogue already ({})", pins.id, same->source),
                fmt::format("--id OTHER/{} names it otherwise.", options.branch));
  pins.path = fmt::format("{}/{}-{}.json", kCatalogueDropIns, pins.fork, options.branch);
  if (TRY(host.files().capture(pins.path)).kind != FileState::Kind::absent)
    return fail(ErrorCode::invalid, pins.path + " exists, and is not overwritten",
                "Look at it; remove it if it is of no use.");
  return pins;
}

Result<void> find_out(Pins& pins, const Catalogue& all, int stop_fd) {
  ProcessRunner runner("/", stop_fd);  // git of this machine, whatever tree the entry is for
  const ScratchDirectory scratch = TRY(ScratchDirectory::make("source"));
  pins.commit = TRY(branch_commit(runner, pins.branch));
  TRY(fetch_commit(runner, pins.branch, pins.commit, scratch.path()));
  const std::string where = fmt::format("{}, branch {}", pins.branch.repository, pins.branch.name);
  const std::string version_mk = TRY_IN(where, file_at_commit(runner, scratch.path(), pins.commit, "version.mk"));
  pins.version = TRY_IN(where, version_of_modules(version_mk));
  pins.runfile = TRY(find_runfile(all.runfile_hosts, pins.version, stop_fd));
  return {};
}

/// The drop-in: keys in the order in which a person reads them.
std::string drop_in(const Pins& pins, const std::vector<std::string>& hosts) {
  const Runfile& runfile = pins.runfile;
  nlohmann::ordered_json entry = {
      {"id", pins.id},
      {"enabled", false},
      {"fork", pins.fork},
      {"repository", pins.branch.repository},
      {"branch", pins.branch.name},
      {"commit", pins.commit},
      {"commit_status", "verified_in_git"},
      {"base_version", pins.version},
      {"runfile",
       {{"version", pins.version}, {"path", runfile.path}, {"sha256", runfile.sha256}, {"bytes", runfile.bytes}}},
      {"architectures", json::object()}};
  if (*parse_version(pins.version) < Version{575})  // 1 was the mailbox until then, which undoes BAR1
    entry["registry_dwords_forbidden"] = {{"RMForceP2PType", 1}};
  const bool open = runfile.host.starts_with("http://");
  const nlohmann::ordered_json table = {
      {"schema", "p2pd.catalogue/1"},
      {"about",
       {fmt::format("commit: {}, refs/heads/{}.", pins.branch.repository, pins.branch.name),
        "base_version: NVIDIA_VERSION in version.mk of that commit.",
        fmt::format("runfile: {}, its sum {}{}.", runfile.url(), runfile.sum_url(),
                    open ? ", over plain http: compare it with another source" : ""),
        "To be filled in before it can be enabled: architectures, kernel, compiler, compat, module_options; "
        "config/schema/catalogue.schema.json says what they are."}},
      {"runfile_hosts", hosts},
      {"compat_rules", json::object()},
      {"entries", nlohmann::ordered_json::array({entry})}};
  return table.dump(2) + "\n";
}

Result<int> told(const Context& context, const Pins& pins, const std::string& file) {
  const std::string next = fmt::format(
      "review {}; fill in architectures, kernel, compiler, compat and module_options; set \"enabled\": true; \"p2pctl "
      "catalogue\" tells whether it fits",
      file);
  const Runfile& runfile = pins.runfile;
  if (context.options.json) {
    print_json("p2pd.catalogue-addition/1",
               {{"id", pins.id},
                {"path", file},
                {"changed", true},
                {"commit", pins.commit},
                {"driver_version", pins.version},
                {"runfile", {{"url", runfile.url()}, {"sha256", runfile.sha256}, {"bytes", runfile.bytes}}},
                {"next", next}});
    return kDone;
  }
  fmt::print("{} as a candidate, not enabled: {}\n", paint(Colour::bold, pins.id), file);
  print_table({{"commit", pins.commit},
               {"driver", pins.version},
               {"runfile", fmt::format("{} ({} bytes)", runfile.url(), runfile.bytes)},
               {"sha256", runfile.sha256},
               {"next", next}});
  return kDone;
}

}  // namespace

Result<int> catalogue_add(const Context& context) {
  TRY(context.require_directory());
  const int stop_fd = stop_signals();
  const auto runner = TRY(context.runner(stop_fd));
  Host host = TRY(context.host(*runner));
  const json hosts = {
      {"schema", "p2pd.catalogue/1"}, {"runfile_hosts", context.options.runfile_hosts}, {"entries", json::array()}};
  const Catalogue all = TRY(parse_catalogue(hosts.dump(-1, ' ', false, json::error_handler_t::replace),
                                            "--runfile-host", TRY(p2pd::catalogue(host))));
  Pins pins = TRY(named(context.options, all, host));
  TRY(find_out(pins, all, stop_fd));
  std::vector<std::string> mirrors = context.options.runfile_hosts;
  if (std::ranges::count(mirrors, pins.runfile.host) == 0) mirrors.push_back(pins.runfile.host);
  const std::string text = drop_in(pins, mirrors);
  TRY(parse_catalogue(text, pins.path, all));
  if (Result<void> written = host.write(pins.path, text); !written) {
    if (written.error().code == ErrorCode::denied) written.error().next = "Run it as root.";
    return Failure(written.error());
  }
  return told(context, pins, context.options.root == "/" ? pins.path : context.options.root + pins.path);
}

}  // namespace p2pd::ctl
