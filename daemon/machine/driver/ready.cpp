// SPDX-License-Identifier: MIT
#include "machine/driver/ready.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "base/directories.hpp"
#include "base/json_members.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"
#include "machine/driver/cdi.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/peer_groups.hpp"
#include "machine/modules/loaded_modules.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kLoadedModules = "/sys/module";

/// "pci0000:00/0000:00:01.1/0000:01:00.0": the ports above a function, and the function.
std::string place_of(const Host& host, const std::string& address) {
  const std::string path = host.files().read_link(sysfs_path(address)).value_or(address);
  const std::size_t at = path.find("pci");
  return at == std::string::npos ? path : path.substr(at);
}

std::string line_or_nothing(const Host& host, const std::string& path) { return host.line(path).value_or(""); }

std::string machine_id(const Host& host) { return line_or_nothing(host, "/etc/machine-id"); }
std::string proven_on_file() { return state_directory() / "proven-on"; }

/// Contents of the file that announce() wrote on this boot.
struct Announced {
  bool limited = false;
  nlohmann::json document;
};

Result<Announced> announced(const Host& host) {
  Announced proven{.limited = !host.files().exists(ready_file()), .document = {}};
  const auto text = host.files().read(proven.limited ? limited_file() : ready_file(), 1U << 20);
  if (!text && text.error().code == ErrorCode::not_found)
    return fail(ErrorCode::state, "P2P is not proven on this boot", "\"p2pctl status\" shows the state");
  proven.document = parse_json(TRY(Result<std::string>(text)));
  return proven;
}

/// Each key of proof_context(), and whether it is no longer as `proven` has it.
Result<std::map<std::string, bool>> drift_from(const nlohmann::json& proven, const Host& host) {
  const nlohmann::json now = TRY(proof_context(host, json_texts(proven, "without")));
  const auto stands = [&](const std::string& key, const nlohmann::json& here) {
    const nlohmann::json then = proven.is_object() ? proven.value(key, nlohmann::json()) : nlohmann::json();
    if (key == "build_ids" && then.is_null()) return true;  // an older p2pd proved it
    if (key != "modules" && key != "build_ids") return then == here;
    auto modules = then.items();
    return then.is_object() &&
           std::all_of(modules.begin(), modules.end(), [&](const auto& module) {  // more may be loaded
             return here.value(module.key(), nlohmann::json()) == module.value();
           });
  };
  std::map<std::string, bool> drift;
  for (const auto& [key, value] : now.items()) drift[key] = !stands(key, value);
  return drift;
}

std::vector<ProvenGroup> groups_here(const Host& host, const std::vector<PciDevice>& devices) {
  std::vector<PeerGroup> peers = peer_groups(devices);
  if (peers.empty()) peers.push_back({"all", nvidia_gpus(devices)});
  std::vector<ProvenGroup> groups;
  for (const PeerGroup& group : peers) {
    ProvenGroup& proven = groups.emplace_back(ProvenGroup{group_label(group.name), group.gpus, {}});
    for (const std::string& gpu : group.gpus)
      if (std::string uuid = told_of_gpu(host, gpu, "GPU UUID"); !uuid.empty()) proven.uuids.push_back(std::move(uuid));
  }
  return groups;
}

std::vector<ProvenGroup> groups_from(const nlohmann::json& document) {
  std::vector<ProvenGroup> groups;
  for (const nlohmann::json& group : field_of(document, "groups"))
    if (const nlohmann::json& name = field_of(group, "name"); name.is_string())
      groups.push_back({name, json_texts(group, "gpus"), json_texts(group, "uuids")});
  return groups;
}

std::vector<std::string> keys_of(const nlohmann::json& object) {
  std::vector<std::string> keys;
  if (object.is_object())
    for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

/// Names the GPUs of a proof that are no longer at their places, and those that were not there.
std::string changed_gpus(const nlohmann::json& proven, const nlohmann::json& now) {
  const std::vector<std::string> before = json_texts(proven, "gpus"), after = json_texts(now, "gpus");
  std::vector<std::string> gone, added;
  const auto address = [](const std::string& gpu) { return gpu.substr(gpu.rfind('/') + 1); };
  for (const std::string& gpu : before)
    if (std::ranges::count(after, gpu) == 0) gone.push_back(address(gpu));
  for (const std::string& gpu : after)
    if (std::ranges::count(before, gpu) == 0) added.push_back(address(gpu));
  std::string text;
  if (!gone.empty()) text += fmt::format("; gone, with every pair of it: {}", fmt::join(gone, ", "));
  if (!added.empty()) text += fmt::format("; in no proven pair: {}", fmt::join(added, ", "));
  return text;
}

/// Gives containers the device. P2P is proven without it: an error is a warning.
void offer_device(Host& host, const Proof& proof) {
  Result<std::string> specification = own_cdi(host, proof);
  const Result<Descriptor> written =
      specification ? host.create(kOwnCdi, *std::move(specification)) : Failure(specification.error());
  if (!written) log::warning("no container can ask for {}: {}", kReadyDevice, written.error().text());
}

Result<void> withdraw_device(Host& host) {
  if (!host.files().exists(kOwnCdi)) return {};
  TRY(host.remove_tree(kOwnCdi));
  const std::string directory(kOwnCdi.substr(0, kOwnCdi.rfind('/')));
  const auto others = host.files().list(directory);
  if (others && others->empty()) (void)host.remove(directory);  // a directory in use again stays
  return {};
}

}  // namespace

