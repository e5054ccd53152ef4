// SPDX-License-Identifier: MIT
// Sums and encodings of bytes, by OpenSSL.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace p2pd {

/// SHA-256 of `bytes` as 64 lower-case hexadecimal digits; empty, which equals no sum, if OpenSSL fails.
std::string sha256_of(std::string_view bytes);

/// The same of all that an open file has, whatever its offset; the file is streamed. `name` is for the Error.
Result<std::string> sha256_of_file(const Descriptor& file, std::string_view name);

/// Checks for the form of a SHA-256: 64 lower-case hexadecimal digits.
bool is_sha256(std::string_view text);

/// Lower-case hexadecimal digits of `bytes`.
std::string hex_of(std::string_view bytes);

std::string to_base64(std::string_view bytes);
/// Bytes of what to_base64() made; nullopt for any other text.
std::optional<std::string> from_base64(const std::string& text);

}  // namespace p2pd
