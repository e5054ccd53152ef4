// SPDX-License-Identifier: MIT
// secure-boot: the kernel accepts modules built here, unsigned or signed with a key of this machine that it trusts.
// A patched nvidia module is built here, so no vendor has signed it. Secure Boot itself refuses nothing: the kernel
// does, under lockdown or module.sig_enforce ("Key was rejected by service"). It accepts a signature with the key that
// DKMS or Ubuntu made for this machine, once that is enrolled, which needs a person at the console while the machine
// boots. Reads efivars SecureBoot, MokListRT, db and MokNew, lockdown of securityfs, sig_enforce of the module loader,
// the key and its certificate. Reference: kernel_lockdown(7);
// Documentation/admin-guide/module-signing.rst of Linux; mokutil(1).
#include <fmt/format.h>

#include "base/probe.hpp"
#include "machine/boot/efi_variable.hpp"
#include "machine/boot/lockdown.hpp"
#include "machine/hardware/gpus.hpp"
#include "machine/modules/module_signing.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kUbuntuPolicy = "/usr/sbin/update-secureboot-policy";

/// Key that this machine signs modules with.
struct LocalKey {
  std::string file;              ///< certificate; empty: it has none
  std::optional<bool> enrolled;  ///< nothing: not readable
  std::string unusable;          ///< reason why it cannot sign; empty: it can

  /// True if the kernel trusts modules that it signs: it loads enrolled keys only with Secure Boot on.
  bool signs() const { return enrolled.value_or(false) && unusable.empty(); }
};

LocalKey local_key(const Host& host) {
  const auto key = signing_key(host);
  if (!key) return {};
  return {key->certificate, is_enrolled(host, key->certificate), unusable_because(host, *key)};
}

/// Command that makes the key of this machine, and the certificate that it makes.
std::pair<std::string, std::string> key_making(const Host& host) {
  if (host.has_program(kUbuntuPolicy))
    return {"update-secureboot-policy --new-key", "/var/lib/shim-signed/mok/MOK.der"};
  return {host.has_program("dkms") ? "dkms generate_mok" : "apt-get install dkms && sudo dkms generate_mok",
          "/var/lib/dkms/mok.pub"};
}

std::string next_step(const Host& host, bool secure_boot, const LocalKey& key) {
  constexpr std::string_view kBlueScreen =
      "reboot with somebody at the console: the blue screen wants Enroll MOK, Continue, Yes, mokutil's password, "
      "Reboot. Or turn Secure Boot off.";
  if (!secure_boot)
    return "Remove module.sig_enforce and lockdown from the kernel's arguments: without Secure Boot it trusts no key "
           "of this machine.";
  if (!key.unusable.empty())
    return fmt::format("Put the key beside its certificate, unencrypted, for root alone; or enrol another one. ({})",
                       key.unusable);
  if (host.files().exists(efi_variable_path("MokNew", kEfiShim)))
    return fmt::format("A mokutil enrolment is pending: {}", kBlueScreen);
  if (!key.file.empty()) return fmt::format("Run \"sudo mokutil --import {}\", then {}", key.file, kBlueScreen);
  const auto [make, certificate] = key_making(host);
  return fmt::format("Run \"sudo {}\" and \"sudo mokutil --import {}\", then {}", make, certificate, kBlueScreen);
}

Result<Finding> check(const Host& host, const Parameters&) {
  if (!TRY(needs_built_driver(host))) return not_applicable("no GPU that needs a driver built here");
  const ModulePolicy policy = TRY(module_policy(host));
  const auto& [on, level, enforce, asked] = policy;
  const LocalKey key = local_key(host);
  Finding finding;
  if (on) finding.saw(efi_variable_path("SecureBoot", kEfiGlobal), *on ? "1" : "0");
  if (level) finding.saw(kLockdown, host.line(kLockdown).value_or("not there"));
  if (enforce) finding.saw(kSigEnforce, *enforce ? "Y" : "N");
  finding.facts = {{"secure_boot", or_null(on)}, {"lockdown", or_null(level)}, {"sig_enforce", or_null(enforce)}};
  if (!key.file.empty())
    finding.facts["local_key"] = {{"file", key.file}, {"enrolled", or_null(key.enrolled)}, {"unusable", key.unusable}};
  const auto refuses = policy.refuses();
  if (!refuses)
    return fail(ErrorCode::not_found,
                fmt::format("neither {} nor {} tells whether unsigned modules are refused", kLockdown, kSigEnforce));
  const std::string text = fmt::format(
      "the kernel {} unsigned modules (Secure Boot {}, lockdown {}, sig_enforce {})", *refuses ? "refuses" : "accepts",
      on                          ? (*on ? "on" : "off")
      : host.files().exists(kEfi) ? "not readable"
                                  : "absent",
      level.value_or("not readable"), enforce ? (*enforce ? "on" : "off") : "not readable");
  if (!*refuses)
    finding.set(Verdict::pass, text);
  else if (on == true && key.signs())
    finding.set(Verdict::pass, fmt::format("{}; {} is enrolled: its key signs the modules built here", text, key.file));
  else
    finding.set(Verdict::fail, text, next_step(host, on == true, key));
  return finding;
}

}  // namespace

extern const Probe kSecureBoot = {
    .id = "secure-boot",
    .asserts =
        "the kernel accepts modules that are built here, unsigned or signed with a key of this machine that it trusts",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
