// SPDX-License-Identifier: MIT
#include "machine/modules/module_signing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/log.hpp"
#include "machine/boot/efi_variable.hpp"
#include "machine/boot/lockdown.hpp"
#include "machine/modules/module_build.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kFramework = "/etc/dkms/framework.conf";
constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
    {"/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub"},
    {"/var/lib/shim-signed/mok/MOK.priv", "/var/lib/shim-signed/mok/MOK.der"}};

/// Hash that the kernel was configured with, "sha256".
std::string hash_of(const Host& host, const BuildTarget& target) {
  const std::string config = host.files().read(target.build() + "/.config").value_or("");
  const std::string hash = assigned_value(config, "CONFIG_MODULE_SIG_HASH");
  return hash.empty() ? "sha512" : hash;
}

/// Lists of certificates that shim and the firmware give the kernel, an absent one empty; none: they cannot be read.
std::vector<std::string> trusted_lists(const Host& host) {
  std::vector<std::string> lists;
  for (const auto& [name, vendor] : {std::pair{"MokListRT", kEfiShim}, {"db", kEfiImages}})
    if (auto list = efi_variable(host, name, vendor)) lists.push_back(std::move(*list).value_or(""));
  return lists;
}

bool contains(const std::vector<std::string>& lists, const std::string& bytes) {
  return std::ranges::any_of(lists, [&](const std::string& list) { return list.find(bytes) != std::string::npos; });
}

/// DER of the serial number that modinfo prints as "3F:A2:...", as it is in its certificate; empty: it is none.
std::string serial_number(std::string_view printed) {
  std::string bytes;
  for (; printed.size() >= 2; printed.remove_prefix(std::min<std::size_t>(printed.size(), 3))) {
    unsigned char byte = 0;
    if (std::from_chars(printed.data(), printed.data() + 2, byte, 16).ec != std::errc()) return "";
    bytes += static_cast<char>(byte);
  }
  if (bytes.empty()) return "";
  if ((static_cast<unsigned char>(bytes.front()) & 0x80U) != 0) bytes.insert(0, 1, '\0');  // else it is negative
  return std::string("\x02") + static_cast<char>(bytes.size()) + bytes;
}

Result<void> sign_all(Host& host, const BuildTarget& target, const SigningKey& key, const std::string& directory) {
  const std::string tool = target.build() + "/scripts/sign-file";
  const std::string program = host.has_program(tool) ? tool : "kmodsign";
  for (const std::string& file : host.names(directory))
    if (file.ends_with(".ko"))
      TRY(host.run(
          {{program, hash_of(host, target), key.key, key.certificate, fmt::format("{}/{}", directory, file)}}));
  return {};
}

}  // namespace

std::optional<SigningKey> signing_key(const Host& host) {
  const std::string configured = host.files().read(kFramework).value_or("");
  const SigningKey own{assigned_value(configured, "mok_signing_key"), assigned_value(configured, "mok_certificate")};
  if (!own.key.empty() && !own.certificate.empty()) return own;
  for (const auto& [key, certificate] : kKeys)
    if (host.files().exists(certificate)) return SigningKey{std::string(key), std::string(certificate)};
  return std::nullopt;
}

std::string unusable_because(const Host& host, const SigningKey& key) {
  if (key.key.starts_with("pkcs11:")) return "";
  const auto text = host.files().read(key.key, 1U << 16);
  if (!text) return text.error().code == ErrorCode::denied ? "" : text.error().message;  // root could read it
  return text->find("ENCRYPTED") != std::string::npos ? key.key + " is encrypted: p2pd has no passphrase" : "";
}

std::optional<bool> is_enrolled(const Host& host, const std::string& certificate) {
  const auto bytes = host.files().read(certificate, 1U << 16);
  if (!bytes || bytes->empty()) return std::nullopt;
  const std::vector<std::string> lists = trusted_lists(host);
  return lists.empty() ? std::nullopt : std::optional(contains(lists, *bytes));
}

Result<std::string> refused_because(const Host& host, const std::vector<std::string>& files) {
  const auto key = signing_key(host);
  if (!host.live() || !key || is_enrolled(host, key->certificate) != true || !unusable_because(host, *key).empty())
    return std::string();
  const ModulePolicy policy = TRY(module_policy(host));
  if (policy.secure_boot != true || policy.refuses() == false) return std::string();
  const std::vector<std::string> trusted = trusted_lists(host);
  for (const std::string& file : files) {
    const std::string serial = serial_number(TRY(host.cached_output_of(file, {{"modinfo", "-F", "sig_key", file}})));
    if (serial.empty()) return fmt::format("{} is not signed: with Secure Boot on, the kernel refuses it", file);
    if (!contains(trusted, serial))
      return fmt::format("{} is signed with a key that is not enrolled: the kernel refuses it", file);
  }
  return std::string();
}

Result<void> sign_modules(Host& host, const BuildTarget& target, const std::string& directory) {
  const auto key = signing_key(host);
  if (!key) return {};  // the check secure-boot reports systems that refuse unsigned modules
  Result<void> done = sign_all(host, target, *key, directory);
  if (done || done.error().code == ErrorCode::interrupted) return done;
  if (TRY(efi_flag(host, "SecureBoot", kEfiGlobal)).value_or(false))
    return Failure(std::move(done).error().in("the modules are not signed"));
  log::warning("the modules are not signed, and the kernel will refuse them if Secure Boot is turned on: {}",
               done.error().text());
  return {};
}

}  // namespace p2pd
