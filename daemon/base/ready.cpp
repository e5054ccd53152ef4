// SPDX-License-Identifier: MIT
#include "base/ready.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/directories.hpp"
#include "base/hardware/pci.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kLoadedModules = "/sys/module";
constexpr std::string_view kPci = "/sys/bus/pci/devices";

/// "pci0000:00/0000:00:01.1/0000:01:00.0": the ports above a function, and itself.
std::string place_of(const Host& host, const std::string& address) {
  const std::string path = host.files().read_link(fmt::format("{}/{}", kPci, address)).value_or(address);
  const std::size_t at = path.find("pci");
  return at == std::string::npos ? path : path.substr(at);
}

std::string line_or_nothing(const Host& host, const std::string& path) { return host.line(path).value_or(""); }

std::string machine_id(const Host& host) { return line_or_nothing(host, "/etc/machine-id"); }
std::string proven_on_file() { return state_directory() / "proven-on"; }

}  // namespace

std::string ready_file() { return runtime_directory() + "/ready"; }

Result<nlohmann::json> proof_context(const Host& host) {
  nlohmann::json gpus = nlohmann::json::array(), modules = nlohmann::json::object();
  for (const PciDevice& device : pci_devices(host).value_or(std::vector<PciDevice>()))
    if (device.is_nvidia_gpu()) gpus.push_back(fmt::format("{} {}", device.id(), place_of(host, device.address)));
  for (const std::string& name : host.names(kLoadedModules))
    if (name.starts_with("nvidia")) modules[name] = line_or_nothing(host, fmt::format("{}/{}/srcversion", kLoadedModules, name));
  return nlohmann::json{{"machine_id", machine_id(host)},
                        {"boot_id", line_or_nothing(host, "/proc/sys/kernel/random/boot_id")},
                        {"gpus", std::move(gpus)},
                        {"modules", std::move(modules)}};
}

Result<void> announce_ready(Host& host) {
  const std::string context = TRY(proof_context(host)).dump(2);
  TRY(host.create(proven_on_file(), machine_id(host) + "\n"));
  TRY(host.create(ready_file(), context + "\n"));
  return {};
}

bool proven_on_this_machine(const Host& host) {
  return !host.files().exists(proven_on_file()) || line_or_nothing(host, proven_on_file()) == machine_id(host);
}

Result<void> withdraw_ready(Host& host) { return host.discard(ready_file()); }

Result<void> require_ready(const Host& host) {
  const auto text = host.files().read(ready_file(), 1U << 20);
  if (!text && text.error().code == ErrorCode::not_found)
    return fail(ErrorCode::state, "P2P is not proven on this boot", "\"p2pctl status\" shows how it stands");
  const auto proven = parse_json(TRY(Result<std::string>(text)));
  const nlohmann::json now = TRY(proof_context(host));
  const auto stands = [&](const std::string& key, const nlohmann::json& here) {
    const nlohmann::json then = proven.is_object() ? proven.value(key, nlohmann::json()) : nlohmann::json();
    if (key != "modules") return then == here;
    return then.is_object() && std::ranges::all_of(then.items(), [&](const auto& module) {  // more may be loaded by now
             return here.value(module.key(), nlohmann::json()) == module.value();
           });
  };
  for (const auto& [key, value] : now.items())
    if (!stands(key, value))
      return fail(ErrorCode::state, fmt::format("P2P was proven, but not with what is here now: {}", key),
                  "\"p2pctl apply\" proves it anew");
  return {};
}

}  // namespace p2pd
