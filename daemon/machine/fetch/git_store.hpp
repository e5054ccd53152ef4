// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// One file that differs between two commits.
struct GitChange {
  std::string path;
  std::string old_mode;  ///< "100644"; "000000": it is not there
  std::string new_mode;
};

/// A bare git repository of ours, and what is fetched into it from repositories that others keep.
///
/// Nothing of the user's or the system's git configuration counts, no hook or filter of a repository runs, no password is
/// asked for, and only https, http and local paths are spoken; proxies are those of the environment. A fetch writes one
/// pack of 256 MiB at most. A place is a URL, or the path of a repository or bundle on the host. Errors of fetches name
/// the place without the password that its URL may hold.
class GitStore {
 public:
  /// In `directory` of the host, which is there and stays the caller's to remove.
  static Result<GitStore> make(Host& host, std::string directory);

  /// The commit that `ref` ("refs/heads/main"; a tag is followed to its commit) of `place` is at; not_found.
  Result<std::string> commit_of(const std::string& place, const std::string& ref) const;

  /// Brings `commit` with its files. A server that refuses to be asked for a commit is asked for all of `ref`;
  /// invalid: that does not have it (it was moved).
  Result<void> fetch(const std::string& place, const std::string& commit, const std::string& ref);

  /// Error unless `ancestor` is among the ancestors of `commit`, or the same; asks `place` for commits alone, as fetch().
  /// invalid: it is not; other errors say that this place cannot tell.
  Result<void> require_descent(const std::string& place, const std::string& commit, const std::string& ref, const std::string& ancestor);

  bool has(const std::string& commit) const;
  /// The content of a regular file; not_found.
  Result<std::string> file(const std::string& commit, const std::string& path) const;
  Result<std::vector<GitChange>> changes(const std::string& from, const std::string& to) const;
  /// The change of `paths` as git-diff(1) writes it, binary files included.
  Result<std::string> patch(const std::string& from, const std::string& to, const std::vector<std::string>& paths) const;
  /// Files of a patch with their lines, as git-apply(1) --stat writes it; the last line counts them.
  Result<std::string> stat(const std::string& patch) const;
  /// The id of the tree that `commit` with `patch` is; invalid where it does not apply cleanly.
  Result<std::string> apply(const std::string& commit, const std::string& patch);
  /// Lays the result of the last apply() down in `directory`, byte for byte.
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
