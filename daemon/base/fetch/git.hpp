// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>

#include "base/command.hpp"
#include "base/result.hpp"

namespace p2pd {

/// A branch of a git repository that others keep. Nothing of the user's or the system's git configuration counts, no
/// hook of a repository runs, no password is asked for, and only https and local files are spoken; proxies are those of
/// the environment.
struct GitBranch {
  std::string repository;  ///< https://... or file:///...
  std::string name;        ///< letters, digits and "._-"
};

/// The commit that the branch is at, 40 hexadecimal digits; a tag of its name does not count. ErrorCode::not_found
/// where there is no such branch.
Result<std::string> branch_commit(CommandRunner& runner, const GitBranch& branch);

/// Fetches `commit`, which the branch must be at, without its history into `directory`, a new bare repository.
Result<void> fetch_commit(CommandRunner& runner, const GitBranch& branch, const std::string& commit,
                          const std::filesystem::path& directory);

/// A git fetch that cannot fill the disk: it writes one pack, of 256 MiB at most. Give it a --depth, which git refuses
/// where a server only has plain files, and could send as many as it likes.
Command bounded_fetch(Command fetch);

/// The Error of a bounded_fetch(); where the limit may have ended it, it says so.
Error explained_fetch(Error error);

/// The content of file `path` at `commit` of the repository in `directory`. ErrorCode::not_found where it has none.
Result<std::string> file_at_commit(CommandRunner& runner, const std::filesystem::path& directory,
                                   const std::string& commit, const std::string& path);

}  // namespace p2pd
