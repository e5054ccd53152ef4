// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// What is known of one GPU model.
struct GpuModel {
  std::string id;            ///< vendor and device, "10de:2684"
  std::string name;          ///< "NVIDIA GeForce RTX 4090"
  std::string segment;       ///< "GeForce", "professional", "data centre"; empty: not known
  std::string architecture;  ///< "Maxwell" to "Blackwell"
  std::optional<std::uint32_t> vram_mib;  ///< nominal; nothing where one id sells in several sizes, or none was found
  int pcie_generation = 0;
};

/// The models of config/gpus.yaml, compiled in. An Error means that the build has a broken table.
Result<std::vector<GpuModel>> gpu_models();

/// The same from its JSON: every key checked, ids ascending, each chip of one architecture.
Result<std::vector<GpuModel>> parse_gpu_models(std::string_view text);

/// The model of a PCI id. An id that is not listed is of the chip's architecture where others of its chip are: NVIDIA gives each
/// chip blocks of 128 ids; its segment is empty then, and its VRAM not known. Nothing: the chip is not known.
std::optional<GpuModel> model_of(const std::vector<GpuModel>& models, const std::string& id);

/// False of a model that is known to be no GeForce.
inline bool may_be_geforce(const std::optional<GpuModel>& model) { return !model || model->segment.empty() || model->segment == "GeForce"; }

/// True of a GeForce older than Ampere: it has no Resizable BAR, and no driver gives P2P over BAR1 between such cards.
bool is_old_geforce(const GpuModel& model);

/// A GPU of a machine.
struct GpuAt {
  std::string address;
  std::string id;
  std::optional<GpuModel> model;
};
/// "NVIDIA GeForce RTX 4090 (0000:01:00.0)"
std::string name_of(const GpuAt& gpu);

/// Why these GPUs give each other no P2P over PCIe, whatever is done to the machine.
struct GenerationProblem {
  std::string cause;        ///< "old-geforce", "mixed-generations"
  std::string summary;
  std::string next;
  bool impossible = false;  ///< with no two of them that could
};
/// CUDA gives peer access within one generation only, and no driver gives it to old GeForce cards. Nothing where no such reason is known.
std::optional<GenerationProblem> generation_problem(const std::vector<GpuAt>& gpus);

/// True when a GPU of `host` is a GeForce, or of a model that is not known: those get P2P from a driver that is built
/// here alone; NVIDIA's own driver gives it to the others. True of an image, too: it is made for such a driver.
Result<bool> needs_built_driver(const Host& host);

}  // namespace p2pd
