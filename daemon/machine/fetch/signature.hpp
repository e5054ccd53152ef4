// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

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

std::string to_base64(std::string_view bytes);
/// Bytes of a base64 text of one line; empty if it is none.
std::string from_base64(std::string_view text);

}  // namespace p2pd
