// SPDX-License-Identifier: MIT
#include "machine/boot/lockdown.hpp"

#include <fmt/format.h>

#include "machine/boot/efi_variable.hpp"
#include "machine/boot/kernel_arguments.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kSecurityModules = "/sys/kernel/security/lsm";  // exists if securityfs is mounted

Result<std::optional<bool>> enforced(const Host& host) {
  auto line = host.line(kSigEnforce);
  if (!line && line.error().code == ErrorCode::not_found) return std::optional<bool>();
  const std::string text = TRY(std::move(line));
  if (text != "Y" && text != "N") return fail(ErrorCode::invalid, fmt::format("{}: \"{}\"", kSigEnforce, text));
  return std::optional<bool>(text == "Y");
}

/// True if the running kernel's arguments tell it to refuse.
bool asked_to_refuse(const Host& host) {
  for (const KernelArgument& argument : parse_kernel_line(host.line("/proc/cmdline").value_or(""))) {
    if (argument.key == "module.sig_enforce" && argument.value.value_or("1") != "0") return true;
    if (argument.key == "lockdown" && argument.value != "none") return true;
  }
  return false;
}

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

std::optional<bool> ModulePolicy::refuses() const {
  if (lockdown && *lockdown != "none") return true;
  if (sig_enforce == true || (asked && (!lockdown || !sig_enforce))) return true;
  if (lockdown == "none") return false;
  // securityfs is not mounted: kernels lock down with Secure Boot on, or on request
  if (secure_boot != true && sig_enforce == false) return false;
  return std::nullopt;
}

Result<ModulePolicy> module_policy(const Host& host) {
  ModulePolicy policy;
  policy.secure_boot = TRY(efi_flag(host, "SecureBoot", kEfiGlobal));
  policy.lockdown = TRY(lockdown(host));
  policy.sig_enforce = TRY(enforced(host));
  policy.asked = asked_to_refuse(host);
  return policy;
}

}  // namespace p2pd
