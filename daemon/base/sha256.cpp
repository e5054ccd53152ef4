// SPDX-License-Identifier: MIT
#include "base/sha256.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <vector>

namespace p2pd {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) { restart(); }

void Sha256::restart() { sound_ = context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1; }

void Sha256::feed(std::string_view bytes) {
  sound_ = sound_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
}

std::string Sha256::hex() const {
  const std::unique_ptr<evp_md_ctx_st, Free> copy(EVP_MD_CTX_new());
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
  unsigned length = 0;
  if (!sound_ || !copy || EVP_MD_CTX_copy_ex(copy.get(), context_.get()) != 1 ||
      EVP_DigestFinal_ex(copy.get(), sum.data(), &length) != 1)
    return {};
  std::string text;
  for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", sum[i]);
  return text;
}

std::string sha256_of(std::string_view bytes) {
  Sha256 sum;
  sum.feed(bytes);
  return sum.hex();
}

Result<std::string> sha256_of_file(const Descriptor& file, std::string_view name) {
  Sha256 sum;
  std::vector<char> piece(1U << 20);
  for (off_t at = 0;;) {
    const ssize_t count = ::pread(file.get(), piece.data(), piece.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(name);
    if (count == 0) return sum.hex();
    sum.feed({piece.data(), static_cast<std::size_t>(count)});
    at += count;
  }
}

}  // namespace p2pd
