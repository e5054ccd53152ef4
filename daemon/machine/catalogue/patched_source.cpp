// SPDX-License-Identifier: MIT
#include "machine/catalogue/patched_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <sstream>

#include "base/log.hpp"
#include "base/sha256.hpp"
#include "base/url.hpp"
#include "machine/catalogue/runfile.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/fetch/download.hpp"
#include "machine/fetch/git_store.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kRecordLimit = 1U << 16;                  // bytes
constexpr std::uint64_t kPatchLimit = 4U << 20;                 // bytes
constexpr std::uint64_t kRoomBytes = std::uint64_t{768} << 20;  // twice 70 MB of objects, 100 MB of files
constexpr std::chrono::minutes kTarDeadline{10};
const std::vector<std::string> kParts = {"kernel-open", "src"};

bool is_part(std::string_view path) { return path.starts_with("kernel-open/") || path.starts_with("src/"); }

std::string below(const std::string& mirror, const std::string& repository) {
  return mirror + repository.substr(repository.find('/', repository.find("//") + 2));
}

/// Places of a commit, in the order of the attempts: URLs, and paths of the host.
std::vector<std::string> places_of(const Host& host, const std::vector<std::string>& repositories,
                                   const std::string& commit, const std::vector<std::string>& mirrors) {
  std::vector<std::string> places;
  const auto add = [&](const std::string& url) {
    const auto path = local_path(url);
    if (!path || host.files().exists(*path)) places.push_back(path.value_or(url));
  };
  for (const std::string& mirror : mirrors) {
    if (local_path(mirror) && !commit.empty()) add(fmt::format("{}/{}.bundle", mirror, commit));
    for (const std::string& repository : repositories) add(below(mirror, repository));
    add(mirror);
  }
  for (const std::string& repository : repositories) add(repository);
  return places;
}

/// Answer of the first place for which `attempt` succeeds.
Result<std::string> first_of(const std::string& what, const std::vector<std::string>& places,
                             const std::function<Result<std::string>(const std::string&)>& attempt) {
  std::vector<std::string> reasons;
  for (const std::string& place : places) {
    auto answer = attempt(place);
    if (answer || answer.error().code == ErrorCode::interrupted) return answer;
    reasons.push_back(answer.error().message);
    log::info("{}", reasons.back());
  }
  if (reasons.empty()) reasons.emplace_back("no mirror or repository is there");
  return fail(
      ErrorCode::not_found, fmt::format("{} could not be fetched: {}", what, fmt::join(reasons, "; ")),
      "Give the plan a mirror that has it: a repository, or a directory with COMMIT.bundle (\"git bundle create\").");
}

/// Commit of NVIDIA's tag, from NVIDIA's repository, or from a copy below a mirror under NVIDIA's name. A mirror's
/// other content counts by its hash alone, and http does not count: a fork can have any tag.
Result<std::string> tagged_commit(Host& host, const GitStore& store, const Catalogue& all, const std::string& version,
                                  const std::vector<std::string>& mirrors) {
  std::vector<std::string> places;
  for (const std::string& mirror : mirrors) {
    const std::string copy = below(mirror, all.releases_at);
    if (const auto path = local_path(copy); path ? host.files().exists(*path) : !copy.starts_with("http:"))
      places.push_back(path.value_or(copy));
  }
  places.push_back(local_path(all.releases_at).value_or(all.releases_at));
  return first_of("NVIDIA's release " + version, places,
                  [&](const std::string& place) { return store.commit_of(place, "refs/tags/" + version); });
}

/// Fetches NVIDIA's release; returns its commit.
Result<std::string> fetch_release(Host& host, GitStore& store, const Catalogue& all, const std::string& version,
                                  const std::string& pinned, const std::vector<std::string>& mirrors) {
  const std::string tag = "refs/tags/" + version;
  const std::string commit = pinned.empty() ? TRY(tagged_commit(host, store, all, version, mirrors)) : pinned;
  TRY(first_of("NVIDIA's release " + version, places_of(host, {all.releases_at}, commit, mirrors),
               [&](const std::string& place) -> Result<std::string> {
                 log::info("fetching NVIDIA's {} ({:.12}) from {}", version, commit, without_user_info(place));
                 TRY(store.fetch(place, commit, tag));
                 return place;
               }));
  const std::string named = TRY(version_of_modules(TRY(store.file(commit, "version.mk"))));
  if (named == version) return commit;
  return fail(ErrorCode::invalid,
              fmt::format("commit {} is NVIDIA's release {}, and {} was expected", commit, named, version),
              "Pin the commit of that release's tag.");
}

