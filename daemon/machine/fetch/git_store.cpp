// SPDX-License-Identifier: MIT
#include "machine/fetch/git_store.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "base/sha256.hpp"
#include "base/url.hpp"
#include "machine/fetch/download.hpp"

namespace p2pd {
namespace {

constexpr int kTreeDepthLimit = 64;  // limit of nested directories

struct Row {
  std::string order;  ///< sort key: git sorts a directory as if its name ended in '/'
  std::string text;   ///< "100644 NAME\0" and the 20 bytes of the id
};

/// SHA-1 of a git object, 20 bytes.
std::string sha1(std::string_view kind, std::string_view bytes) {
  std::string object = fmt::format("{} {}", kind, bytes.size()) + '\0';
  object += bytes;
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
  unsigned length = 0;
  EVP_Digest(object.data(), object.size(), sum.data(), &length, EVP_sha1(), nullptr);
  return {reinterpret_cast<const char*>(sum.data()), length};
}

/// Id of the tree in `directory`, 20 bytes; empty if it holds no file.
Result<std::string> tree_of(const RootReader& files, const std::string& directory, int depth) {
  if (depth == kTreeDepthLimit) return fail(ErrorCode::invalid, directory + ": too many directories, one in another");
  std::vector<Row> rows;
  for (const std::string& name : TRY(files.list(directory))) {
    const std::string path = directory + "/" + name;
    const FileState state = TRY(files.capture(path));
    if (state.kind == FileState::Kind::directory) {
      const std::string tree = TRY(tree_of(files, path, depth + 1));
      if (!tree.empty()) rows.push_back({name + "/", "40000 " + name + '\0' + tree});
      continue;
    }
    if (state.kind == FileState::Kind::absent) return fail(ErrorCode::not_found, path + " went away");
    const bool link = state.kind == FileState::Kind::symlink;
    const char* const mode = link ? "120000 " : (state.mode & 0100U) != 0 ? "100755 " : "100644 ";
    rows.push_back({name, mode + name + '\0' + sha1("blob", state.content)});
  }
  if (rows.empty()) return std::string();
  std::ranges::sort(rows, {}, &Row::order);
  std::string all;
  for (const Row& row : rows) all += row.text;
  return sha1("tree", all);
}

}  // namespace

bool is_git_id(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string git_object_id(std::string_view kind, std::string_view bytes) { return hex_of(sha1(kind, bytes)); }

Result<std::string> git_tree_id(const RootReader& files, const std::string& directory) {
  const std::string tree = TRY(tree_of(files, directory, 0));
  return tree.empty() ? git_object_id("tree", "") : hex_of(tree);
}

namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kPackBytes = std::uint64_t{256} << 20;  // a driver's source is 70 MB
/// The whole history, as in git-fetch(1). With a depth git refuses HTTP servers of plain files: their number has no
/// bound, and with a filter git would start itself without end.
constexpr const char* kAllOfIt = "--depth=2147483647";

/// The only configuration that git reads. A local place must belong to root, or to the user who started this by sudo:
/// git runs programs that a repository names.
constexpr const char kConfig[] = R"([protocol]
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
  unpackLimit = 1
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
[diff]
  renames = false
)";
/// Keeps files as they are in the commit, whatever .gitattributes in it say.
constexpr const char kAttributes[] = "* -text -eol -filter -ident -working-tree-encoding\n";

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

/// Puts `place` before `message`, both without the URL's password.
std::string harmless_at(const std::string& place, std::string message) {
  const std::string shown = without_user_info(place);
  for (std::size_t at = 0; (at = message.find(place, at)) != std::string::npos; at += shown.size())
    message.replace(at, place.size(), shown);
  return shown + ": " + message;
}

}  // namespace

Result<GitStore> GitStore::make(Host& host, std::string directory) {
  if (!host.has_program("git")) return fail(ErrorCode::not_found, "git is not installed", "apt-get install git");
  GitStore store(host, std::move(directory));
  TRY(host.create(store.directory_ + "/config", kConfig));
  TRY(store.empty("store"));
  return store;
}

