// SPDX-License-Identifier: MIT
#include "base/hardware/gpus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/hardware/pci.hpp"
#include "base/json.hpp"
#include "base/json_number.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kTable =
#include "gpus.inc"  // config/gpus.yaml as a raw string, made by CMake
    ;

bool is_id(std::string_view text) {
  return text.size() == 9 && text[4] == ':' && std::all_of(text.begin(), text.end(), [](char c) {
           return c == ':' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Result<GpuModel> parse_model(const nlohmann::json& row) {
  const auto text = [&](const char* key) {
    const auto found = row.find(key);
    return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  GpuModel model{text("id"), text("name"), text("segment"), text("architecture"), std::nullopt, 0};
  if (!is_id(model.id)) return fail(ErrorCode::invalid, fmt::format("'{}' is not a PCI id like 10de:2684", model.id));
  if (model.name.empty() || model.segment.empty() || model.architecture.empty()) {
    return fail(ErrorCode::invalid, model.id + ": name, segment and architecture must be texts");
  }
  const nlohmann::json vram = row.value("vram_mib", nlohmann::json("missing"));
  model.vram_mib = json_number<std::uint32_t>(vram);
  if (!model.vram_mib && !vram.is_null()) {
    return fail(ErrorCode::invalid, model.id + ": vram_mib must be a number or null");
  }
  const auto generation = json_number<std::uint8_t>(row.value("pcie_generation", nlohmann::json()));
  if (!generation) return fail(ErrorCode::invalid, model.id + ": pcie_generation must be a number");
  model.pcie_generation = *generation;
  return model;
}

}  // namespace

Result<std::vector<GpuModel>> parse_gpu_models(std::string_view text) {
  const nlohmann::json table = parse_json(text);
  if (!table.is_object() || table.value("schema", nlohmann::json()) != "p2pd.gpus/1") {
    return fail(ErrorCode::invalid, "gpus.yaml: not JSON of schema p2pd.gpus/1");
  }
  std::vector<GpuModel> models;
  std::set<std::string> seen;
  for (const nlohmann::json& row : table.value("gpus", nlohmann::json::array())) {
    models.push_back(TRY_IN("gpus.yaml", parse_model(row.is_object() ? row : nlohmann::json::object())));
    if (!seen.insert(models.back().id).second) {
      return fail(ErrorCode::invalid, "gpus.yaml: " + models.back().id + " twice");
    }
  }
  if (models.empty()) return fail(ErrorCode::invalid, "gpus.yaml: no gpus");
  return models;
}

Result<std::vector<GpuModel>> gpu_models() {
  static const Result<std::vector<GpuModel>> kModels = parse_gpu_models(kTable);
  return kModels;
}

Result<bool> needs_built_driver(const Host& host) {
  if (is_image(host)) return true;
  const std::vector<GpuModel> models = TRY(gpu_models());
  for (const PciDevice& device : TRY(pci_devices(host))) {
    if (!device.is_nvidia_gpu()) continue;
    const auto model = std::ranges::find(models, device.id(), &GpuModel::id);
    if (model == models.end() || model->segment == "GeForce") return true;
  }
  return false;
}

}  // namespace p2pd
