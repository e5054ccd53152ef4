// SPDX-License-Identifier: MIT
#include "machine/driver/cdi.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "base/json.hpp"
#include "base/yaml.hpp"
#include "machine/driver/driver_install.hpp"
#include "machine/driver/ready.hpp"
#include "machine/hardware/nccl.hpp"
#include "machine/hardware/p2p_use.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kVersionedLibraries[] = {"libcuda.so.", "libnvidia-ml.so."};
constexpr std::string_view kRuntime = "/etc/nvidia-container-runtime/config.toml";
constexpr std::string_view kDocker = "/etc/docker/daemon.json";

/// Names in the list `devices` of a specification; a device without one is left out.
Result<std::set<std::string>> device_names(std::string_view text) {
  std::set<std::string> names;
  const yaml::Node document = TRY(yaml::parse(text, "specification")), devices = TRY(document.at("devices"));
  for (const yaml::Node& device : TRY(devices.list())) {
    const auto node = device.at("name");
    const Result<std::string> name = node ? node->text() : Failure(node.error());
    if (name) names.insert(*name);
  }
  return names;
}

}  // namespace

Result<std::string> own_cdi(const Host& host, const Proof& proof) {
  using nlohmann::json;
  const std::vector<Setting> settings = TRY(settings_of(host, proof.fit_for, TRY(proof_report(host))));
  json variables =
      json::array({fmt::format("P2PD_FIT_FOR={}", fmt::join(proof.fit_for, ","))});  // no edits at all are invalid
  for (const Setting& setting : settings)
    if (setting.kind == Setting::Kind::variable) variables.push_back(fmt::format("{}={}", setting.name, setting.value));
  json edits = {{"env", std::move(variables)}};
  if (!TRY(nccl_conf(host)).block.empty())
    edits["mounts"] = json::array(
        {{{"hostPath", kNcclConf}, {"containerPath", kNcclConf}, {"options", {"ro", "nosuid", "nodev", "bind"}}}});
  const std::size_t equals = kReadyDevice.find('=');
  json devices = json::array({{{"name", kReadyDevice.substr(equals + 1)}, {"containerEdits", edits}}});
  for (const ProvenGroup& group : proof.groups) {
    if (!is_divided(proof) || group.uuids.size() < group.gpus.size()) continue;
    json of_group = edits;
    of_group["env"].push_back(fmt::format("CUDA_VISIBLE_DEVICES={}", fmt::join(group.uuids, ",")));
    devices.push_back({{"name", group.name}, {"containerEdits", std::move(of_group)}});
  }
  const json specification = {
      {"cdiVersion", "0.3.0"}, {"kind", kReadyDevice.substr(0, equals)}, {"devices", std::move(devices)}};
  return specification.dump(2) + "\n";
}

CdiSpecification parse_cdi(std::string_view text) {
  CdiSpecification found;
  for (const std::string_view library : kVersionedLibraries)
    for (std::size_t at = text.find(library); at != std::string_view::npos; at = text.find(library, at + 1)) {
      const std::string_view file = text.substr(at, text.find_first_of("\n\"', :", at) - at);
      if (std::string version = driver_version_of(std::string(file)); !version.empty())
        found.versions.insert(std::move(version));
    }
  found.devices = device_names(text).value_or(std::set<std::string>());
  return found;
}

std::vector<std::string> cdi_files(const Host& host) {
  std::vector<std::string> found;
  for (const std::string_view path : kCdiFiles)
    if (host.files().exists(path)) found.emplace_back(path);
  return found;
}

std::string asks_for_cdi(const Host& host) {
  std::istringstream lines(host.files().read(kRuntime).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::erase_if(line, [](char c) { return c == ' ' || c == '\t'; });
    if (line.starts_with("mode=\"cdi\"")) return std::string(kRuntime);
  }
  const auto docker = parse_json(host.files().read(kDocker).value_or(""));
  const nlohmann::json::json_pointer feature("/features/cdi");
  if (docker.is_object() && docker.contains(feature) && docker[feature] == true) return std::string(kDocker);
  return "";
}

Result<std::string> installed_libcuda(const Host& host) {
  std::string version;
  for (const DriverLibrary& library : driver_libraries(host, "libcuda.so.1")) {
    if (library.version.empty())
      return fail(ErrorCode::invalid, library.link + " leads to a file whose name has no version");
    if (!version.empty() && version != library.version)
      return fail(ErrorCode::invalid, fmt::format("libcuda is installed twice, {} and {}", version, library.version),
                  "Remove the driver's libraries that are not of the loaded module.");
    version = library.version;
  }
  return version;
}

}  // namespace p2pd
