// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/modules/toolchain.hpp"

namespace p2pd {

/// A key that this system signs its own modules with.
struct SigningKey {
  std::string key;          ///< path of a file, or "pkcs11:..."
  std::string certificate;  ///< path of a file, DER
};

/// Key that DKMS is configured with (framework.conf), else the one it made, else Ubuntu's, if their certificate exists;
/// nullopt if there is none.
std::optional<SigningKey> signing_key(const Host& host);

/// Reason why `key` cannot sign: "/var/lib/dkms/mok.key is encrypted"; empty: it can, as far as can be read here.
std::string unusable_because(const Host& host, const SigningKey& key);

/// Checks that the certificate is among those that shim (MokListRT) or the firmware (db) gives the kernel, which
/// Debian's and Ubuntu's kernels trust; nullopt if that cannot be read.
std::optional<bool> is_enrolled(const Host& host, const std::string& certificate);

/// Reason why the kernel refuses one of the module files although a key of this machine is enrolled: they were
/// installed before Secure Boot was on, or before there was the key. Empty: it refuses none, or signing would not help.
Result<std::string> refused_because(const Host& host, const std::vector<std::string>& files);

/// Signs the modules in `directory` for `target` if there is a key, since Secure Boot may be turned on later; with
/// Secure Boot off, a failure is only a warning.
Result<void> sign_modules(Host& host, const BuildTarget& target, const std::string& directory);

}  // namespace p2pd
