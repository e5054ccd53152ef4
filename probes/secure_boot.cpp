// SPDX-License-Identifier: MIT
// secure-boot: the kernel takes modules that are not signed with a key it trusts.
// A patched nvidia module is built here, so nobody has signed it. Secure Boot as such refuses nothing: the kernel does,
// under lockdown or module.sig_enforce ("Key was rejected by service"), and enrolling a key needs somebody at the
// console while the machine boots. So it is told before anything is built.
// Reads efivars SecureBoot, SetupMode, MokListRT and MokNew, lockdown of securityfs, sig_enforce of the module loader.
// Reference: kernel_lockdown(7); Documentation/admin-guide/module-signing.rst of Linux; mokutil(1).
#include <fmt/format.h>

#include "base/boot/efi_variable.hpp"
#include "base/boot/kernel_arguments.hpp"
#include "base/boot/lockdown.hpp"
#include "base/hardware/gpus.hpp"
#include "base/probe.hpp"

namespace p2pd {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kEnforce = "/sys/module/module/parameters/sig_enforce";
/// Certificates that DKMS signs with: of Ubuntu, of Debian.
constexpr std::string_view kLocalKeys[] = {"/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub"};

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Result<std::optional<bool>> enforced(const Host& host, Finding& finding) {
  auto line = host.line(kEnforce);
  if (!line && line.error().code == ErrorCode::not_found) return std::optional<bool>();
  const std::string text = TRY(std::move(line));
  finding.evidence.push_back({std::string(kEnforce), text});
  if (text != "Y" && text != "N") return fail(ErrorCode::invalid, fmt::format("{}: \"{}\"", kEnforce, text));
  return std::optional<bool>(text == "Y");
}

/// Whether the running kernel was asked to refuse.
bool asked_to_refuse(const Host& host) {
  for (const KernelArgument& argument : parse_kernel_line(host.line("/proc/cmdline").value_or(""))) {
    if (argument.key == "module.sig_enforce" && argument.value.value_or("1") != "0") return true;
    if (argument.key == "lockdown" && argument.value != "none") return true;
  }
  return false;
}

/// Path of a key of this system, and whether it is among those that shim hands the kernel; null: cannot be told.
Json local_key(const Host& host) {
  for (const std::string_view path : kLocalKeys) {
    const std::string certificate = host.files().read(path, 1U << 16).value_or("");
    if (certificate.empty()) continue;
    const auto list = efi_variable(host, "MokListRT", kEfiShim);
    Json enrolled;
    if (list) enrolled = list->has_value() && (*list)->find(certificate) != std::string::npos;
    return {{"file", path}, {"enrolled", std::move(enrolled)}};
  }
  return nullptr;
}

/// Whether unsigned modules are refused; nothing when no file tells.
std::optional<bool> refused(const Json& facts, bool asked) {
  const Json& level = facts["lockdown"];
  const Json& enforce = facts["sig_enforce"];
  if (level.is_string() && level != "none") return true;
  if (enforce == true || (asked && (level.is_null() || enforce.is_null()))) return true;
  if (level == "none") return false;
  // securityfs is not mounted: kernels lock themselves down where Secure Boot is on, or when asked
  if (facts["secure_boot"] != true && enforce == false) return false;
  return std::nullopt;
}

std::string next_step(const Json& facts) {
  const Json& key = facts["local_key"];
  if (key.is_object() && key["enrolled"] == true)
    return fmt::format(
        "Sign the modules with the key of {}, which is enrolled; or turn Secure Boot off in the firmware.",
        key["file"].get<std::string>());
  if (facts["enrolment_pending"] == true)
    return "Reboot with somebody at the console: an enrolment of mokutil waits to be confirmed there.";
  return fmt::format(
      "Turn Secure Boot off in the firmware, or enrol a key that signs the modules: \"mokutil --import "
      "{}\", then reboot with somebody at the console, who confirms it.",
      key.is_object() ? key["file"].get<std::string>() : std::string(kLocalKeys[0]));
}

Result<Finding> check(const Host& host, const Parameters&) {
  Finding finding;
  if (!TRY(needs_built_driver(host))) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = "no GPU that needs a driver built here";
    return finding;
  }
  const bool efi = host.files().exists(kEfi);
  const auto on = TRY(efi_flag(host, "SecureBoot", kEfiGlobal));
  if (on) finding.evidence.push_back({efi_variable_path("SecureBoot", kEfiGlobal), *on ? "1" : "0"});
  const auto setup = TRY(efi_flag(host, "SetupMode", kEfiGlobal));
  const auto level = TRY(lockdown(host));
  if (level) finding.evidence.push_back({std::string(kLockdown), host.line(kLockdown).value_or("not there")});
  const auto enforce = TRY(enforced(host, finding));
  const auto taint = host.line("/sys/module/nvidia/taint");
  finding.facts = {{"efi", efi},
                   {"secure_boot", or_null(on)},
                   {"setup_mode", or_null(setup)},
                   {"lockdown", or_null(level)},
                   {"sig_enforce", or_null(enforce)},
                   {"local_key", local_key(host)},
                   {"enrolment_pending", host.files().exists(efi_variable_path("MokNew", kEfiShim))},
                   {"nvidia_taint", taint ? Json(*taint) : Json()}};
  const bool asked = asked_to_refuse(host);
  const auto refuses = refused(finding.facts, asked);
  if (!refuses)
    return fail(ErrorCode::not_found,
                fmt::format("neither {} nor {} tells whether unsigned modules are refused", kLockdown, kEnforce));
  finding.verdict = *refuses ? Verdict::fail : Verdict::pass;
  finding.summary = fmt::format("the kernel {} unsigned modules (Secure Boot {}, lockdown {}, sig_enforce {})",
                                *refuses ? "refuses" : "takes",
                                on    ? (*on ? "on" : "off")
                                : efi ? "not readable"
                                      : "absent",
                                level.value_or("not readable"), enforce ? (*enforce ? "on" : "off") : "not readable");
  if (*refuses) finding.next = next_step(finding.facts);
  return finding;
}

}  // namespace

extern const Probe kSecureBoot;
const Probe kSecureBoot = {
    .id = "secure-boot",
    .asserts = "the kernel takes modules that are not signed with a key it trusts",
    .check = check,
    .of_the_machine = true,
};

}  // namespace p2pd
