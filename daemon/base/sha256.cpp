// SPDX-License-Identifier: MIT
#include "base/sha256.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <memory>
#include <vector>

namespace p2pd {
namespace {

const unsigned char* octets(std::string_view bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

}  // namespace

std::string sha256_of(std::string_view bytes) {
  std::string sum(EVP_MAX_MD_SIZE, '\0');
  unsigned length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(sum.data()), &length, EVP_sha256(),
                 nullptr) != 1)
    return {};
  return hex_of(sum.substr(0, length));
}

Result<std::string> sha256_of_file(const Descriptor& file, std::string_view name) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  bool sound = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  std::vector<char> piece(1U << 20);
  for (off_t at = 0;;) {
    const ssize_t count = ::pread(file.get(), piece.data(), piece.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(name);
    if (count == 0) break;
    sound = sound && EVP_DigestUpdate(context.get(), piece.data(), static_cast<std::size_t>(count)) == 1;
    at += count;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
  unsigned length = 0;
  if (!sound || EVP_DigestFinal_ex(context.get(), sum.data(), &length) != 1) return std::string();
  return hex_of({reinterpret_cast<const char*>(sum.data()), length});
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string hex_of(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // includes the NUL that OpenSSL appends
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), octets(bytes), static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::optional<std::string> from_base64(const std::string& text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()), octets(text), static_cast<int>(text.size()));
  const int padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  if (size < padding) return std::nullopt;
  bytes.resize(static_cast<std::size_t>(size - padding));
  if (to_base64(bytes) != text) return std::nullopt;  // rejects blanks around it, or "=" within
  return bytes;
}

}  // namespace p2pd
