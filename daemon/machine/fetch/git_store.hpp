// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "base/root.hpp"

namespace p2pd {

/// Checks for 40 hexadecimal digits in lower case, as git prints an id.
bool is_git_id(std::string_view text);

/// Id that git gives an object: SHA-1 of kind ("blob", "tree", "commit"), size and bytes, in hexadecimal.
std::string git_object_id(std::string_view kind, std::string_view bytes);

/// Id that git gives the content of `directory`: names, contents, links and executable bits, without any filter.
/// Ignores directories without a file, as git does. Error: something is not readable, or is no file or link.
Result<std::string> git_tree_id(const RootReader& files, const std::string& directory);

/// One file that differs between two commits.
struct GitChange {
  std::string path;
  std::string old_mode;  ///< "100644"; "000000": absent
  std::string new_mode;
};

/// A bare git repository of p2pd, with data fetched from repositories of others.
///
/// Uses nothing of the user's or the system's git configuration, runs no hook or filter of a repository, asks for no
/// password, and supports only https, http and local paths; proxies are those of the environment. A fetch writes one
/// pack of 256 MiB at most. A place is a URL, or the path of a repository or bundle on the host. Errors of fetches name
/// the place without the password that its URL may hold.
class GitStore {
 public:
  /// Makes a store in `directory` of the host, which must exist; the caller removes it.
  static Result<GitStore> make(Host& host, std::string directory);

  /// Commit of `ref` ("refs/heads/main"; a tag is followed to its commit) at `place`; not_found.
  Result<std::string> commit_of(const std::string& place, const std::string& ref) const;

  /// Fetches `commit` with its files. If a server refuses to send a single commit, fetches all of `ref`;
  /// invalid: that does not have it (it was moved).
  Result<void> fetch(const std::string& place, const std::string& commit, const std::string& ref);

  /// Checks that `ancestor` is among the ancestors of `commit`, or the same; fetches commits alone from `place`, as
  /// fetch(). invalid: it is not; other errors mean that this place has no answer.
  Result<void> require_descent(const std::string& place, const std::string& commit, const std::string& ref,
                               const std::string& ancestor);

  bool has(const std::string& commit) const;
  /// Content of a regular file; not_found.
  Result<std::string> file(const std::string& commit, const std::string& path) const;
  Result<std::vector<GitChange>> changes(const std::string& from, const std::string& to) const;
  /// Change of `paths` in the format of git-diff(1), binary files included.
  Result<std::string> patch(const std::string& from, const std::string& to,
                            const std::vector<std::string>& paths) const;
  /// Files of a patch with their lines, in the format of git-apply(1) --stat; the last line counts them.
  Result<std::string> stat(const std::string& patch) const;
  /// Id of the tree of `commit` with `patch`; invalid if it does not apply cleanly.
  Result<std::string> apply(const std::string& commit, const std::string& patch);
  /// Writes the result of the last apply() to `directory`, byte for byte.
  Result<void> check_out(const std::string& directory);

 private:
  GitStore(Host& host, std::string directory) : host_(&host), directory_(std::move(directory)) {}
  Command git(std::string_view repository, std::vector<std::string> words) const;
  Command git(std::vector<std::string> words) const { return git("store", std::move(words)); }
  Result<void> empty(std::string_view repository);
  Result<void> bounded(std::string_view repository, std::vector<std::string> words, const std::string& place);
  Result<std::string> ask(const Command& command) const;

  Host* host_;
  std::string directory_;
};

}  // namespace p2pd
