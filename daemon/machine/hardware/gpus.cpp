// SPDX-License-Identifier: MIT
#include "machine/hardware/gpus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/json.hpp"
#include "base/json_members.hpp"
#include "base/units.hpp"
#include "machine/hardware/driver_answer.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kTable =
#include "gpus.inc"  // config/gpus.yaml as JSON, made by the build
    ;

bool is_id(std::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == 9 && text[4] == ':' && std::ranges::count_if(text, is_digit) == 8;
}

struct Architecture {
  std::string name;
  int pcie_generation = 0;
};

using Chips = std::map<std::string, Architecture>;  // "GA102" to its architecture

Result<void> add_chips(Chips& chips, const std::string& name, const nlohmann::json& row) {
  const auto generation = json_number<std::uint8_t>(row.value("pcie_generation", nlohmann::json()));
  if (!generation) return fail(ErrorCode::invalid, name + ": pcie_generation must be a number");
  for (const nlohmann::json& chip : row.value("chips", nlohmann::json::array())) {
    if (!chip.is_string()) return fail(ErrorCode::invalid, name + ": chips must be texts");
    if (!chips.emplace(chip.get<std::string>(), Architecture{name, *generation}).second)
      return fail(ErrorCode::invalid, fmt::format("{}: {} is listed twice", name, chip.get<std::string>()));
  }
  return {};
}

Result<Chips> parse_chips(const nlohmann::json& architectures) {
  Chips chips;
  if (!architectures.is_object()) return fail(ErrorCode::invalid, "architectures must be an object");
  for (const auto& [name, row] : architectures.items())
    TRY(add_chips(chips, name, row.is_object() ? row : nlohmann::json::object()));
  return chips;
}

Result<GpuModel> parse_model(const nlohmann::json& row, const Chips& chips) {
  const auto text = [&](const char* key) {
    const auto found = row.find(key);
    return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  GpuModel model{text("id"), text("name"), text("segment"), {}, std::nullopt, 0, text("chip")};
  if (!is_id(model.id)) return fail(ErrorCode::invalid, fmt::format("'{}' is not a PCI id like 10de:2684", model.id));
  if (model.name.empty() || model.segment.empty())
    return fail(ErrorCode::invalid, model.id + ": name and segment must be texts");
  const auto chip = chips.find(model.chip);
  if (chip == chips.end())
    return fail(ErrorCode::invalid, fmt::format("{}: chip '{}' is of no architecture", model.id, model.chip));
  model.architecture = chip->second.name;
  model.pcie_generation = chip->second.pcie_generation;
  const nlohmann::json vram = row.value("vram_mib", nlohmann::json("missing"));
  model.vram_mib = json_number<std::uint32_t>(vram);
  if (!model.vram_mib && !vram.is_null()) {
    return fail(ErrorCode::invalid, model.id + ": vram_mib must be a number or null");
  }
  return model;
}

}  // namespace

Result<std::vector<GpuModel>> parse_gpu_models(std::string_view text) {
  const nlohmann::json table = parse_json(text);
  if (!table.is_object() || table.value("schema", nlohmann::json()) != "p2pd.gpus/2") {
    return fail(ErrorCode::invalid, "gpus.yaml: not of schema p2pd.gpus/2");
  }
  const Chips chips = TRY_IN("gpus.yaml", parse_chips(table.value("architectures", nlohmann::json())));
  std::vector<GpuModel> models;
  for (const nlohmann::json& row : table.value("gpus", nlohmann::json::array())) {
    GpuModel model = TRY_IN("gpus.yaml", parse_model(row.is_object() ? row : nlohmann::json::object(), chips));
    if (!models.empty() && models.back().id >= model.id)
      return fail(ErrorCode::invalid,
                  fmt::format("gpus.yaml: {} after {}: ids must ascend", model.id, models.back().id));
    models.push_back(std::move(model));
  }
  if (models.empty()) return fail(ErrorCode::invalid, "gpus.yaml: no gpus");
  return models;
}

