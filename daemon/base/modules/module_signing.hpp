// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/host.hpp"
#include "base/modules/toolchain.hpp"
#include "base/result.hpp"

namespace p2pd {

/// A key that this system signs its own modules with.
struct SigningKey {
  std::string key;          ///< a file, or "pkcs11:..."
  std::string certificate;  ///< a file, DER
};

/// The one that DKMS is configured with (framework.conf), else the one it made, else Ubuntu's; nothing where there is
/// none. The check secure-boot tells whether it is enrolled.
std::optional<SigningKey> signing_key(const Host& host);

/// Signs the driver's modules in `directory` for `target` where Secure Boot is on and there is a key; else does
/// nothing.
Result<void> sign_modules(Host& host, const BuildTarget& target, const std::string& directory);

}  // namespace p2pd
