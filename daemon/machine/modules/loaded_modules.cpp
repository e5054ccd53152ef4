// SPDX-License-Identifier: MIT
// Reads loaded modules. Format: kernel/module/procfs.c of Linux, "nvidia 11575296 2 nvidia_uvm,nvidia_modeset, Live 0x0
// (OE)".
#include "machine/modules/loaded_modules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "machine/modules/modprobe_d.hpp"

namespace p2pd {

std::optional<int> LoadedModule::other_references() const {
  if (!references) return std::nullopt;
  return std::max(0, *references - static_cast<int>(users.size()));
}

std::vector<LoadedModule> parse_loaded_modules(std::string_view text) {
  std::vector<LoadedModule> modules;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string size, count, users, state;
    LoadedModule module;
    if (!(words >> module.name >> size >> count >> users >> state)) continue;
    int references = 0;
    const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), references);
    const bool number = error == std::errc() && end == count.data() + count.size() && references >= 0;
    if (!number && count != "-") continue;
    if (number) module.references = references;
    std::istringstream names(users == "-" ? "" : users);
    for (std::string name; std::getline(names, name, ',');) {
      if (!name.empty() && !name.starts_with('[')) module.users.push_back(name);  // "[permanent]" is no module
    }
    modules.push_back(std::move(module));
  }
  return modules;
}

Result<std::vector<LoadedModule>> loaded_modules(const Host& host) {
  return parse_loaded_modules(TRY(host.files().read("/proc/modules")));
}

ModuleIdentity loaded_identity(const Host& host, std::string_view name) {
  const std::string directory = fmt::format("/sys/module/{}", kernel_name(name));
  return {parse_build_id(host.files().read(directory + "/notes/.note.gnu.build-id").value_or("")),
          host.line(directory + "/srcversion").value_or("")};
}

}  // namespace p2pd
