// SPDX-License-Identifier: MIT
#include "machine/modules/module_signing.hpp"

#include <fmt/format.h>

#include <map>
#include <sstream>

#include "machine/boot/efi_variable.hpp"
#include "machine/modules/module_build.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kFramework = "/etc/dkms/framework.conf";
constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
    {"/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub"},
    {"/var/lib/shim-signed/mok/MOK.priv", "/var/lib/shim-signed/mok/MOK.der"}};

/// Assignments of a shell file, one a line, without quotes around the value; the last one of a name counts.
std::map<std::string, std::string> assignments(std::string_view text) {
  std::map<std::string, std::string> out;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos || line.find_first_of("# \t") < equals) continue;
    std::string value = line.substr(equals + 1);
    if (value.size() > 1 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front())
      value = value.substr(1, value.size() - 2);
    out[line.substr(0, equals)] = value;
  }
  return out;
}

/// Hash that the kernel was configured with, "sha256".
std::string hash_of(const Host& host, const BuildTarget& target) {
  auto configured = assignments(host.files().read(target.build() + "/.config").value_or(""));
  const std::string hash = configured["CONFIG_MODULE_SIG_HASH"];
  return hash.empty() ? "sha512" : hash;
}

}  // namespace

std::optional<SigningKey> signing_key(const Host& host) {
  auto configured = assignments(host.files().read(kFramework).value_or(""));
  const SigningKey own{configured["mok_signing_key"], configured["mok_certificate"]};
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
  std::optional<bool> known;
  for (const auto& [name, vendor] : {std::pair{"MokListRT", kEfiShim}, {"db", kEfiImages}}) {
    const auto list = efi_variable(host, name, vendor);
    if (!list) continue;
    if (*list && (*list)->find(*bytes) != std::string::npos) return true;
    known = false;
  }
  return known;
}

Result<void> sign_modules(Host& host, const BuildTarget& target, const std::string& directory) {
  if (!TRY(efi_flag(host, "SecureBoot", kEfiGlobal)).value_or(false)) return {};
  const auto key = signing_key(host);
  if (!key) return {};  // the check secure-boot reports systems that refuse unsigned modules
  const std::string tool = target.build() + "/scripts/sign-file";
  const std::string program = host.has_program(tool) ? tool : "kmodsign";
  for (const std::string& file : host.names(directory))
    if (file.ends_with(".ko"))
      TRY_IN(
          "the modules are not signed",
          host.run({{program, hash_of(host, target), key->key, key->certificate, fmt::format("{}/{}", directory, file)},
                    {},
                    {}}));
  return {};
}

}  // namespace p2pd
