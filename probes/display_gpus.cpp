// SPDX-License-Identifier: MIT
// display-gpus: no GeForce GPU drives a display or carries the firmware's console.
// Both use the start of BAR1 for a framebuffer. The driver then refuses static BAR1, which maps VRAM for P2P, or moves
// it off its 512 MiB alignment: pairs with that GPU copy garbage while the driver calls them OK. Drivers from 580 on
// keep the alignment beside a console, if BAR1 has room. A card without an enabled output passes, even as the boot VGA
// device or with a monitor plugged in that is off: those are facts. Reads /sys/class/drm/card*-*/{status,enabled},
// /sys/class/graphics/fb*/name, boot_vga, /sys/kernel/boot_params/data; for outputs that nvidia-drm does not show
// (modeset=0), uses of nvidia_modeset in /proc/modules. Reference: drm-kms(7); aikitoria/open-gpu-kernel-modules PR 36,
// tinygrad/open-gpu-kernel-modules PR 49.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/probe.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/driver_options.hpp"
#include "machine/driver/registry_keys.hpp"
#include "machine/hardware/bar1.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/modules/loaded_modules.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kDrm = "/sys/class/drm/";
constexpr std::uint32_t k3dController = 0x0302;  // has no outputs
constexpr int kAligned = 580;                    // driver that aligns BAR1's mapping beside a console

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
  std::string console;    ///< name of the firmware's framebuffer on it: "EFI VGA"
  bool has_room = false;  ///< the driver maps all of its VRAM beside that
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

/// Major version of the driver that is wanted, else of the loaded one; 0: not known.
int driver_major(const Host& host, const Parameters& parameters) {
  std::string version = host.line(kLoadedDriver).value_or("");
  if (const auto all = catalogue(host); all && parameters.contains("entry"))
    if (const auto entry = staged_entry(*all, parameters)) version = entry->base_version;
  return major_of(version);
}

Result<std::vector<Gpu>> look_at_gpus(const Host& host, const std::vector<PciDevice>& devices, int driver) {
  const auto shown = TRY(outputs(host));
  std::vector<Gpu> gpus;
  for (const Bar1& bar : bar1_of_gpus(host, devices)) {
    Gpu gpu;
    gpu.address = bar.gpu->address;
    gpu.needed = bar.carries_p2p();
    gpu.no_outputs = bar.gpu->class_code >> 8 == k3dController;
    const std::string directory = sysfs_path(gpu.address);
    gpu.boot_vga = host.line(directory + "/boot_vga").value_or("") == "1";
    gpu.driver = pci_driver(host, gpu.address);
    const auto [first, last] = shown.equal_range(gpu.address);
    for (auto output = first; output != last; ++output) gpu.outputs.push_back(output->second);
    gpu.console = firmware_console(host, bar);
    gpu.has_room = driver >= kAligned && static_bar1(driver, static_bar1_sizes(host, bar)) != StaticBar1::impossible;
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

struct Words {
  std::map<std::string, std::string> taken;  ///< needed GPUs with a display or the console, by address: "drives ..."
  std::vector<std::string> facts;            ///< worth reporting, no fault
  std::vector<std::string> hidden;           ///< needed GPUs with invisible outputs
};

Words words_of(const std::vector<Gpu>& gpus) {
  Words words;
  for (const Gpu& gpu : gpus) {
    std::vector<std::string> by;
    for (const Output& output : gpu.outputs) {
      if (output.driven()) by.push_back("drives " + output.name);
      if (output.idle()) words.facts.push_back(fmt::format("{} is connected and off", output.name));
    }
    const bool harmless = by.empty() && gpu.has_room;
    if (!gpu.console.empty())
      by.push_back(fmt::format("carries the firmware's console ({}){}", gpu.console,
                               harmless ? ", beside which BAR1 has room in this driver" : ""));
    if (!by.empty() && harmless)
      words.facts.push_back(fmt::format("{} {}", gpu.address, by.front()));
    else if (!by.empty() && gpu.needed)
      words.taken[gpu.address] = fmt::format("{}", fmt::join(by, " and "));
    else if (!by.empty())
      words.facts.push_back(fmt::format("{} {}", gpu.address, fmt::join(by, " and ")));
    if (by.empty() && gpu.boot_vga) words.facts.push_back(fmt::format("{} is the boot VGA device", gpu.address));
    if (gpu.needed && gpu.outputs.empty() && !gpu.no_outputs && gpu.driver == "nvidia")
      words.hidden.push_back(gpu.address);
  }
  return words;
}

void judge(Finding& finding, const std::vector<Gpu>& gpus, bool display_engine_in_use) {
  const Words words = words_of(gpus);
  if (!words.taken.empty()) {
    std::vector<std::string> taken;
    for (const auto& [address, by] : words.taken) {
      taken.push_back(fmt::format("{} {}", address, by));
      finding.in_the_way[address] = fmt::format(
          "it {}: P2P with it may copy garbage, whatever the driver says. Without that it would take part.", by);
    }
    finding.set(Verdict::fail, fmt::format("{}: P2P with it may copy garbage", fmt::join(taken, "; ")),
                "Plug the monitor into the board's own graphics, make that the primary display in the firmware setup "
                "(BIOS), and power off and on.");
  } else if (!words.hidden.empty() && display_engine_in_use) {
    finding.set(Verdict::unknown,
                fmt::format("nvidia-drm shows no outputs of {}, and something uses nvidia_modeset: a display server?",
                            fmt::join(words.hidden, ", ")),
                "systemctl stop display-manager, or set \"options nvidia-drm modeset=1\" so that outputs are shown.");
  } else {
    finding.set(Verdict::pass, fmt::format("no display is connected to a GPU that does P2P{}{}",
                                           words.facts.empty() ? "" : "; ", fmt::join(words.facts, "; ")));
  }
}

constexpr Parameter kParameters[] = {kNextEntryParameter};

Result<Finding> check(const Host& host, const Parameters& parameters) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  const std::vector<Gpu> gpus = TRY(look_at_gpus(host, devices, driver_major(host, parameters)));
  if (gpus.empty()) return not_applicable("no NVIDIA GPU");
  Finding finding;
  for (const Gpu& gpu : gpus) {
    for (const Output& output : gpu.outputs)
      finding.saw(std::string(kDrm) + output.name, output.status + ", " + output.enabled);
    if (gpu.outputs.empty())
      finding.saw(
          kDrm, fmt::format("{} of driver {} shows no outputs{}", gpu.address, gpu.driver.empty() ? "none" : gpu.driver,
                            gpu.no_outputs ? "; its class has none" : ""));
    if (gpu.boot_vga) finding.saw(sysfs_path(gpu.address, "boot_vga"), "1");
    if (!gpu.console.empty())
      finding.saw(fmt::format("/sys/class/graphics/fb*/name, {}", kBootParameters), gpu.console);
  }
  judge(finding, gpus, TRY(modeset_in_use(host)));
  return finding;
}

}  // namespace

extern const Probe kDisplayGpus = {
    .id = "display-gpus",
    .asserts = "no GPU that does P2P drives a display or carries the firmware's console",
    .parameters = kParameters,
    .check = check,
    .judges_each_gpu = true,
    .skip_on_image = true,
};

}  // namespace p2pd