std::string group_label(std::string group) {
  group = lower(std::move(group));
  std::ranges::replace_if(
      group, [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
  return group;
}

std::string ready_file() { return runtime_directory() + "/ready"; }
std::string limited_file() { return runtime_directory() + "/limited"; }

Result<nlohmann::json> proof_context(const Host& host, const std::vector<std::string>& without) {
  nlohmann::json gpus = nlohmann::json::array(), modules = nlohmann::json::object(),
                 build_ids = nlohmann::json::object();
  for (const PciDevice& device : pci_devices(host).value_or(std::vector<PciDevice>()))
    if (device.is_nvidia_gpu() && std::ranges::count(without, device.address) == 0)
      gpus.push_back(fmt::format("{} {}", device.id(), place_of(host, device.address)));
  for (const std::string& name : host.names(kLoadedModules)) {
    if (!name.starts_with("nvidia")) continue;
    const ModuleIdentity loaded = loaded_identity(host, name);
    modules[name] = loaded.srcversion;
    if (!loaded.build_id.empty()) build_ids[name] = loaded.build_id;
  }
  return nlohmann::json{{"machine_id", machine_id(host)},
                        {"boot_id", line_or_nothing(host, "/proc/sys/kernel/random/boot_id")},
                        {"gpus", std::move(gpus)},
                        {"modules", std::move(modules)},
                        {"build_ids", std::move(build_ids)}};
}

Result<void> announce(Host& host, const Proof& proof) {
  const std::vector<PciDevice> devices = pci_devices(host).value_or(std::vector<PciDevice>());
  std::vector<std::string> without;
  nlohmann::json groups = nlohmann::json::array(), alone = nlohmann::json::object();
  for (const PciDevice& device : devices) {
    if (!device.left_out.empty()) without.push_back(device.address);
    if (is_alone(device)) alone[device.address] = device.left_out.substr(kAlone.size());
  }
  Proof whole = proof;
  for (const auto& [address, why] : alone.items()) whole.alone.push_back(address);
  whole.groups = groups_here(host, devices);
  for (const ProvenGroup& group : whole.groups)
    groups.push_back({{"name", group.name}, {"gpus", group.gpus}, {"uuids", group.uuids}});
  nlohmann::json document = TRY(proof_context(host, without));
  document["without"] = without;
  document["groups"] = std::move(groups);
  document["alone"] = std::move(alone);
  document["fit_for"] = proof.fit_for;
  document["summary"] = proof.summary;
  TRY(host.create(proven_on_file(), machine_id(host) + "\n"));
  if (proof.limited) TRY(withdraw_device(host));
  TRY(host.remove_tree(proof.limited ? ready_file() : limited_file()));
  TRY(host.create(proof.limited ? limited_file() : ready_file(), document.dump(2) + "\n"));
  if (!proof.limited) offer_device(host, whole);
  return {};
}

bool proven_on_this_machine(const Host& host) {
  return !host.files().exists(proven_on_file()) || line_or_nothing(host, proven_on_file()) == machine_id(host);
}

Result<void> withdraw_ready(Host& host) {
  TRY(withdraw_device(host));
  TRY(host.remove_tree(limited_file()));
  return host.remove_tree(ready_file());
}

Result<std::map<std::string, bool>> drift_since_proof(const Host& host) {
  const Announced proven = TRY(announced(host));
  return drift_from(proven.document, host);
}

Result<Proof> require_proof(const Host& host) {
  const Announced proven = TRY(announced(host));
  const auto drift = TRY(drift_from(proven.document, host));
  for (const auto& [key, changed] : drift)
    if (changed)
      return fail(
          ErrorCode::state,
          fmt::format("P2P was proven, but not with what is here now: {}{}", key,
                      key == "gpus" ? changed_gpus(proven.document,
                                                   TRY(proof_context(host, json_texts(proven.document, "without"))))
                                    : ""),
          "\"sudo p2pctl apply\" proves it anew");
  const nlohmann::json& summary = field_of(proven.document, "summary");
  return Proof{.limited = proven.limited,
               .fit_for = json_texts(proven.document, "fit_for"),
               .summary = summary.is_string() ? summary : "",
               .alone = keys_of(field_of(proven.document, "alone")),
               .groups = groups_from(proven.document)};
}

Result<Proof> require_ready(const Host& host) {
  Proof proof = TRY(require_proof(host));
  if (!proof.limited) return proof;
  return fail(
      ErrorCode::state,
      fmt::format("P2P is proven on this boot for less than the plan wants: {}", fmt::join(proof.fit_for, ", ")),
      "\"p2pctl status\" shows what is missing; \"p2pctl is-ready --for USE\" asks for one use");
}

}  // namespace p2pd
