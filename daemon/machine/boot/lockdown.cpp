// SPDX-License-Identifier: MIT
#include "machine/boot/lockdown.hpp"

#include <fmt/format.h>

namespace p2pd {
namespace {

constexpr std::string_view kSecurityModules = "/sys/kernel/security/lsm";  // exists if securityfs is mounted

}  // namespace

Result<std::optional<std::string>> lockdown(const Host& host) {
  auto line = host.line(kLockdown);
  if (!line && line.error().code == ErrorCode::not_found)
    return host.files().exists(kSecurityModules) ? std::optional<std::string>("none") : std::nullopt;
  const std::string text = TRY(std::move(line));  // "none [integrity] confidentiality"
  const std::size_t begin = text.find('[');
  const std::size_t end = text.find(']', begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || end == std::string::npos || end == begin + 1)
    return fail(ErrorCode::invalid, fmt::format("{}: \"{}\" has no word in brackets", kLockdown, text));
  return std::optional<std::string>(text.substr(begin + 1, end - begin - 1));
}

}  // namespace p2pd
