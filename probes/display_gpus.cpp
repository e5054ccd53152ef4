// SPDX-License-Identifier: MIT
// display-gpus: no GeForce GPU drives a display or carries the firmware's console.
// Both use the start of BAR1 for a framebuffer. The driver then refuses static BAR1, which maps VRAM for P2P, or moves
// it off its 512 MiB alignment: pairs with that GPU copy garbage while the driver calls them OK. A card without an
// enabled output passes, even as the boot VGA device or with a monitor plugged in that is off: those are facts. Reads
// /sys/class/drm/card*-*/{status,enabled}, /sys/class/graphics/fb*/name, boot_vga, /sys/kernel/boot_params/data; for
// outputs that nvidia-drm does not show (modeset=0), uses of nvidia_modeset in /proc/modules. Reference: drm-kms(7);
// aikitoria/open-gpu-kernel-modules PR 36, tinygrad/open-gpu-kernel-modules PR 49.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/probe.hpp"
#include "base/units.hpp"
#include "machine/hardware/bar1.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/modules/loaded_modules.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kDrm = "/sys/class/drm/";
constexpr std::string_view kFramebuffers = "/sys/class/graphics/";
constexpr std::string_view kBootParameters = "/sys/kernel/boot_params/data";
constexpr std::uint32_t k3dController = 0x0302;  // has no outputs

/// Connector of a GPU, in the kernel's words.
struct Output {
  std::string name;     ///< "card0-DP-1"
  std::string status;   ///< "connected", "disconnected", "unknown"
  std::string enabled;  ///< "enabled", "disabled"

  bool driven() const { return enabled == "enabled" && status != "disconnected"; }
  bool idle() const { return status == "connected" && !driven(); }
};

struct Gpu {
  std::string address;
  bool needed = false;      ///< P2P uses its static BAR1
  bool no_outputs = false;  ///< from its class
  bool boot_vga = false;
  std::string driver;  ///< empty: none
  std::vector<Output> outputs;
  std::string console;  ///< name of the firmware's framebuffer on it: "EFI VGA"
};

std::string last_part(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

/// Outputs by the address of their GPU.
Result<std::multimap<std::string, Output>> outputs(const Host& host) {
  std::multimap<std::string, Output> found;
  const auto names = host.files().list(kDrm);
  if (!names && names.error().code != ErrorCode::not_found) return tl::unexpected(names.error());
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const std::size_t dash = name.find('-');
    if (!name.starts_with("card") || dash == std::string::npos) continue;
    const std::string connector = std::string(kDrm) + name;
    const auto device = host.files().read_link(std::string(kDrm) + name.substr(0, dash) + "/device");
    const auto status = host.line(connector + "/status");
    if (!device || (!status && status.error().code == ErrorCode::not_found)) continue;  // a dock that was removed
    Output output{name, {}, {}};
    output.status = TRY(Result<std::string>(status));
    output.enabled = TRY(host.line(connector + "/enabled"));
    found.emplace(last_part(*device), std::move(output));
  }
  return found;
}

/// Firmware's framebuffer as the boot loader handed it over. nvidia looks for it there, also after nvidia-drm has taken
/// over its device. Layout: struct screen_info in include/uapi/linux/screen_info.h of Linux.
struct BootFramebuffer {
  std::uint64_t address = 0;  ///< 0: there is none
  std::string name;           ///< "UEFI", "VESA"

  /// Addresses by which nvidia knows a console of its own: BAR1 begins with that of UEFI, VESA's is 16 MiB into BAR3.
  bool is_of(const Host& host, const Bar1& bar) const {
    const auto bars = pci_bars(host, *bar.gpu).value_or(std::vector<PciRange>());
    const auto bar3 = static_cast<std::size_t>(nvidia_bar1(*bar.gpu)) + 2;
    return address != 0 && ((bar.range && bar.range->length > 0 && address == bar.range->first) ||
                            (bars.size() > bar3 && bars[bar3].length > 0 && address == bars[bar3].first + 16 * kMiB));
  }
};

BootFramebuffer boot_framebuffer(const Host& host) {
  constexpr std::size_t kType = 0x0f, kBase = 0x18, kCapabilities = 0x36, kUpperBase = 0x3a, kEnd = 0x3e;
  constexpr unsigned kText = 1, kUefi = 0x70, kHas64Bits = 1U << 1;
  const std::string data = host.files().read(kBootParameters, 1U << 16).value_or("");
  if (data.size() < kEnd) return {};
  const auto byte = [&](std::size_t at) { return std::uint64_t{static_cast<unsigned char>(data[at])}; };
  const auto dword = [&](std::size_t at) {
    return byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | byte(at + 3) << 24;
  };
  if (byte(kType) <= kText) return {};
  const std::uint64_t upper = (dword(kCapabilities) & kHas64Bits) != 0 ? dword(kUpperBase) << 32 : 0;
  return {dword(kBase) | upper, byte(kType) == kUefi ? "UEFI" : "VESA"};
}

/// Name of the firmware's framebuffer, which belongs to no PCI function's driver; empty if there is none.
std::string firmware_console(const Host& host, const std::vector<PciDevice>& devices) {
  for (const std::string& name : host.names(kFramebuffers)) {
    if (!name.starts_with("fb") || name == "fbcon") continue;
    const std::string device =
        last_part(host.files().read_link(std::string(kFramebuffers) + name + "/device").value_or(""));
    if (std::ranges::find(devices, device, &PciDevice::address) != devices.end()) continue;
    return host.line(std::string(kFramebuffers) + name + "/name").value_or("");
  }
  return {};
}