/// Checks that the fork's commit descends from the release, at the first place that has the history.
Result<void> require_descent(GitStore& store, const CatalogueEntry& entry, const std::vector<std::string>& places,
                             const std::string& release) {
  Result<void> answer;
  for (const std::string& place : places) {
    answer = store.require_descent(place, entry.commit, "refs/heads/" + entry.branch, release);
    if (answer || answer.error().code == ErrorCode::invalid || answer.error().code == ErrorCode::interrupted) break;
    log::info("{}", answer.error().message);
  }
  return answer;
}

/// Checks that the change runs only in the modules.
Result<void> require_c_files(const CatalogueEntry& entry, const std::vector<GitChange>& changes) {
  for (const GitChange& change : changes) {
    const bool is_c = change.path.ends_with(".c") || change.path.ends_with(".h");
    const auto plain = [](const std::string& mode) { return mode == "100644" || mode == "000000"; };
    if (is_part(change.path) && is_c && plain(change.old_mode) && plain(change.new_mode)) continue;
    const std::string why = !is_part(change.path)         ? "is outside kernel-open/ and src/"
                            : change.new_mode == "120000" ? "is a symbolic link"
                            : is_c                        ? fmt::format("has mode {}", change.new_mode)
                                                          : "is no C file: it can run while the modules are built";
    return fail(ErrorCode::invalid, fmt::format("the patch of {} touches {}, which {}", entry.id, change.path, why),
                "Only C files below kernel-open/ and src/ may change. Have the fork's author, or a patch of your own, "
                "leave it out.");
  }
  return {};
}

Download patch_download(const CatalogueEntry& entry) {
  Download download;
  download.url = entry.patch_file;
  download.limit_bytes = kPatchLimit;
  return download;
}

/// Fetches the patch file, and checks it against its pin; pins it if it has none.
Result<std::string> fetch_patch(Host& host, CatalogueEntry& entry) {
  const auto path = local_path(entry.patch_file);
  std::string text = path ? TRY(host.files().read(*path, kPatchLimit)) : TRY(fetch_text(host, patch_download(entry)));
  const std::string sum = sha256_of(text);
  if (entry.commit.empty()) entry.commit = sum;
  if (sum != entry.commit)
    return fail(ErrorCode::invalid,
                fmt::format("{} has the SHA-256 {}, and expected was {}", entry.patch_file, sum, entry.commit),
                "Compare it with its source; a drop-in may pin another one.");
  return text;
}

/// Fetches a fork's commit, that of its branch if none is pinned, and makes it a patch.
Result<void> take_commit(Host& host, GitStore& store, CatalogueEntry& entry, const std::vector<std::string>& mirrors,
                         PatchedSource& source) {
  std::vector<std::string> repositories = {entry.repository};
  repositories.insert(repositories.end(), entry.also_in.begin(), entry.also_in.end());
  if (entry.commit.empty())  // a mirror's branch is not the fork's
    entry.commit =
        TRY(first_of("branch " + entry.branch, places_of(host, repositories, "", {}),
                     [&](const std::string& place) { return store.commit_of(place, "refs/heads/" + entry.branch); }));
  const auto places = places_of(host, repositories, entry.commit, mirrors);
  TRY(first_of(fmt::format("commit {} of {}", entry.commit, entry.id), places,
               [&](const std::string& place) -> Result<std::string> {
                 log::info("fetching commit {:.12} from {}", entry.commit, without_user_info(place));
                 TRY(store.fetch(place, entry.commit, "refs/heads/" + entry.branch));
                 return place;
               }));
  // a pinned tree is proof enough; without one the commit must descend from the release
  if (entry.tree.empty()) TRY(require_descent(store, entry, places, source.made_for_commit));
  for (const GitChange& change : TRY(store.changes(source.made_for_commit, entry.commit)))
    if (!is_part(change.path)) source.left_out.push_back(change.path);
  source.patch = TRY(store.patch(source.made_for_commit, entry.commit, kParts));
  return {};
}

