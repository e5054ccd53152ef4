// SPDX-License-Identifier: MIT
// driver-source: fetches the module source of the entry at its pinned commit into the cache, by git.
// Mirrors (repositories, or bundles in a directory) first, then the entry's repositories. The commit is asked for by
// its id; a server that refuses ids is asked for the branch. Hooks, filters, submodules, prompts and other protocols
// are off. A server that sends more than 256 MiB is left. Whatever it sends, the tree gets its name only when it is
// that of the pinned commit to the byte.
// Writes /var/cache/p2pd/sources/COMMIT and COMMIT.commit; undo removes them.
// Reference: git-fetch(1); gitattributes(5); git-config(1), protocol.allow and transfer.fsckObjects.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>

#include "base/action.hpp"
#include "base/driver/staging.hpp"
#include "base/fetch/download.hpp"
#include "base/fetch/git.hpp"
#include "base/fetch/git_tree.hpp"
#include "base/log.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    kEntryParameter,
    {"mirrors", Parameter::Type::strings, false,
     "URLs of repositories, of what lies above OWNER/NAME, of a .bundle or a directory with COMMIT.bundle"},
};
constexpr std::uint64_t kRoomBytes = std::uint64_t{512} << 20;  // 70 MB of objects, 100 MB of files
constexpr const char* kAllOfIt = "--depth=2147483647";          // the whole history, as git-fetch(1) has it
constexpr std::chrono::minutes kFetchDeadline{30};

/// The only configuration that git reads; safe.directory, because a mirror may belong to anybody.
constexpr const char kConfig[] = R"([safe]
  directory = *
[protocol]
  allow = never
[protocol "https"]
  allow = always
[protocol "http"]
  allow = always
[protocol "file"]
  allow = always
[transfer]
  fsckObjects = true
[fetch]
  recurseSubmodules = false
[http]
  lowSpeedLimit = 1000
  lowSpeedTime = 60
[core]
  hooksPath = /dev/null
  autocrlf = false
[credential]
  helper =
[gc]
  auto = 0
[maintenance]
  auto = false
[advice]
  detachedHead = false
[init]
  defaultBranch = none
)";
/// Files as they are in the commit, whatever .gitattributes in it say.
constexpr const char kAttributes[] = "* -text -eol -filter -ident -working-tree-encoding\n";

/// A directory for one fetch, with a repository in it.
struct Scratch {
  std::string directory;
  std::string git() const { return directory + "/git"; }
  std::string tree() const { return directory + "/tree"; }
  std::string commit() const { return directory + "/commit"; }
};