Result<std::vector<Gpu>> look_at_gpus(const Host& host, const std::vector<PciDevice>& devices) {
  const auto shown = TRY(outputs(host));
  const std::string console = firmware_console(host, devices);
  const BootFramebuffer framebuffer = boot_framebuffer(host);
  std::vector<Gpu> gpus;
  for (const Bar1& bar : TRY(bar1_of_gpus(host, devices))) {
    Gpu gpu;
    gpu.address = bar.gpu->address;
    gpu.needed = bar.carries_p2p();
    gpu.no_outputs = bar.gpu->class_code >> 8 == k3dController;
    const std::string directory = "/sys/bus/pci/devices/" + gpu.address;
    gpu.boot_vga = host.line(directory + "/boot_vga").value_or("") == "1";
    gpu.driver = pci_driver(host, gpu.address);
    const auto [first, last] = shown.equal_range(gpu.address);
    for (auto output = first; output != last; ++output) gpu.outputs.push_back(output->second);
    if (gpu.boot_vga) gpu.console = console;
    if (gpu.console.empty() && framebuffer.is_of(host, bar)) gpu.console = framebuffer.name;
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

/// True if a client other than nvidia_drm has the display engine open, like a display server without nvidia-drm.
Result<bool> modeset_in_use(const Host& host) {
  const auto modules = loaded_modules(host);
  if (!modules && modules.error().code == ErrorCode::not_found) return false;
  if (!modules) return tl::unexpected(modules.error());
  const auto found = std::ranges::find(*modules, "nvidia_modeset", &LoadedModule::name);
  return found != modules->end() && found->other_references().value_or(1) > 0;
}

nlohmann::json facts_of(const Gpu& gpu) {
  nlohmann::json shown = nlohmann::json::array();
  for (const Output& output : gpu.outputs)
    shown.push_back({{"name", output.name}, {"status", output.status}, {"enabled", output.enabled}});
  return {{"address", gpu.address},
          {"needed", gpu.needed},
          {"boot_vga", gpu.boot_vga},
          {"outputs", std::move(shown)},
          {"firmware_console", gpu.console.empty() ? nlohmann::json(nullptr) : nlohmann::json(gpu.console)}};
}

struct Words {
  std::vector<std::string> taken;   ///< needed GPUs with a display or the console, and its name
  std::vector<std::string> facts;   ///< worth reporting, no fault
  std::vector<std::string> hidden;  ///< needed GPUs with invisible outputs
};

Words words_of(const std::vector<Gpu>& gpus) {
  Words words;
  for (const Gpu& gpu : gpus) {
    std::vector<std::string> by;
    for (const Output& output : gpu.outputs) {
      if (output.driven()) by.push_back("drives " + output.name);
      if (output.idle()) words.facts.push_back(fmt::format("{} is connected and off", output.name));
    }
    if (!gpu.console.empty()) by.push_back(fmt::format("carries the firmware's console ({})", gpu.console));
    if (!by.empty())
      (gpu.needed ? words.taken : words.facts).push_back(fmt::format("{} {}", gpu.address, fmt::join(by, " and ")));
    if (by.empty() && gpu.boot_vga) words.facts.push_back(fmt::format("{} is the boot VGA device", gpu.address));
    if (gpu.needed && gpu.outputs.empty() && !gpu.no_outputs && gpu.driver == "nvidia")
      words.hidden.push_back(gpu.address);
  }
  return words;
}

void judge(Finding& finding, const std::vector<Gpu>& gpus, bool display_engine_in_use) {
  const Words words = words_of(gpus);
  if (!words.taken.empty()) {
    finding.verdict = Verdict::fail;
    finding.summary = fmt::format("{}: P2P with it may copy garbage", fmt::join(words.taken, "; "));
    finding.next =
        "Plug the monitor into the board's own graphics, make that the primary display in the firmware setup (BIOS), "
        "and "
        "power off and on.";
    return;
  }
  if (!words.hidden.empty() && display_engine_in_use) {
    finding.summary =
        fmt::format("nvidia-drm shows no outputs of {}, and something uses nvidia_modeset: a display server?",
                    fmt::join(words.hidden, ", "));
    finding.next = "systemctl stop display-manager, or set \"options nvidia-drm modeset=1\" so that outputs are shown.";
    return;
  }
  finding.verdict = Verdict::pass;
  finding.summary = fmt::format("no display is connected to a GPU that does P2P{}{}", words.facts.empty() ? "" : "; ",
                                fmt::join(words.facts, "; "));
}

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  const std::vector<Gpu> gpus = TRY(look_at_gpus(host, devices));
  Finding finding;
  finding.facts = {{"gpus", nlohmann::json::array()}};
  for (const Gpu& gpu : gpus) {
    finding.facts["gpus"].push_back(facts_of(gpu));
    for (const Output& output : gpu.outputs)
      finding.evidence.push_back({std::string(kDrm) + output.name, output.status + ", " + output.enabled});
    if (gpu.outputs.empty()) {
      finding.evidence.push_back({std::string(kDrm), fmt::format("{} of driver {} shows no outputs{}", gpu.address,
                                                                 gpu.driver.empty() ? "none" : gpu.driver,
                                                                 gpu.no_outputs ? "; its class has none" : "")});
    }
    if (gpu.boot_vga) finding.evidence.push_back({"/sys/bus/pci/devices/" + gpu.address + "/boot_vga", "1"});
    if (!gpu.console.empty())
      finding.evidence.push_back({fmt::format("{}fb*/name, {}", kFramebuffers, kBootParameters), gpu.console});
  }
  if (gpus.empty()) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = "no NVIDIA GPU";
    return finding;
  }
  judge(finding, gpus, TRY(modeset_in_use(host)));
  return finding;
}

}  // namespace

extern const Probe kDisplayGpus;
const Probe kDisplayGpus = {
    .id = "display-gpus",
    .asserts = "no GPU that does P2P drives a display or carries the firmware's console",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