Command GitStore::git(std::string_view repository, std::vector<std::string> words) const {
  Command command;
  command.argv = {"git", fmt::format("--git-dir={}/{}", directory_, repository)};
  command.argv.insert(command.argv.end(), words.begin(), words.end());
  command.environment = proxy_variables();
  command.environment.insert({{"GIT_CONFIG_GLOBAL", directory_ + "/config"},
                              {"GIT_CONFIG_NOSYSTEM", "1"},
                              {"GIT_ATTR_NOSYSTEM", "1"},
                              {"GIT_NO_REPLACE_OBJECTS", "1"},
                              {"GIT_TERMINAL_PROMPT", "0"},
                              {"GIT_ASKPASS", "/bin/false"}});
  if (const char* user = std::getenv("SUDO_UID")) command.environment["SUDO_UID"] = user;
  command.deadline = 30min;
  return command;
}

Result<std::string> GitStore::ask(const Command& command) const { return host_->output_of(command); }

/// Makes an empty repository: no data from another place is used, or prevents a fetch.
Result<void> GitStore::empty(std::string_view repository) {
  TRY(host_->remove_tree(fmt::format("{}/{}", directory_, repository)));
  TRY(host_->run(git(repository, {"init", "--quiet", "--bare", "--template="})));
  TRY(host_->create(fmt::format("{}/{}/info/attributes", directory_, repository), kAttributes));
  return {};
}

Result<void> GitStore::bounded(std::string_view repository, std::vector<std::string> words, const std::string& place) {
  words.insert(words.begin(), {"fetch", "--quiet", "--no-tags"});
  Command command = git(repository, std::move(words));
  command.argv.insert(command.argv.begin(), {"prlimit", fmt::format("--fsize={}", kPackBytes)});
  const auto done = host_->run(command);
  if (done) return {};
  Error error = done.error();
  if (error.message.find("invalid index-pack output") != std::string::npos)
    error.message += fmt::format(": its data is broken, or more than {} MiB", kPackBytes >> 20);
  error.message = harmless_at(place, error.message);
  return Failure(std::move(error));
}

Result<std::string> GitStore::commit_of(const std::string& place, const std::string& ref) const {
  auto text = ask(git({"ls-remote", "--", place, ref, ref + "^{}"}));
  if (!text) {
    Error error = text.error();
    error.message = harmless_at(place, error.message);
    error.next = "Check the address and the network; where it wants a password, clone it and name the clone.";
    return Failure(std::move(error));
  }
  std::istringstream lines(*text);
  std::string found;
  for (std::string commit, name; lines >> commit >> name;) {
    if (name == ref + "^{}" || (name == ref && found.empty())) found = commit;  // a tag is an object of its own
  }
  if (is_git_id(found)) return found;
  return fail(ErrorCode::not_found, fmt::format("{} has no {}", without_user_info(place), ref),
              fmt::format("\"git ls-remote {}\" lists what it has.", without_user_info(place)));
}

Result<void> GitStore::fetch(const std::string& place, const std::string& commit, const std::string& ref) {
  if (has(commit)) return {};
  auto by_id = bounded("store", {"--depth=1", place, commit}, place);
  if (by_id && has(commit)) return {};
  if (!by_id && by_id.error().code != ErrorCode::command) return by_id;
  TRY(bounded("store", {kAllOfIt, place, ref}, place));
  if (has(commit)) return {};
  const std::string head = trimmed(TRY(ask(git({"rev-parse", "FETCH_HEAD^{commit}"}))));
  return fail(ErrorCode::invalid, fmt::format("{}: its {} is {}, and expected was {}, which it does not have",
                                              without_user_info(place), ref, head, commit));
}