Command git(const Scratch& scratch, std::vector<std::string> words) {
  Command command;
  command.argv = {"git", "--git-dir=" + scratch.git()};
  command.argv.insert(command.argv.end(), words.begin(), words.end());
  command.environment = {{"GIT_CONFIG_GLOBAL", scratch.directory + "/config"},
                         {"GIT_CONFIG_NOSYSTEM", "1"},
                         {"GIT_ATTR_NOSYSTEM", "1"},
                         {"GIT_NO_REPLACE_OBJECTS", "1"},
                         {"GIT_TERMINAL_PROMPT", "0"},
                         {"GIT_ASKPASS", "/bin/false"}};
  for (const char* name :
       {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"})
    if (const char* value = std::getenv(name)) command.environment[name] = value;
  command.deadline = kFetchDeadline;
  return command;
}

/// Where the commit may be found, in the order in which it is asked for: URLs, and paths of the host.
std::vector<std::string> places_of(const Host& host, const CatalogueEntry& entry, const Parameters& parameters) {
  const std::size_t name = entry.repository.find('/', entry.repository.find("//") + 2);
  std::vector<std::string> places;
  const auto add = [&](const std::string& url) {
    const auto path = local_path(url);
    if (!path || host.files().exists(*path)) places.push_back(path.value_or(url));
  };
  for (const std::string& mirror : mirrors_of(parameters)) {
    if (local_path(mirror)) add(fmt::format("{}/{}.bundle", mirror, entry.commit));
    add(mirror + entry.repository.substr(name));
    add(mirror);
  }
  add(entry.repository);
  for (const std::string& url : entry.also_in) add(url);
  return places;
}

Result<Description> describe(const Host& host, const Parameters& parameters) {
  const CatalogueEntry entry = TRY(staged_entry(TRY(catalogue(host)), parameters));
  const std::vector<std::string> places = places_of(host, entry, parameters);
  Description description;
  description.summary = fmt::format("fetch the source of {} at commit {} into the cache", entry.id, entry.commit);
  if (!places.empty())
    description.commands.push_back(fmt::format("git fetch --depth=1 {} {}    # into {}",
                                               without_credentials(places.front()), entry.commit, source_of(entry)));
  return description;
}

Result<Scratch> make_scratch(Host& host, const CatalogueEntry& entry) {
  TRY(need_room(host, source_of(entry), kRoomBytes));
  TRY(host.will_change(commit_file_of(entry), Restore::discarded));
  const Scratch scratch{TRY(make_unfinished(host, source_of(entry)))};
  TRY(host.create(scratch.directory + "/config", kConfig));
  TRY(host.make_directory(scratch.tree()));
  return scratch;
}

/// An empty repository: nothing that another place sent counts, or is in the way.
Result<void> make_repository(Host& host, const Scratch& scratch) {
  TRY(host.discard(scratch.git()));
  TRY(host.run(git(scratch, {"init", "--quiet", "--bare", "--template="})));
  TRY(host.create(scratch.git() + "/info/attributes", kAttributes));
  return {};
}

bool has_commit(const Host& host, const Scratch& scratch, const CatalogueEntry& entry) {
  return host.query(git(scratch, {"cat-file", "-e", entry.commit + "^{commit}"})).has_value();
}

Result<void> git_fetch(Host& host, const Scratch& scratch, std::vector<std::string> words) {
  words.insert(words.begin(), {"fetch", "--quiet", "--no-tags"});
  const auto done = host.run(bounded_fetch(git(scratch, std::move(words))));
  return done ? Result<void>() : Failure(explained_fetch(done.error()));
}

/// Brings the commit from one place into the scratch repository.
Result<void> fetch(Host& host, const Scratch& scratch, const CatalogueEntry& entry, const std::string& place) {
  log::info("fetching commit {:.12} from {}", entry.commit, without_credentials(place));
  TRY(make_repository(host, scratch));
  const auto by_id = git_fetch(host, scratch, {"--depth=1", place, entry.commit});
  if (by_id && has_commit(host, scratch, entry)) return {};
  if (!by_id && by_id.error().code != ErrorCode::command) return Failure(by_id.error());
  TRY(git_fetch(host, scratch, {kAllOfIt, place, "refs/heads/" + entry.branch}));
  if (has_commit(host, scratch, entry)) return {};
  std::string head = TRY(host.query(git(scratch, {"rev-parse", "FETCH_HEAD"})));
  head.erase(head.find_last_not_of('\n') + 1);
  return fail(ErrorCode::invalid, fmt::format("its {} is {}, and expected was {}, which it does not have", entry.branch,
                                              head, entry.commit));
}

/// The plain tree and the commit object, out of the scratch repository and checked.
Result<void> unpack(Host& host, const Scratch& scratch, const CatalogueEntry& entry) {
  TRY(host.create(scratch.commit(), TRY(host.query(git(scratch, {"cat-file", "commit", entry.commit})))));
  TRY(host.run(git(scratch, {"-c", "core.bare=false", "--work-tree=" + scratch.tree(), "checkout", "--quiet", "--force",
                             "--detach", entry.commit})));
  return check_git_tree(host.files(), scratch.tree(), scratch.commit(), entry.commit);
}

/// What a failure at `place` says, without the password that its URL may hold.
std::string reason_at(const std::string& place, std::string message) {
  const std::string shown = without_credentials(place);
  for (std::size_t at = 0; (at = message.find(place, at)) != std::string::npos; at += shown.size())
    message.replace(at, place.size(), shown);
  return shown + ": " + message;
}

Result<void> fetch_from_any(Host& host, const Scratch& scratch, const CatalogueEntry& entry,
                            const std::vector<std::string>& places) {
  std::vector<std::string> reasons;
  for (const std::string& place : places) {
    const auto fetched = fetch(host, scratch, entry, place);
    if (fetched || fetched.error().code == ErrorCode::interrupted) return fetched;
    reasons.push_back(reason_at(place, fetched.error().message));
    log::warning("{}", reasons.back());
  }
  if (reasons.empty()) reasons.emplace_back("no mirror or repository is there");
  return fail(ErrorCode::not_found,
              fmt::format("commit {} of {} could not be fetched: {}", entry.commit, entry.id, fmt::join(reasons, "; ")),
              "Give the plan a mirror that has the commit: a repository, or a directory with " + entry.commit +
                  ".bundle (\"git bundle create\").");
}

Result<void> apply(Host& host, const Parameters& parameters) {
  const CatalogueEntry entry = TRY(staged_entry(TRY(catalogue(host)), parameters));
  const std::string source = source_of(entry);
  if (check_git_tree(host.files(), source, commit_file_of(entry), entry.commit)) return {};
  if (!host.has_program("git")) return fail(ErrorCode::not_found, "git is not installed", "apt-get install git");
  const Scratch scratch = TRY(make_scratch(host, entry));
  Result<void> done = fetch_from_any(host, scratch, entry, places_of(host, entry, parameters));
  if (done) done = unpack(host, scratch, entry);
  if (done) done = host.discard(source);
  if (done) done = host.move(scratch.commit(), commit_file_of(entry));
  if (done) done = host.move(scratch.tree(), source);
  const auto cleared = host.discard(scratch.directory);  // after a failure, too: git cannot go on with what it has
  return done ? cleared : done;
}

}  // namespace

extern const Action kDriverSourceAction;
const Action kDriverSourceAction = {
    .id = "driver-source",
    .does = "fetches the entry's module source at the pinned commit, checked to the byte",
    .parameters = kParameters,
    .effect = Effect::live,
    .validate = validate_staging,
    .describe = describe,
    .apply = apply,
};

}  // namespace p2pd
