// SPDX-License-Identifier: MIT
#include "machine/boot/efi_variable.hpp"

#include <fmt/format.h>

namespace p2pd {
namespace {

constexpr std::size_t kAttributes = 4;            // bytes in front of the data
constexpr std::size_t kVariableLimit = 1U << 20;  // bytes; lists of keys take tens of KiB

}  // namespace

std::string efi_variable_path(std::string_view name, std::string_view vendor) {
  return fmt::format("{}/efivars/{}-{}", kEfi, name, vendor);
}

Result<std::optional<std::string>> efi_variable(const Host& host, std::string_view name, std::string_view vendor) {
  const std::string path = efi_variable_path(name, vendor);
  auto content = host.files().read(path, kVariableLimit);
  if (!content && content.error().code == ErrorCode::not_found) return std::optional<std::string>();
  const std::string bytes = TRY(std::move(content));
  if (bytes.size() < kAttributes)
    return fail(ErrorCode::invalid, fmt::format("{}: {} bytes, fewer than its attributes take", path, bytes.size()));
  return std::optional<std::string>(bytes.substr(kAttributes));
}

Result<std::optional<bool>> efi_flag(const Host& host, std::string_view name, std::string_view vendor) {
  const auto data = TRY(efi_variable(host, name, vendor));
  if (!data) return std::optional<bool>();
  if (data->size() != 1 || static_cast<unsigned char>(data->front()) > 1)
    return fail(ErrorCode::invalid, efi_variable_path(name, vendor) + " is not one byte of 0 or 1");
  return std::optional<bool>(data->front() == 1);
}

std::string efi_text(std::string_view data) {
  std::string text;
  for (std::size_t at = 0; at + 1 < data.size(); at += 2) {
    const char low = data[at];
    const char high = data[at + 1];
    if (low == '\0' && high == '\0') break;
    text += high == '\0' && low >= ' ' && low <= '~' ? low : '?';
  }
  return text;
}

}  // namespace p2pd
