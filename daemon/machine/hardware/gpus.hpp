// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// Facts about one GPU model.
struct GpuModel {
  std::string id;                         ///< vendor and device, "10de:2684"
  std::string name;                       ///< "NVIDIA GeForce RTX 4090"
  std::string segment;                    ///< "GeForce", "professional", "data centre"; empty: not known
  std::string architecture;               ///< "Maxwell" to "Blackwell"
  std::optional<std::uint32_t> vram_mib;  ///< nominal size; nullopt if one id sells in several sizes, or none was found
  std::string chip = {};                  ///< "AD102"
};

/// The models of config/gpus.yaml, compiled in, by ascending id. Tests hold the table to its schema.
const std::vector<GpuModel>& gpu_models();

/// Model of a PCI id. An id that is not listed has the architecture of listed ids of its chip: NVIDIA gives each
/// chip blocks of 128 ids; its segment is empty then, and its VRAM not known. nullopt: the chip is not known.
std::optional<GpuModel> model_of(const std::string& id);

/// "RTX 4090" for "NVIDIA GeForce RTX 4090"
std::string short_name(std::string_view name);

/// Returns false for a model that is known to be no GeForce.
inline bool may_be_geforce(const std::optional<GpuModel>& model) {
  return !model || model->segment.empty() || model->segment == "GeForce";
}

/// Checks for a GeForce older than Ampere: it has no Resizable BAR, and no driver supports P2P over BAR1 between such
/// cards.
bool is_old_geforce(const GpuModel& model);

/// VRAM of a card: its model's, or the driver's report `told_bytes` (0: none) if that is more; nullopt: not known.
std::optional<std::uint64_t> vram_bytes(const std::optional<GpuModel>& model, std::uint64_t told_bytes);
/// Checks for a card that was converted to more VRAM than its model has, by the driver's report `vram_bytes` (0: none).
bool is_converted(const std::optional<GpuModel>& model, std::uint64_t vram_bytes);

/// A GPU of a machine.
struct GpuAt {
  std::string address;
  std::string id;
  std::optional<GpuModel> model;
};
/// "NVIDIA GeForce RTX 4090 (0000:01:00.0)"
std::string name_of(const GpuAt& gpu);

/// Reason why these GPUs have no P2P over PCIe, whatever is done to the machine.
struct GenerationProblem {
  std::string cause;  ///< "old-geforce", "mixed-generations"
  std::string summary;
  std::string next;
  bool impossible = false;  ///< no two of them could have it
};
/// CUDA has peer access within one generation only, and no driver has it for old GeForce cards. nullopt if no such
/// reason is known. `gpus`: those that take part, not divided into peer groups.
std::optional<GenerationProblem> generation_problem(const std::vector<GpuAt>& gpus);

/// Checks for a GPU of `host` that is a GeForce, or of an unknown model: those have P2P only with a driver that is
/// built here; the others have it with NVIDIA's own driver. True for an image, too: it is made for such a driver.
Result<bool> needs_built_driver(const Host& host);

/// VRAM in bytes by address ("0000:01:00.0"), as the driver reports it to p2p-bench or "nvidia-smi -q"; empty without a
/// driver. No file has it, and the PCI id does not distinguish a card that was converted to more memory.
std::map<std::string, std::uint64_t> told_vram_bytes(const Host& host);

}  // namespace p2pd
