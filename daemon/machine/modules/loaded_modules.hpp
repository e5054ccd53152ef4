// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/modules/module_file.hpp"

namespace p2pd {

/// A loaded kernel module, and the references that keep it from being removed.
struct LoadedModule {
  std::string name;                ///< "nvidia_uvm"
  std::optional<int> references;   ///< nullopt if the kernel does not count them
  std::vector<std::string> users;  ///< modules that use it, each by one reference

  /// References that no module accounts for: open device files, a console. nullopt if they are not counted.
  std::optional<int> other_references() const;
};

/// Reads /proc/modules, which shows references and users as of one moment, to everybody.
Result<std::vector<LoadedModule>> loaded_modules(const Host& host);

/// Parses its text; skips a line that is no module.
std::vector<LoadedModule> parse_loaded_modules(std::string_view text);

/// Identity of the loaded module `name`, as far as sysfs shows it.
ModuleIdentity loaded_identity(const Host& host, std::string_view name);

}  // namespace p2pd
