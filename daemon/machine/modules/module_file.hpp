// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/modules/module_identity.hpp"

namespace p2pd {

/// Directory of the modules of kernel `release`.
std::string module_directory(std::string_view release);
/// Folder in that directory: "updates/dkms".
std::string place_of(std::string_view release, std::string_view place);

/// Module name ('_' for '-') to file, of every module in `release`'s modules.dep: the file that modprobe would load,
/// since depmod prefers updates/ and updates/dkms to kernel/.
Result<std::map<std::string, std::string>> modules_by_name(const Host& host, std::string_view release);

/// Name of the file that `modprobe NAME` loads: "nvidia", or "nvidia_current" if an install line of modprobe.d
/// says so, as Debian's do. ErrorCode::invalid: the install line does something else.
Result<std::string> installed_name(const Host& host, std::string_view name);
/// Name like that of nvidia: "nvidia_current_uvm" for nvidia-uvm beside nvidia_current.
std::string renamed(std::string_view module, std::string_view nvidia);

/// Finds every file of `release` for module `name` in the places where drivers are installed, the file of modules.dep
/// too.
std::vector<std::string> module_copies(const Host& host, std::string_view release, std::string_view name);

/// Build id and source version of each file. The latter, which a file must have, is read from the file, or by one
/// `modinfo` for all that are compressed.
Result<std::vector<ModuleIdentity>> module_identities(const Host& host, const std::vector<std::string>& files);

/// Build id of a module, compressed or not; empty if it has none, or it cannot be read.
std::string module_build_id(const Host& host, const std::string& file);

/// The .modinfo section of an uncompressed module, key to value; of a repeated key the first.
Result<std::map<std::string, std::string>> module_info(const Host& host, std::string_view file);

}  // namespace p2pd