std::string record_of(const CatalogueEntry& entry, const PatchedSource& source) {
  const nlohmann::json record = {
      {"entry", entry.id},       {"release", entry.base_version}, {"base_commit", source.base_commit},
      {"commit", source.commit}, {"tree", source.tree},           {"left_out", source.left_out}};
  return record.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

/// Moves tree, record and patch from `scratch` to their places.
Result<void> give_names(Host& host, const CatalogueEntry& entry, const std::string& scratch) {
  TRY(host.remove_tree(source_of(entry)));
  TRY(host.move(scratch + "/patch", source_patch_of(entry)));
  TRY(host.move(scratch + "/record", source_record_of(entry)));
  return host.move(scratch + "/tree", source_of(entry));
}

/// Id of the tree in `directory`, if it is the one in its record, and both are of the pins of `entry`; `file`: the
/// record, for the Error.
Result<std::string> check_tree(const Host& host, const CatalogueEntry& entry, const std::string& directory,
                               std::string_view text, const std::string& file) {
  const auto record = parse_json(text);
  const auto noted = [&](const char* key) {
    return record.is_object() && record.contains(key) && record[key].is_string() ? record[key].get<std::string>() : "";
  };
  const std::string tree = noted("tree"), found = TRY(git_tree_id(host.files(), directory));
  const bool ours = noted("commit") == entry.commit && noted("release") == entry.base_version &&
                    (entry.base_commit.empty() || noted("base_commit") == entry.base_commit) &&
                    (entry.tree.empty() || tree == entry.tree) && !tree.empty();
  if (!ours) return fail(ErrorCode::invalid, file + " is of another source");
  if (found == tree) return tree;
  return fail(ErrorCode::invalid, fmt::format("{} holds tree {}, and {} was staged there", directory, found, tree));
}

/// Writes why the patch does not apply where the log of a failed build would be, which undo leaves: the next choice
/// leaves the entry out. Removes that if `refusal` is empty.
Result<void> keep_refusal(Host& host, const CatalogueEntry& entry, const std::string& refusal) {
  const std::string log = build_log_of(build_name(entry, kNoSource));
  if (refusal.empty()) return host.files().exists(log) ? host.remove_tree(log) : Result<void>();
  if (!host.files().exists(kLogs)) TRY(host.will_change(kLogs));
  TRY(host.create(log, fmt::format("{}{}\n", kBuildLogHead, refusal)));
  return {};
}

Result<void> lay_down(Host& host, const Catalogue& all, const CatalogueEntry& entry, const std::string& scratch,
                      const std::vector<std::string>& mirrors) {
  GitStore store = TRY(GitStore::make(host, scratch));
  std::string refusal;
  const auto made = make_patched_source(host, store, all, entry, mirrors, &refusal);
  TRY(keep_refusal(host, entry, refusal));
  if (!made) return Failure(made.error());
  TRY(host.make_directory(scratch + "/tree"));
  TRY(store.check_out(scratch + "/tree"));
  TRY(host.create(scratch + "/record", record_of(entry, *made)));
  TRY(host.create(scratch + "/patch", made->patch));
  return give_names(host, entry, scratch);
}

/// Takes tree, record and patch from the mirror.
Result<void> take_source(Host& host, const CatalogueEntry& entry, const std::string& scratch,
                         const MirrorPlace& place) {
  const Mirror mirror = TRY(Mirror::open(host, place));
  const std::string name = mirrored_source(entry), tree = scratch + "/tree";
  for (const auto& [suffix, file] : {std::pair(".json", "/record"), {".patch", "/patch"}, {".tar.gz", "/tar"}})
    TRY(mirror.fetch(host, name + suffix, scratch + file));
  TRY(host.make_directory(tree));
  Command unpack{{"tar", "-xz", "--no-same-owner", "--file=" + scratch + "/tar", "--directory=" + tree}};
  unpack.deadline = kTarDeadline;
  TRY(host.run(unpack));
  TRY(check_tree(host, entry, tree, TRY(host.files().read(scratch + "/record", kRecordLimit)), name));
  return give_names(host, entry, scratch);
}

}  // namespace

