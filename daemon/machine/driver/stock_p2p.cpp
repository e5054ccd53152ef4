// SPDX-License-Identifier: MIT
// P2P of NVIDIA's own modules. Reference: open-gpu-kernel-modules 590.44.01, 595.45.04: kern_bus_gb20x.c, kern_bif.c,
// p2p_caps.c, nv-reg.h.
#include "machine/driver/stock_p2p.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/version.hpp"
#include "machine/hardware/bar1.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/vram.hpp"
#include "machine/modules/default_kernel.hpp"
#include "machine/modules/loaded_modules.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "machine/modules/module_file.hpp"
#include "machine/modules/module_install.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kArchitecture = "Blackwell";
constexpr std::uint32_t kDriver = 590;

/// Version of the modules that modprobe would load; of compressed ones, of those that are loaded.
Result<NvidiaVersion> installed_version(const Host& host) {
  const std::string release = TRY(host.line("/proc/sys/kernel/osrelease"));
  const auto name = installed_name(host, "nvidia");
  const auto files = modules_by_name(host, release);
  if (name && files && files->contains(*name))
    if (const auto info = module_info(host, files->at(*name));
        info && info->contains("version") && info->contains("license"))
      return NvidiaVersion{info->at("version"), info->at("license") == "Dual MIT/GPL"};
  return nvidia_version(host);
}

/// Size of BAR1 now, or as the driver makes it.
std::uint64_t size_of(const Bar1& bar1) {
  return bar1.covers_vram() ? bar1.range->length : bar1.goal_bytes().value_or(0);
}

/// Reason why one of the GPUs rules it out; empty: none does.
std::string unsuitable(const std::vector<Bar1>& gpus) {
  for (const Bar1& gpu : gpus) {
    if (!gpu.model || gpu.model->architecture != kArchitecture || gpu.model->segment == "data centre")
      return fmt::format("NVIDIA's own modules have P2P over BAR1 for RTX 50 only; {} is another generation",
                         gpu.gpu->address);
    if (!gpu.vram_bytes() || size_of(gpu) < *gpu.vram_bytes())
      return fmt::format("BAR1 of {} cannot cover its VRAM", gpu.gpu->address);
  }
  return gpus.empty() ? "no NVIDIA GPU" : "";
}

/// Makes the options. Static BAR1 is automatic if BAR1 is larger than the VRAM, forced if it is equal, never used if it
/// is smaller.
Parameters options_for(const std::vector<Bar1>& gpus) {
  Parameters dwords = {{"ForceP2P", 0x11}, {"RMPcieP2PType", 1}};  // reads and writes; BAR1 in place of the mailbox
  if (std::ranges::any_of(gpus, [](const Bar1& gpu) { return size_of(gpu) == *gpu.vram_bytes(); }))
    dwords["RMForceStaticBar1"] = 1;
  return {{"options", {{"NVreg_EnableResizableBar", 1}}}, {"registry_dwords", std::move(dwords)}};
}

}  // namespace

Result<StockP2p> stock_p2p(const Host& host) {
  StockP2p found;
  if (is_image(host)) {
    found.why_not = "the GPUs of an image are not known";
    return found;
  }
  const auto installed = installed_version(host);
  if (!installed) {
    found.why_not = "no NVIDIA driver is installed";
    return found;
  }
  found.version = installed->version;
  const auto numbers = parse_version(installed->version);
  if (has_own_modules(host, TRY(host.line("/proc/sys/kernel/osrelease")))) {
    found.why_not = "the installed modules are p2pd's";
  } else if (!installed->open) {
    found.why_not = fmt::format("the modules of {} are proprietary", installed->version);
  } else if (!numbers || numbers->front() < kDriver) {
    found.why_not =
        fmt::format("NVIDIA's own modules have P2P over BAR1 from {} on; {} is installed", kDriver, installed->version);
  } else {
    const std::vector<PciDevice> devices = TRY(pci_devices(host));
    const std::vector<Bar1> gpus = TRY(bar1_of_gpus(host, devices, told_vram_bytes(host)));
    found.why_not = unsuitable(gpus);
    if (found.why_not.empty()) found.options = options_for(gpus);
  }
  return found;
}

Result<bool> is_stock_p2p_configured(const Host& host) {
  const StockP2p stock = TRY(stock_p2p(host));
  if (!stock.why_not.empty()) return false;
  Parameters wanted = stock.options;
  wanted["module"] = "nvidia";
  return std::ranges::all_of(option_states(TRY(module_options(host)), wanted), &OptionState::holds);
}

}  // namespace p2pd
