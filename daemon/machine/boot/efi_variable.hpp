// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

inline constexpr std::string_view kEfi = "/sys/firmware/efi";                           ///< exists after an EFI boot
inline constexpr std::string_view kEfiGlobal = "8be4df61-93ca-11d2-aa0d-00e098032b8c";  ///< SecureBoot, SetupMode
inline constexpr std::string_view kEfiShim = "605dab50-e046-4300-abb6-3dd810dd8b23";    ///< MokListRT, MokNew
inline constexpr std::string_view kEfiImages = "d719b2cb-3d3a-4596-a3bc-dad00e67656f";  ///< db, dbx
inline constexpr std::string_view kEfiLoader = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";  ///< LoaderInfo

/// File of a variable in efivarfs.
std::string efi_variable_path(std::string_view name, std::string_view vendor);

/// Data of an EFI variable without its attributes; nullopt if there is no such variable.
Result<std::optional<std::string>> efi_variable(const Host& host, std::string_view name, std::string_view vendor);

/// Value of a variable of one byte that is 0 or 1; anything else is ErrorCode::invalid.
Result<std::optional<bool>> efi_flag(const Host& host, std::string_view name, std::string_view vendor);

/// Converts UTF-16 data to text, up to its NUL; '?' for non-ASCII.
std::string efi_text(std::string_view data);

}  // namespace p2pd