Result<void> GitStore::require_descent(const std::string& place, const std::string& commit, const std::string& ref,
                                       const std::string& ancestor) {
  TRY(empty("history"));
  const auto ask_for = [&](const std::string& what) {
    std::vector<std::string> words = {kAllOfIt, "--update-shallow", place, what};
    if (!place.starts_with('/')) words.insert(words.begin(), "--filter=tree:0");  // git cannot leave out files by path
    return bounded("history", std::move(words), place);
  };
  auto by_id = ask_for(commit);
  if (!by_id && by_id.error().code != ErrorCode::command) return by_id;
  if (!by_id) TRY(ask_for(ref));
  // without the place in its configuration git fetches nothing that is missing
  TRY(host_->create(directory_ + "/history/config", "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"));
  const auto has_commit = [&](const std::string& id) {
    return ask(git("history", {"cat-file", "-e", id + "^{commit}"})).has_value();
  };
  const bool is_there = has_commit(commit), has_ancestor = has_commit(ancestor);
  const auto shallow = ask(git("history", {"rev-parse", "--is-shallow-repository"}));
  const bool descends =
      is_there && has_ancestor &&
      TRY(host_->run_readonly(git("history", {"merge-base", "--is-ancestor", ancestor, commit}))).status == 0;
  TRY(host_->remove_tree(directory_ + "/history"));
  if (descends) return {};
  if (!is_there)
    return fail(ErrorCode::not_found, fmt::format("{} does not have {:.12}", without_user_info(place), commit));
  if (trimmed(shallow.value_or("")) == "true")
    return fail(ErrorCode::not_found,
                fmt::format("{} is a shallow clone: it does not show whether {:.12} descends from {:.12}",
                            without_user_info(place), commit, ancestor),
                "\"git fetch --unshallow\" there gets its history.");
  return fail(
      ErrorCode::invalid,
      fmt::format("{:.12} does not descend from {:.12}, the release that it is said to change", commit, ancestor),
      "Inspect it: this is not the patch that the entry describes.");
}

bool GitStore::has(const std::string& commit) const {
  return ask(git({"cat-file", "-e", commit + "^{commit}"})).has_value();
}

Result<std::string> GitStore::file(const std::string& commit, const std::string& path) const {
  const std::string listed = TRY(ask(git({"ls-tree", commit, "--", path})));
  if (!listed.starts_with("100"))  // mode of a regular file
    return fail(ErrorCode::not_found, fmt::format("commit {} has no file {}", commit, path));
  return ask(git({"cat-file", "blob", commit + ":" + path}));
}

Result<std::vector<GitChange>> GitStore::changes(const std::string& from, const std::string& to) const {
  const std::string text = TRY(ask(git({"diff-tree", "-r", "-z", "--no-renames", from, to})));
  std::vector<GitChange> changes;
  for (std::size_t at = 0; at < text.size();) {  // ":100644 100644 ID ID M\0PATH\0"
    const std::size_t middle = text.find('\0', at), end = text.find('\0', middle + 1);
    if (text[at] != ':' || middle == std::string::npos || end == std::string::npos || middle - at < 14)
      return fail(ErrorCode::invalid, "the output of git diff-tree is not as in git-diff-tree(1)");
    changes.push_back({text.substr(middle + 1, end - middle - 1), text.substr(at + 1, 6), text.substr(at + 8, 6)});
    at = end + 1;
  }
  return changes;
}

Result<std::string> GitStore::patch(const std::string& from, const std::string& to,
                                    const std::vector<std::string>& paths) const {
  std::vector<std::string> words = {"diff", "--full-index", "--binary", "--text", from, to, "--"};
  words.insert(words.end(), paths.begin(), paths.end());
  return ask(git(std::move(words)));
}

Result<std::string> GitStore::stat(const std::string& patch) const {
  Command command = git({"apply", "--stat", "-"});
  command.input = patch;
  return trimmed(TRY(ask(command)));
}

Result<std::string> GitStore::apply(const std::string& commit, const std::string& patch) {
  TRY(host_->run(git({"read-tree", commit})));
  if (!patch.empty()) {
    Command command = git({"apply", "--cached", "-"});
    command.input = patch;
    const auto applied = host_->run(command);
    const auto says = [&](const char* text) { return applied.error().message.find(text) != std::string::npos; };
    if (!applied && (says("status 1: ") || says("status 128: ")) && !says("unable to "))
      return fail(ErrorCode::invalid, applied.error().message,
                  "Use a patch that was made for this release, or a later one of its branch.");
    if (!applied) return Failure(applied.error());
  }
  return trimmed(TRY(ask(git({"write-tree"}))));
}

Result<void> GitStore::check_out(const std::string& directory) {
  TRY(host_->run(
      git({"-c", "core.bare=false", "--work-tree=" + directory, "checkout-index", "--all", "--force", "--quiet"})));
  return {};
}

}  // namespace p2pd
