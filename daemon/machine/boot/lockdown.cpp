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
  const auto level = choice_in_force(text);
  if (!level) return fail(ErrorCode::invalid, fmt::format("{}: \"{}\" has no word in brackets", kLockdown, text));
  return std::optional<std::string>(*level);
}

}  // namespace p2pd
