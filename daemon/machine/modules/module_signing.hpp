// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/modules/toolchain.hpp"

namespace p2pd {

/// A key that this system signs its own modules with.
struct SigningKey {
  std::string key;          ///< a file, or "pkcs11:..."
  std::string certificate;  ///< a file, DER
};

/// The one that DKMS is configured with (framework.conf), else the one it made, else Ubuntu's, as their certificates tell;
/// nothing where there is none.
std::optional<SigningKey> signing_key(const Host& host);

/// Why nothing can be signed with `key`: "/var/lib/dkms/mok.key is encrypted"; empty: it can, as far as can be read here.
std::string unusable_because(const Host& host, const SigningKey& key);

/// True where the certificate is among those that shim (MokListRT) or the firmware (db) hands the kernel, which Debian's and
/// Ubuntu's kernels trust; nothing where that cannot be read.
std::optional<bool> is_enrolled(const Host& host, const std::string& certificate);

/// Signs the modules in `directory` for `target` where Secure Boot is on and there is a key; else does
/// nothing.
Result<void> sign_modules(Host& host, const BuildTarget& target, const std::string& directory);

}  // namespace p2pd
