// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/root.hpp"

namespace p2pd {

/// A key in PEM, and the file that it is from, which errors name.
struct KeyFile {
  std::string file;
  std::string pem;  ///< private: a private key; public: a public key, or an X.509 certificate with one
};

/// Ed25519 signature of `text`: 64 bytes. ErrorCode::invalid: it is no such key, or it wants a passphrase.
Result<std::string> sign(const KeyFile& key, std::string_view text);

/// The public part of a private key.
Result<KeyFile> public_key_of(const KeyFile& key);

/// Checks that `signature` is one of `text` by one of `keys` that is valid now; returns the file of that key.
///
/// ErrorCode::invalid: it is by none of them, or by one whose certificate has expired or is not valid yet, with the
/// date; a file that holds no Ed25519 key is named.
Result<std::string> verify(const std::vector<KeyFile>& keys, std::string_view signature, std::string_view text);

/// Checks that nobody but root can change or replace `file`, a canonical path: it and the directories above it, up to
/// `top`, belong to root or `owner`, and no others can write there. In a sticky directory nobody replaces root's files.
///
/// ErrorCode::denied names the file or directory that others can change, and the command that ends this.
Result<void> only_root_changes(const std::filesystem::path& file, const std::filesystem::path& top = "/",
                               uid_t owner = 0);
/// Does the same for a path in a tree: for the target of a link, and for the directory that holds the link. Files of
/// this process's user are as good as root's.
Result<void> only_root_changes(const RootReader& files, std::string_view path);

}  // namespace p2pd