Result<PatchedSource> make_patched_source(Host& host, GitStore& store, const Catalogue& all,
                                          const CatalogueEntry& pinned, const std::vector<std::string>& mirrors,
                                          std::string* refusal) {
  PatchedSource source;
  CatalogueEntry entry = pinned;
  source.base_commit = TRY(fetch_release(host, store, all, entry.base_version, entry.base_commit, mirrors));
  source.made_for_commit = !entry.is_graft()
                               ? source.base_commit
                               : TRY(fetch_release(host, store, all, entry.made_for, entry.made_for_commit, mirrors));
  if (entry.patch_file.empty())
    TRY(take_commit(host, store, entry, mirrors, source));
  else
    source.patch = TRY(fetch_patch(host, entry));
  source.commit = entry.commit;
  const auto applied = store.apply(source.base_commit, source.patch);
  if (refusal != nullptr && !applied && applied.error().code == ErrorCode::invalid) *refusal = applied.error().message;
  source.tree = TRY_IN(fmt::format("the patch of {} on NVIDIA's {}", entry.id, entry.base_version), applied);
  // git's form of the patch counts, and is shown: a patch file can say the same in more ways than one
  const std::vector<GitChange> changes = TRY(store.changes(source.base_commit, source.tree));
  if (changes.empty())
    return fail(ErrorCode::invalid,
                fmt::format("{:.12} changes nothing in NVIDIA's {}: it is no patch", entry.commit, entry.made_for),
                "Pin what changes the modules.");
  TRY(require_c_files(entry, changes));
  source.patch = TRY(store.patch(source.base_commit, source.tree, kParts));
  if (!entry.tree.empty() && source.tree != entry.tree)
    return fail(
        ErrorCode::invalid,
        fmt::format("{}: the patched source is tree {}, and expected was {}", entry.id, source.tree, entry.tree),
        "Report it: what the catalogue pins does not agree with itself.");
  std::istringstream lines(TRY(store.stat(source.patch)));
  for (std::string line; std::getline(lines, line);) source.stat.push_back(line);
  return source;
}

Result<std::string> release_commit(Host& host, GitStore& store, const Catalogue& all, const std::string& version,
                                   const std::vector<std::string>& mirrors) {
  return fetch_release(host, store, all, version, "", mirrors);
}

std::string source_of(const CatalogueEntry& entry) {
  return fmt::format("{}/{}-{:.12}", kSources, entry.base_version, entry.commit);
}
std::string source_record_of(const CatalogueEntry& entry) { return source_of(entry) + ".json"; }
std::string source_patch_of(const CatalogueEntry& entry) { return source_of(entry) + ".patch"; }

std::string mirrored_source(const CatalogueEntry& entry) {
  return std::string(kMirrorSources) + source_of(entry).substr(kSources.size() + 1);
}

Result<std::string> check_source(const Host& host, const CatalogueEntry& entry) {
  const std::string directory = source_of(entry), file = source_record_of(entry);
  if (!host.files().exists(directory)) return fail(ErrorCode::not_found, directory + " is not there");
  return check_tree(host, entry, directory, TRY(host.files().read(file, kRecordLimit)), file);
}

Result<void> stage_source(Host& host, const Catalogue& all, const CatalogueEntry& entry,
                          const std::vector<std::string>& mirrors, const MirrorPlace& mirror) {
  if (check_source(host, entry)) return {};
  TRY(need_room(host, source_of(entry), kRoomBytes));
  for (const std::string& file : {source_record_of(entry), source_patch_of(entry)})
    TRY(host.will_change(file, Restore::discarded));
  std::string scratch = TRY(make_unfinished(host, source_of(entry)));
  Result<void> done = fail(ErrorCode::not_found, "no mirror");
  if (mirror) done = take_source(host, entry, scratch, mirror);
  if (!done && done.error().code != ErrorCode::interrupted) {
    if (mirror) log::warning("mirror refused: {}; the source is made here", done.error().text());
    scratch = TRY(make_unfinished(host, source_of(entry)));
    done = lay_down(host, all, entry, scratch, mirrors);
  }
  const auto cleared = host.remove_tree(scratch);  // removed after a failure, too: git cannot continue with it
  if (!done) return done;
  TRY(cleared);
  const auto checked = check_source(host, entry);
  return checked ? Result<void>() : Failure(checked.error());
}

}  // namespace p2pd