Result<std::vector<GpuModel>> gpu_models() {
  static const Result<std::vector<GpuModel>> kModels = parse_gpu_models(kTable);
  return kModels;
}

std::optional<GpuModel> model_of(const std::vector<GpuModel>& models, const std::string& id) {
  const auto block = [](const std::string& text) { return std::stoul(text.substr(5), nullptr, 16) >> 7; };
  const auto found = std::ranges::lower_bound(models, id, {}, &GpuModel::id);
  if (found != models.end() && found->id == id) return *found;
  if (!id.starts_with("10de:")) return std::nullopt;
  for (const GpuModel& other : models) {
    if (block(other.id) != block(id)) continue;
    return GpuModel{id, "NVIDIA " + id, "", other.architecture, std::nullopt, other.pcie_generation, other.chip};
  }
  return std::nullopt;
}

std::string short_name(std::string_view name) {
  for (const std::string_view maker : {"NVIDIA ", "GeForce "})
    if (name.starts_with(maker)) name.remove_prefix(maker.size());
  return std::string(name);
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
  const std::vector<GpuModel> models = TRY(gpu_models());
  for (const PciDevice& device : TRY(pci_devices(host))) {
    if (!device.takes_part()) continue;
    if (may_be_geforce(model_of(models, device.id()))) return true;
  }
  return false;
}

namespace {

/// Address "0000:01:00.0" of "GPU 00000000:01:00.0", whose domain has four digits more than that of sysfs.
std::string address_of(std::string_view line) {
  std::string address(line.substr(std::min<std::size_t>(8, line.size())));
  std::ranges::transform(address, address.begin(), [](char c) { return c >= 'A' && c <= 'F' ? char(c + 32) : c; });
  return address;
}

/// Number in "    Total   : 24564 MiB"; 0 if there is none.
std::uint32_t mib_of(std::string_view line) {
  const std::size_t colon = line.find(": ");
  if (colon == std::string_view::npos || !line.ends_with(" MiB")) return 0;
  std::uint32_t mib = 0;
  std::from_chars(line.data() + colon + 2, line.data() + line.size(), mib);
  return mib;
}

}  // namespace

std::map<std::string, std::uint64_t> parse_vram(std::string_view text) {
  std::map<std::string, std::uint64_t> found;
  std::string address;
  bool framebuffer = false;  // inside the section whose "Total" counts: BAR1 has one, too
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const std::string_view words = line.substr(std::min(line.find_first_not_of(' '), line.size()));
    if (line.starts_with("GPU ")) address = address_of(line);
    if (line.find(':') == std::string_view::npos) framebuffer = words == "FB Memory Usage";
    if (!framebuffer || address.empty() || !words.starts_with("Total ")) continue;
    if (const std::uint32_t mib = mib_of(words)) found[address] = mib * kMiB;
    framebuffer = false;
  }
  return found;
}

std::map<std::string, std::uint64_t> told_vram_bytes(const Host& host) {
  if (!host.files().exists("/sys/module/nvidia/version")) return {};
  std::map<std::string, std::uint64_t> told;
  if (const auto answer = driver_answer(host); answer && answer->is_object())
    for (const nlohmann::json& gpu : answer->value("gpus", nlohmann::json::array())) {
      const auto bytes =
          gpu.is_object() ? json_number<std::uint64_t>(gpu.value("vram_bytes", nlohmann::json())) : std::nullopt;
      const nlohmann::json address = gpu.is_object() ? gpu.value("address", nlohmann::json()) : nlohmann::json();
      if (bytes && address.is_string()) told[address.get<std::string>()] = *bytes;
    }
  if (!told.empty()) return told;
  Command command;
  command.argv = {"nvidia-smi", "-q"};
  const auto answer = host.once<std::string>(command.text(), [&] { return host.output_of(command); });
  return answer ? parse_vram(*answer) : std::map<std::string, std::uint64_t>();
}

}  // namespace p2pd
