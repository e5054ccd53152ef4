// SPDX-License-Identifier: MIT
#include "machine/hardware/bar1.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/units.hpp"

namespace p2pd {
namespace {

/// Reads the range from sysfs; if a listing comes without it, the capability has the size and the register the address.
std::optional<PciRange> range_of(const Host& host, const Bar1& bar1) {
  const auto number = static_cast<std::size_t>(nvidia_bar1(*bar1.gpu));
  const auto bars = pci_bars(host, *bar1.gpu);
  if (bars && bars->size() > number) return (*bars)[number];
  if (!bar1.resizable) return std::nullopt;
  const std::size_t at = 0x10 + 4 * number;
  const std::uint64_t low = bar1.gpu->dword(at) & ~0xfU;
  return PciRange{low | std::uint64_t{bar1.gpu->dword(at + 4)} << 32, bar1.resizable->bytes, true};
}

}  // namespace

std::optional<std::uint64_t> Bar1::vram_bytes() const {
  const std::uint64_t bytes = std::max((model ? model->vram_mib.value_or(0) : 0) * kMiB, told_bytes);
  return bytes == 0 ? std::nullopt : std::optional(bytes);
}

bool Bar1::covers_vram() const { return range && vram_bytes() && range->length >= *vram_bytes(); }

std::optional<std::uint64_t> Bar1::goal_bytes() const {
  if (covers_vram()) return range->length;
  if (!vram_bytes()) {  // the largest size covers what a card is sold with
    const bool grows =
        resizable && !resizable->supported_bytes.empty() && resizable->supported_bytes.back() > 256 * kMiB;
    return grows ? std::optional(resizable->supported_bytes.back()) : std::nullopt;
  }
  if (!gpu->extended_readable) return std::bit_ceil(*vram_bytes());
  if (!resizable) return std::nullopt;
  const auto& sizes = resizable->supported_bytes;
  const auto enough = std::ranges::lower_bound(sizes, *vram_bytes());
  if (enough != sizes.end()) return *enough;
  return converted() && !sizes.empty() ? std::optional(sizes.back()) : std::nullopt;
}

bool Bar1::must_grow() const {
  return !gpu->is_lost() && carries_p2p() && range && goal_bytes() && !above.ports.empty() &&
         range->length < *goal_bytes();
}

Result<std::vector<Bar1>> bar1_of_gpus(const Host& host, const std::vector<PciDevice>& devices,
                                       const std::map<std::string, std::uint64_t>& told_bytes) {
  const std::vector<GpuModel> models = TRY(gpu_models());
  const PciTree tree(devices);
  std::vector<Bar1> found;
  for (const PciDevice& device : devices) {
    if (!device.takes_part()) continue;
    Bar1 bar1;
    bar1.gpu = &device;
    bar1.above = tree.above(device);
    bar1.model = model_of(models, device.id());
    const auto told = told_bytes.find(device.address);
    if (told != told_bytes.end()) bar1.told_bytes = told->second;
    bar1.resizable = resizable_bar(device, nvidia_bar1(device));
    bar1.range = range_of(host, bar1);
    found.push_back(std::move(bar1));
  }
  return found;
}

std::string mib(std::uint64_t bytes) { return fmt::format("{} MiB", bytes / kMiB); }

}  // namespace p2pd
