// SPDX-License-Identifier: MIT
#include "machine/hardware/gpus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <sstream>

#include "base/json.hpp"
#include "base/json_members.hpp"
#include "base/strings.hpp"
#include "base/units.hpp"
#include "machine/hardware/driver_answer.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kTable =
#include "gpus.inc"  // config/gpus.yaml as JSON, made by the build
    ;

std::vector<GpuModel> read_table() {
  const nlohmann::json table = parse_json(kTable);
  std::map<std::string, std::string> architectures;  // by chip
  for (const auto& [architecture, chips] : table.at("architectures").items())
    for (const nlohmann::json& chip : chips) architectures[chip] = architecture;
  std::vector<GpuModel> models;
  for (const nlohmann::json& row : table.at("gpus")) {
    const auto vram_mib = json_number<std::uint32_t>(row.at("vram_mib"));
    models.push_back(
        {row.at("id"), row.at("name"), row.at("segment"), architectures.at(row.at("chip")), vram_mib, row.at("chip")});
  }
  return models;
}

}  // namespace

const std::vector<GpuModel>& gpu_models() {
  static const std::vector<GpuModel> kModels = read_table();
  return kModels;
}

std::optional<GpuModel> model_of(const std::string& id) {
  const auto block = [](const std::string& text) { return std::stoul(text.substr(5), nullptr, 16) >> 7; };
  const auto found = std::ranges::lower_bound(gpu_models(), id, {}, &GpuModel::id);
  if (found != gpu_models().end() && found->id == id) return *found;
  if (!id.starts_with("10de:")) return std::nullopt;
  for (const GpuModel& other : gpu_models()) {
    if (block(other.id) != block(id)) continue;
    return GpuModel{id, "NVIDIA " + id, "", other.architecture, std::nullopt, other.chip};
  }
  return std::nullopt;
}

std::string short_name(std::string_view name) {
  for (const std::string_view maker : {"NVIDIA ", "GeForce "})
    if (name.starts_with(maker)) name.remove_prefix(maker.size());
  return std::string(name);
}

std::optional<std::uint64_t> vram_bytes(const std::optional<GpuModel>& model, std::uint64_t told_bytes) {
  const std::uint64_t bytes = std::max((model ? model->vram_mib.value_or(0) : 0) * kMiB, told_bytes);
  return bytes == 0 ? std::nullopt : std::optional(bytes);
}

bool is_converted(const std::optional<GpuModel>& model, std::uint64_t vram_bytes) {
  return model && model->vram_mib && vram_bytes / kMiB > *model->vram_mib * 21ULL / 20;
}

bool is_old_geforce(const GpuModel& model) {
  constexpr std::string_view kOld[] = {"Maxwell", "Pascal", "Volta", "Turing"};
  return model.segment == "GeForce" && std::ranges::count(kOld, model.architecture) > 0;
}

std::string name_of(const GpuAt& gpu) {
  return fmt::format("{} ({})", gpu.model ? gpu.model->name : gpu.id, gpu.address);
}

std::optional<GenerationProblem> generation_problem(const std::vector<GpuAt>& gpus) {
  constexpr const char* kWithin =
      "Take \"require: all\" out of \"gpus:\" of the plan, or of p2pd.yaml: P2P is then within each generation.";
  std::map<std::string, int> generations;
  const GpuAt* old = nullptr;
  for (const GpuAt& gpu : gpus) {
    if (!gpu.model) continue;
    if (is_old_geforce(*gpu.model))
      old = old == nullptr ? &gpu : old;
    else
      ++generations[gpu.model->architecture];
  }
  const auto most = std::ranges::max_element(generations, {}, [](const auto& known) { return known.second; });
  const bool enough = most != generations.end() && most->second > 1;
  if (old != nullptr)
    return GenerationProblem{
        "old-geforce",
        fmt::format("{} is a {} card: P2P over BAR1 is known from Ampere on", name_of(*old), old->model->architecture),
        enough ? kWithin : "Use cards of the RTX 30 series or newer.", !enough};
  if (generations.size() < 2) return std::nullopt;
  std::string names;
  for (const auto& [name, count] : generations) names += (names.empty() ? "" : " and ") + name;
  return GenerationProblem{
      "mixed-generations",
      fmt::format("cards of {}: the CUDA library gives peer access within one generation only", names),
      enough ? kWithin : "Use two cards of one generation; models of one generation may differ.", !enough};
}

Result<bool> needs_built_driver(const Host& host) {
  if (is_image(host)) return true;
  return std::ranges::any_of(TRY(pci_devices(host)), [](const PciDevice& device) {
    return device.takes_part() && may_be_geforce(model_of(device.id()));
  });
}

namespace {

/// VRAM in bytes by address, from the text of "nvidia-smi -q"; skips what it does not understand.
std::map<std::string, std::uint64_t> parse_vram(const std::string& text) {
  std::map<std::string, std::uint64_t> found;
  std::string address, section;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("GPU "))  // "GPU 00000000:01:00.0": four digits of domain more than sysfs has
      address = lower(line.substr(std::min<std::size_t>(8, line.size())));
    if (line.find(':') == std::string::npos) section = line.substr(std::min(line.find_first_not_of(' '), line.size()));
    unsigned long mib = 0;
    int end = 0;  // 0 unless the whole of it was there
    std::sscanf(line.c_str(), " Total : %9lu MiB%n", &mib, &end);
    if (end > 0 && mib > 0 && section == "FB Memory Usage" && !address.empty()) found[address] = mib * kMiB;
  }
  return found;
}

}  // namespace

std::map<std::string, std::uint64_t> told_vram_bytes(const Host& host) {
  if (!host.files().exists(kLoadedDriver)) return {};
  std::map<std::string, std::uint64_t> told;
  const nlohmann::json driver = driver_answer(host).value_or(nlohmann::json());
  for (const nlohmann::json& gpu : field_of(driver, "gpus")) {
    const auto bytes = json_number<std::uint64_t>(field_of(gpu, "vram_bytes"));
    const nlohmann::json& address = field_of(gpu, "address");
    if (bytes && address.is_string()) told[address.get<std::string>()] = *bytes;
  }
  if (!told.empty()) return told;
  Command command;
  command.argv = {"nvidia-smi", "-q"};
  const auto answer = host.once<std::string>(command.text(), [&] { return host.output_of(command); });
  return answer ? parse_vram(*answer) : std::map<std::string, std::uint64_t>();
}

}  // namespace p2pd
