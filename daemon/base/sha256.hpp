// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/result.hpp"

struct evp_md_ctx_st;

namespace p2pd {

/// SHA-256 of bytes that arrive in pieces.
class Sha256 {
 public:
  Sha256();
  void feed(std::string_view bytes);
  void restart();
  /// Returns the sum of the bytes so far as 64 lower-case hexadecimal digits; empty, which equals no sum, if OpenSSL
  /// fails.
  std::string hex() const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
  bool sound_ = false;
};

/// SHA-256 of `bytes`, as Sha256::hex().
std::string sha256_of(std::string_view bytes);

/// The same of all that an open file has, whatever its offset; `name` is for the Error.
Result<std::string> sha256_of_file(const Descriptor& file, std::string_view name);

}  // namespace p2pd
