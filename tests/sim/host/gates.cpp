// SPDX-License-Identifier: MIT
// The predicates of gates.json. They share no code with the checks of p2pd: each is written from what the field
// reports, so that a check of the wrong thing is detected by a driver that does not work.
#include "tests/sim/host/gates.hpp"

#include <algorithm>
#include <array>
#include <regex>
#include <string_view>

#include "tests/sim/json_object.hpp"

namespace p2pd::sim {

using nlohmann::json;

namespace {

constexpr char kText[] =
#include "gates.inc"
    ;

// ---- the driver ----------------------------------------------------------------------------------------------------

bool modules_loaded(const GpuHost& host) { return host.module && host.controls && !host.gpus.empty(); }

bool same_version(const GpuHost& host) { return host.module == host.library; }

bool unified_memory(const GpuHost& host) { return host.unified_memory; }

// ---- two GPUs ------------------------------------------------------------------------------------------------------

bool same_generation(const GpuHost&, const HostGpu& one, const HostGpu& other) {
  return one.board->major == other.board->major && one.board->minor == other.board->minor;
}

constexpr unsigned kRead = 0x03;
constexpr unsigned kWrite = 0x30;

/// A registry key in `keys`; nothing if it is not set.
std::optional<unsigned long> registry_key(const std::string& keys, const std::string& name) {
  std::smatch found;
  if (!std::regex_search(keys, found, std::regex("(^|;)\\s*" + name + "=([0-9a-fxA-F]+)"))) return std::nullopt;
  return std::stoul(found[2], nullptr, 0);
}

/// Part of RegistryDwordsPerDevice that is about this GPU.
std::string keys_of(const GpuHost& host, const HostGpu& gpu) {
  const std::string head = "pci=" + gpu.function.address() + ";";
  const std::size_t at = host.device_registry.find(head);
  if (at == std::string::npos) return "";
  const std::size_t end = host.device_registry.find(";pci=", at + head.size());
  return host.device_registry.substr(at + head.size(), end == std::string::npos ? end : end - at - head.size());
}

/// NVIDIA's own P2P over BAR1 between RTX 50: in 570 by RMForceP2PType=2, from 580 on by RMPcieP2PType, not used unless
/// forced, and the mailbox is the default. Static BAR1 is automatic only if BAR1 has room beside the VRAM.
bool own_p2p(const GpuHost& host, const HostGpu& one, const HostGpu& other) {
  constexpr unsigned kRtx50 = 12;
  const int release = std::stoi(*host.module);
  if (host.quirks.patched_only || (release != 570 && release < 580) || one.board->major != kRtx50 ||
      other.board->major != kRtx50)
    return false;
  const auto forced = registry_key(host.registry, "ForceP2P").value_or(0);
  const auto type = registry_key(host.registry, release < 575 ? "RMForceP2PType" : "RMPcieP2PType").value_or(0);
  const auto is_static = [&](const HostGpu& gpu) {
    return gpu.function.bar_bytes(1) > gpu.board->vram_mib << 20 ||
           registry_key(keys_of(host, gpu), "RMForceStaticBar1")
                   .value_or(registry_key(host.registry, "RMForceStaticBar1").value_or(0)) == 1;
  };
  return (forced & kRead) != 0 && (forced & kWrite) != 0 && (type == 2 || (type == 1 && release >= 575)) &&
         is_static(one) && is_static(other);
}

bool p2p_modules(const GpuHost& host, const HostGpu& one, const HostGpu& other) {
  const bool forced = (host.p2p_override & kRead) != 0 && (host.p2p_override & kWrite) != 0;
  return forced || (!one.board->geforce && !other.board->geforce) || own_p2p(host, one, other);
}

bool bar1(const GpuHost&, const HostGpu& one, const HostGpu& other) {
  const auto covers = [](const HostGpu& gpu) {
    return !gpu.board->geforce || gpu.function.bar_bytes(1) >= gpu.board->vram_mib << 20;
  };
  return covers(one) && covers(other);
}

/// Checks that no registry key selects mailbox P2P on GeForce; the key changed in 575.
bool options(const GpuHost& host, const HostGpu& one, const HostGpu& other) {
  if (!one.board->geforce && !other.board->geforce) return true;
  const bool old = std::stoi(*host.module) < 575;
  const std::regex mailbox(old ? "(^|;)\\s*RMForceP2PType=(0x)?0*1(;|$)" : "(^|;)\\s*RMPcieP2PType=(0x)?0+(;|$)");
  return !std::regex_search(host.registry, mailbox);
}

bool iommu(const GpuHost& host, const HostGpu& one, const HostGpu& other) {
  const auto passes = [&](const HostGpu& gpu) {
    const auto type = gpu.function.iommu_type();
    return !type || (*type == "identity" && !host.quirks.iommu_absent);
  };
  return passes(one) && passes(other);
}

bool acs(const GpuHost&, const HostGpu& one, const HostGpu& other) {
  constexpr unsigned kRedirects = 0x04 | 0x08 | 0x20;  // requests, completions, egress control
  const std::vector<PciFunction> ports = path_between(one.function, other.function).parting;
  return std::ranges::none_of(ports, [](const PciFunction& port) { return (port.acs_control() & kRedirects) != 0; });
}

// ---- the file ------------------------------------------------------------------------------------------------------

template <class Gate>
struct Predicate {
  std::string_view name;
  decltype(Gate::open) open;
};
constexpr Predicate<StartGate> kStart[] = {
    {"modules-loaded", modules_loaded}, {"same-version", same_version}, {"unified-memory", unified_memory}};
constexpr Predicate<PairGate> kPair[] = {{"same-generation", same_generation},
                                         {"p2p-modules", p2p_modules},
                                         {"bar1", bar1},
                                         {"options", options},
                                         {"iommu", iommu},
                                         {"acs", acs}};

// nvmlGpuP2PStatus_t, as nvidia-smi prints it
constexpr std::array<std::string_view, 7> kStatuses = {"OK", "CNS", "GNS", "TNS", "DR", "NS", "U"};

void read_failing(Object& failing, StartGate& gate) {
  constexpr int kMost = 999;
  gate.cu_init = failing.needed(failing.number("cuInit", kMost), "cuInit");
  gate.nvml_init = failing.needed(failing.number("nvmlInit", kMost), "nvmlInit");
}

void read_failing(Object& failing, PairGate& gate) {
  gate.fault = failing.needed(failing.text("fault"), "fault");
  const std::string status = failing.needed(failing.text("nvml"), "nvml");
  const auto known = std::ranges::find(kStatuses, status);
  if (known == kStatuses.end()) failing.broken("has an unknown status \"" + status + "\"");
  gate.nvml_status = static_cast<unsigned>(known - kStatuses.begin());
}

/// The gates of one list, each with its predicate: all rows have one, and all predicates have a row.
template <class Gate, std::size_t kCount>
std::vector<Gate> read_list(Object& file, const char* key, const Predicate<Gate> (&predicates)[kCount]) {
  std::vector<Gate> gates;
  for (Object& row : rows(file, key)) {
    Gate gate;
    gate.name = row.needed(row.text("name"), "name");
    const auto known = std::ranges::find(predicates, gate.name, &Predicate<Gate>::name);
    if (known == std::end(predicates)) row.broken("is \"" + gate.name + "\", which has no predicate");
    if (std::ranges::count(gates, gate.name, &Gate::name) > 0) row.broken("is \"" + gate.name + "\" again");
    gate.open = known->open;
    row.needed(row.text("what"), "what");
    if (row.find("source") == nullptr) row.broken("has no source");
    const json* consequence = row.find("failing");
    if (consequence == nullptr) row.broken("does not tell what happens where it fails");
    Object failing(*consequence, gate.name + ": failing");
    read_failing(failing, gate);
    failing.end();
    row.end();
    gates.push_back(gate);
  }
  for (const Predicate<Gate>& predicate : predicates)
    if (std::ranges::count(gates, predicate.name, &Gate::name) == 0)
      file.broken("lacks the gate \"" + std::string(predicate.name) + "\"");
  return gates;
}

}  // namespace

Gates Gates::read() { return read(kText); }

Gates Gates::read(const std::string& text) {
  const json parsed = json::parse(text);
  Object file(parsed, "gates.json");
  file.find("about");
  Gates gates{read_list(file, "start", kStart), read_list(file, "pair", kPair)};
  file.end();
  return gates;
}

}  // namespace p2pd::sim
