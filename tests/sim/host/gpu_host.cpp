// SPDX-License-Identifier: MIT
#include "tests/sim/host/gpu_host.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <regex>

#include "tests/sim/json_object.hpp"

namespace p2pd::sim {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr unsigned long kNvidia = 0x10de;
constexpr unsigned long kVga = 0x0300;  // class, without the programming interface
constexpr unsigned long k3d = 0x0302;
constexpr char kModprobe[] = "/usr/bin/nvidia-modprobe";

// as NVIDIA's specifications have them
constexpr Board kBoards[] = {
    {0x2204, 8, 6, 82, 24576, true},    // GeForce RTX 3090
    {0x2684, 8, 9, 128, 24576, true},   // GeForce RTX 4090
    {0x2b85, 12, 0, 170, 32768, true},  // GeForce RTX 5090
    {0x2230, 8, 6, 84, 49152, false},   // RTX A6000
};

/// "570.148.08" of libcuda.so.570.148.08, whatever link the library was loaded by.
std::string own_version() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&own_version), &info) == 0) throw std::runtime_error("no library of its own");
  const std::string name = fs::canonical(info.dli_fname).filename();
  const std::size_t at = name.find(".so.");
  return at == std::string::npos ? "" : name.substr(at + 4);
}

std::optional<std::string> first_match(const std::optional<std::string>& text, const char* expression) {
  std::smatch match;
  if (!text || !std::regex_search(*text, match, std::regex(expression))) return std::nullopt;
  return match[1];
}

/// The display functions of the vendor, in the order of their addresses.
std::vector<PciFunction> display_functions(const fs::path& root) {
  std::vector<fs::path> folders;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root / "sys/bus/pci/devices", none)) folders.push_back(entry.path());
  std::ranges::sort(folders);
  std::vector<PciFunction> found;
  for (const fs::path& folder : folders) {
    const PciFunction function(folder);
    const unsigned long kind = function.number("class") >> 8;
    if (function.number("vendor") == kNvidia && (kind == kVga || kind == k3d)) found.push_back(function);
  }
  return found;
}

HostGpu read_gpu(const fs::path& root, const PciFunction& function) {
  const unsigned long id = function.number("device");
  const auto* board = std::ranges::find(kBoards, id, &Board::id);
  if (board == std::end(kBoards)) throw std::runtime_error(function.address() + " is a board that is not known");
  const auto text = read_text(root / "proc/driver/nvidia/gpus" / function.address() / "information");
  const auto name = first_match(text, "Model:\\s*([^\n]+)");
  const auto uuid = first_match(text, "GPU UUID:\\s*(GPU-[0-9a-f-]{36})");
  if (!name || !uuid) throw std::runtime_error("/proc/driver/nvidia does not tell of " + function.address());
  return {function, board, *name, *uuid};
}

Quirks read_quirks(const fs::path& root) {
  Quirks quirks;
  const fs::path file = root / "etc/driver-world/quirks.json";
  const auto text = read_text(file);
  if (!text) return quirks;
  const json parsed = json::parse(*text);
  Object object(parsed, file.string());
  if (const json* faults = object.find("faults")) quirks.faults = *faults;
  if (!quirks.faults.is_array()) object.broken("faults is not a list");
  if (const json* gates = object.find("gates")) {
    Object stricter(*gates, "gates");
    const auto iommu = stricter.text("iommu");
    if (iommu && *iommu != "absent") stricter.broken("iommu is not \"absent\"");
    quirks.iommu_absent = iommu.has_value();
    const auto modules = stricter.text("p2p-modules");
    if (modules && *modules != "patched") stricter.broken("p2p-modules is not \"patched\"");
    quirks.patched_only = modules.has_value();
    stricter.end();
  }
  quirks.crashes = object.number("crash", 1000).value_or(0);
  quirks.patience = object.number("patience", 1000).value_or(quirks.patience);
  object.end();
  return quirks;
}

void modprobe(std::vector<std::string> words) {
  words.insert(words.begin(), kModprobe);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::string path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
  char* environment[] = {path.data(), nullptr};
  pid_t child = 0;
  if (::posix_spawn(&child, kModprobe, nullptr, nullptr, argv.data(), environment) == 0) ::waitpid(child, nullptr, 0);
}

bool lists_unified_memory(const fs::path& root) {
  return read_text(root / "proc/devices").value_or("").find(" nvidia-uvm\n") != std::string::npos;
}

/// Loads the modules as the driver's libraries do if there are no device files.
void load_modules(const fs::path& root, bool unified_memory) {
  const auto functions = display_functions(root);
  if (functions.empty()) return;
  if (!fs::exists(root / "proc/driver/nvidia/version") || !fs::exists(root / "dev/nvidiactl")) {
    std::vector<std::string> minors;
    for (std::size_t i = 0; i < functions.size(); ++i) minors.push_back("-c=" + std::to_string(i));
    modprobe(minors);
  }
  if (unified_memory && !lists_unified_memory(root)) modprobe({"-u"});
}

}  // namespace

GpuHost GpuHost::read(bool unified_memory) {
  GpuHost host;
  const char* named = std::getenv("P2PD_SIM_ROOT");
  host.root = named == nullptr ? "/" : named;
  if (host.root == "/") load_modules(host.root, unified_memory);
  host.library = own_version();
  const fs::path proc = host.root / "proc/driver/nvidia";
  host.module = first_match(read_text(proc / "version"), "Kernel Module[^\n]*?\\s([0-9]{3}\\.[0-9.]+)\\s");
  const auto control = read_text(host.root / "dev/nvidiactl");
  host.controls = control.has_value();
  host.p2p_override =
      static_cast<unsigned>(std::stoul(first_match(control, "p2p (0x[0-9a-f]+)").value_or("0"), nullptr, 0));
  host.unified_memory = lists_unified_memory(host.root);
  host.registry = first_match(read_text(proc / "params"), "RegistryDwords: \"([^\"]*)\"").value_or("");
  host.device_registry = first_match(read_text(proc / "params"), "RegistryDwordsPerDevice: \"([^\"]*)\"").value_or("");
  if (!host.module) return host;
  for (const PciFunction& function : display_functions(host.root))
    if (function.driver() == "nvidia") host.gpus.push_back(read_gpu(host.root, function));
  host.quirks = read_quirks(host.root);
  return host;
}

}  // namespace p2pd::sim
