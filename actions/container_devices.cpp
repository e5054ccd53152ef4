// SPDX-License-Identifier: MIT
// container-devices: regenerates the CDI specifications of NVIDIA GPUs for the installed driver.
// nvidia-ctk writes into a folder that no runtime reads. A new specification replaces the old one only if it names the
// installed libraries, and devices by names of the same kind. nvidia-ctk queries the loaded driver, so this runs after
// the new one is loaded. Running containers keep their devices.
// Writes those of /etc/cdi/nvidia.yaml and /var/run/cdi/nvidia.yaml that exist, else the first.
// Reference: nvidia-ctk cdi generate --help; NVIDIA Container Toolkit, "Support for Container Device Interface".
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "base/action.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/cdi.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kBeside = "/var/cache/p2pd/.cdi.new";
constexpr std::string_view kMade = "/var/cache/p2pd/.cdi.new/nvidia.yaml";  // the ending selects the format
constexpr std::chrono::minutes kDeadline{3};

/// "index" (the default of nvidia-ctk), "uuid" or "type-index", from the names of `before`.
std::string_view strategy_of(const CdiSpecification& before) {
  const auto any = [&](auto is) { return std::ranges::any_of(before.devices, is); };
  if (any([](const std::string& name) { return std::isdigit(static_cast<unsigned char>(name.front())) != 0; }))
    return "index";
  if (any([](const std::string& name) { return name.starts_with("GPU-"); })) return "uuid";
  return any([](const std::string& name) { return name.starts_with("gpu"); }) ? "type-index" : "index";
}

struct Wanted {
  std::string path;
  CdiSpecification before;
};

/// Specifications that are not of the installed driver.
Result<std::vector<Wanted>> stale(const Host& host, const std::string& installed) {
  std::vector<Wanted> found;
  for (const std::string& path : cdi_files(host)) {
    CdiSpecification before = parse_cdi(TRY(host.files().read(path)));
    if (before.versions != std::set{installed}) found.push_back({path, std::move(before)});
  }
  if (cdi_files(host).empty()) found.push_back({std::string(kCdiFiles[0]), {}});
  return found;
}

Command generate(const Wanted& wanted) {
  Command command{{"nvidia-ctk", "cdi", "generate", fmt::format("--output={}", kMade)}, {}, {}, kDeadline};
  if (const std::string_view strategy = strategy_of(wanted.before); strategy != "index")
    command.argv.push_back(fmt::format("--device-name-strategy={}", strategy));
  return command;
}

/// New text; Error unless it is of `installed`, and names devices. Where there was none before, it may name none.
Result<std::string> made(Host& host, const Wanted& wanted, const std::string& installed) {
  TRY_IN("CDI", host.run(generate(wanted)));
  std::string text = TRY(host.files().read(kMade));
  const CdiSpecification now = parse_cdi(text);
  const bool may_be_empty = wanted.before.devices.empty() && wanted.before.versions.empty();
  if (now.versions == std::set{installed} && (may_be_empty || !now.devices.empty())) return text;
  return fail(ErrorCode::state,
              fmt::format("nvidia-ctk generated a specification of {} devices for driver {}, not {}",
                          now.devices.size(), fmt::join(now.versions, " and "), installed),
              "Load the installed driver (\"nvidia-smi\" must work), then try again.");
}

Result<Description> describe(const Host& host, const Parameters&) {
  Description description;
  description.summary = "regenerate the CDI specifications for the installed driver";
  for (const Wanted& wanted : TRY(stale(host, TRY(installed_libcuda(host)))))
    description.commands.push_back(generate(wanted).text() + "    # then, checked, " + wanted.path);
  return description;
}

Result<void> replace(Host& host, const std::vector<Wanted>& all, const std::string& installed) {
  for (const Wanted& wanted : all) {
    std::string text = TRY(made(host, wanted, installed));
    TRY(host.write(wanted.path, std::move(text)));
  }
  return {};
}

Result<void> apply(Host& host, const Parameters&) {
  const std::string installed = TRY(installed_libcuda(host));
  const std::vector<Wanted> all = TRY(stale(host, installed));
  if (all.empty()) return {};
  TRY(host.will_change(kBeside, Restore::discarded));
  TRY(host.remove_tree(kBeside));
  TRY(host.make_directory(kBeside));
  const auto replaced = replace(host, all, installed);
  const auto cleared = host.remove_tree(kBeside);
  return replaced ? cleared : replaced;
}

}  // namespace

extern const Action kContainerDevicesAction = {
    .id = "container-devices",
    .topic = "services",
    .does = "regenerates the CDI specifications of NVIDIA GPUs for the installed driver",
    .describe = describe,
    .apply = apply,
};

}  // namespace p2pd
