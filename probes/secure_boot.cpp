// SPDX-License-Identifier: MIT
// secure-boot: the kernel accepts modules built here, unsigned or signed with a key of this machine that it trusts.
// A patched nvidia module is built here, so no vendor has signed it. Secure Boot itself refuses nothing: the kernel
// does, under lockdown or module.sig_enforce ("Key was rejected by service"). It accepts a signature with the key that
// DKMS or Ubuntu made for this machine, once that is enrolled, which needs a person at the console while the machine
// boots. Reads efivars SecureBoot, SetupMode, MokListRT, db and MokNew, lockdown of securityfs, sig_enforce of the
// module loader, the key and its certificate. Reference: kernel_lockdown(7);
// Documentation/admin-guide/module-signing.rst of Linux; mokutil(1).
#include <fmt/format.h>

#include "base/probe.hpp"
#include "machine/boot/efi_variable.hpp"
#include "machine/boot/lockdown.hpp"
#include "machine/hardware/gpus.hpp"
#include "machine/modules/module_signing.hpp"

namespace p2pd {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kUbuntuPolicy = "/usr/sbin/update-secureboot-policy";

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

/// Key that this machine signs modules with; null: it has none.
Json local_key(const Host& host) {
  const auto key = signing_key(host);
  if (!key) return nullptr;
  return {{"file", key->certificate},
          {"enrolled", or_null(is_enrolled(host, key->certificate))},
          {"unusable", unusable_because(host, *key)}};
}

/// True if modules are signed with a key that the kernel trusts: it loads enrolled keys only with Secure Boot on.
bool signs(const Json& facts) {
  const Json& key = facts["local_key"];
  return facts["secure_boot"] == true && key.is_object() && key["enrolled"] == true && key["unusable"] == "";
}

/// Command that makes the key of this machine, and the certificate that it makes.
std::pair<std::string, std::string> key_making(const Host& host) {
  if (host.has_program(kUbuntuPolicy))
    return {"update-secureboot-policy --new-key", "/var/lib/shim-signed/mok/MOK.der"};
  return {host.has_program("dkms") ? "dkms generate_mok" : "apt-get install dkms && sudo dkms generate_mok",
          "/var/lib/dkms/mok.pub"};
}

std::string next_step(const Host& host, const Json& facts) {
  constexpr std::string_view kBlueScreen =
      "reboot with somebody at the console: the blue screen wants Enroll MOK, Continue, Yes, mokutil's password, "
      "Reboot. Or turn Secure Boot off.";
  const Json& key = facts["local_key"];
  if (facts["secure_boot"] != true)
    return "Remove module.sig_enforce and lockdown from the kernel's arguments: without Secure Boot it trusts no key "
           "of this machine.";
  if (key.is_object() && key["unusable"] != "")
    return fmt::format("Put the key beside its certificate, unencrypted, for root alone; or enrol another one. ({})",
                       key["unusable"].get<std::string>());
  if (facts["enrolment_pending"] == true) return fmt::format("A mokutil enrolment is pending: {}", kBlueScreen);
  if (key.is_object())
    return fmt::format("Run \"sudo mokutil --import {}\", then {}", key["file"].get<std::string>(), kBlueScreen);
  const auto [make, certificate] = key_making(host);
  return fmt::format("Run \"sudo {}\" and \"sudo mokutil --import {}\", then {}", make, certificate, kBlueScreen);
}

Result<Finding> check(const Host& host, const Parameters&) {
  Finding finding;
  if (!TRY(needs_built_driver(host))) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = "no GPU that needs a driver built here";
    return finding;
  }
  const bool efi = host.files().exists(kEfi);
  const ModulePolicy policy = TRY(module_policy(host));
  const auto& [on, level, enforce, asked] = policy;
  if (on) finding.evidence.push_back({efi_variable_path("SecureBoot", kEfiGlobal), *on ? "1" : "0"});
  if (level) finding.evidence.push_back({std::string(kLockdown), host.line(kLockdown).value_or("not there")});
  if (enforce) finding.evidence.push_back({std::string(kSigEnforce), *enforce ? "Y" : "N"});
  const auto setup = TRY(efi_flag(host, "SetupMode", kEfiGlobal));
  const auto taint = host.line("/sys/module/nvidia/taint");
  finding.facts = {{"efi", efi},
                   {"secure_boot", or_null(on)},
                   {"setup_mode", or_null(setup)},
                   {"lockdown", or_null(level)},
                   {"sig_enforce", or_null(enforce)},
                   {"local_key", local_key(host)},
                   {"enrolment_pending", host.files().exists(efi_variable_path("MokNew", kEfiShim))},
                   {"nvidia_taint", taint ? Json(*taint) : Json()}};
  const auto refuses = policy.refuses();
  if (!refuses)
    return fail(ErrorCode::not_found,
                fmt::format("neither {} nor {} tells whether unsigned modules are refused", kLockdown, kSigEnforce));
  const bool passes = !*refuses || signs(finding.facts);
  finding.verdict = passes ? Verdict::pass : Verdict::fail;
  finding.summary = fmt::format("the kernel {} unsigned modules (Secure Boot {}, lockdown {}, sig_enforce {})",
                                *refuses ? "refuses" : "accepts",
                                on    ? (*on ? "on" : "off")
                                : efi ? "not readable"
                                      : "absent",
                                level.value_or("not readable"), enforce ? (*enforce ? "on" : "off") : "not readable");
  if (*refuses && passes)
    finding.summary += fmt::format("; {} is enrolled: its key signs the modules built here",
                                   finding.facts["local_key"]["file"].get<std::string>());
  if (!passes) finding.next = next_step(host, finding.facts);
  return finding;
}

}  // namespace

extern const Probe kSecureBoot;
const Probe kSecureBoot = {
    .id = "secure-boot",
    .asserts =
        "the kernel accepts modules that are built here, unsigned or signed with a key of this machine that it trusts",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
