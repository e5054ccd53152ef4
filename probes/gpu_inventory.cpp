// SPDX-License-Identifier: MIT
// gpu-inventory: enough NVIDIA GPUs are on the PCI bus, and every one of them answers.
// P2P is traffic between two GPUs; a card that fell off the bus (configuration space all ones, "header type 7f")
// hangs drivers and benchmarks, so it fails separately. The card's audio function is not a GPU.
// Reads configuration space, sysfs `resource` and `driver`; names and VRAM come from config/gpus.yaml by PCI id,
// and an unlisted GPU is "unknown", never guessed.
// Reference: PCI Express Base Specification, 7.8.6 (Resizable BAR); drivers/pci/pci-sysfs.c.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/probe.hpp"
#include "machine/hardware/gpus.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/hardware/peer_groups.hpp"

namespace p2pd {
namespace {

constexpr std::int64_t kAtLeast = 2;

constexpr Parameter kParameters[] = {
    {"at_least", Parameter::Type::integer, false, "minimum number of NVIDIA GPUs; 2 by default"},
};

struct Gpu {
  const PciDevice* device;
  std::optional<GpuModel> model;            ///< nothing: an unknown chip
  std::string name;                         ///< from the driver if the model is not listed
  std::optional<std::uint64_t> bar1_bytes;  ///< nothing: unreadable
  std::string driver;                       ///< empty: none is bound
};

Gpu look_at(const Host& host, const PciDevice& device) {
  Gpu gpu{&device, model_of(device.id()), {}, {}, pci_driver(host, device.address)};
  if (!gpu.model || gpu.model->segment.empty()) gpu.name = told_of_gpu(host, device.address, "Model");
  if (gpu.name.empty()) gpu.name = gpu.model ? gpu.model->name : "unknown " + device.id();
  if (const auto bytes = pci_bar_bytes(host, device, nvidia_bar1(device))) gpu.bar1_bytes = *bytes;
  return gpu;
}

nlohmann::json facts_of(const Gpu& gpu) {
  const std::string id = gpu.device->id();
  return {{"address", gpu.device->address},
          {"id", id},
          {"name", or_null(gpu.name.find(id) == std::string::npos ? gpu.name : "")},
          {"architecture", or_null(gpu.model ? gpu.model->architecture : "")},
          {"vram_mib", or_null(gpu.model ? gpu.model->vram_mib : std::nullopt)},
          {"bar1_bytes", or_null(gpu.bar1_bytes)},
          {"driver", or_null(gpu.driver)},
          {"lost", gpu.device->is_lost()}};
}

/// "2 x NVIDIA GeForce RTX 4090, 1 x unknown 10de:abcd"
std::string listing(const std::vector<Gpu>& gpus) {
  std::map<std::string, int> counts;
  for (const Gpu& gpu : gpus) ++counts[gpu.name];
  std::vector<std::string> kinds;
  for (const auto& [name, count] : counts) kinds.push_back(fmt::format("{} x {}", count, name));
  return fmt::format("{}", fmt::join(kinds, ", "));
}

void judge(Finding& finding, const std::vector<Gpu>& gpus, std::int64_t at_least) {
  std::vector<std::string> lost;
  for (const Gpu& gpu : gpus)
    if (gpu.device->is_lost()) lost.push_back(gpu.device->address);
  if (gpus.empty())
    finding.set(Verdict::fail, "no NVIDIA GPU on the PCI bus",
                "Check that the cards are seated and powered; in a virtual machine, pass the GPUs through to it.");
  else if (!lost.empty())
    finding.set(Verdict::fail, fmt::format("{}; fell off the bus: {}", listing(gpus), fmt::join(lost, ", ")),
                "Power the machine off and on (a reboot is often not enough), then check that card's power and riser.");
  else if (std::ssize(gpus) < at_least)
    finding.set(Verdict::fail, fmt::format("{}; at least {} NVIDIA GPUs are needed", listing(gpus), at_least),
                "Add a card; if one is installed and not listed here, check its seat, its power and the slot's "
                "firmware setting.");
  else
    finding.set(Verdict::pass, listing(gpus));
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  std::vector<Gpu> gpus;
  std::vector<const PciDevice*> left_out;
  Finding finding;
  finding.facts["gpus"] = nlohmann::json::array();
  finding.saw(pci_source(host), fmt::format("{} functions", devices.size()));
  for (const PciDevice& device : devices) {
    if (!device.is_nvidia_gpu()) continue;
    const std::string source = sysfs_path(device.address);
    if (!device.left_out.empty()) {
      left_out.push_back(&device);
      finding.saw(source, fmt::format("{}, left out: {}", device.id(), device.left_out));
      continue;
    }
    const Gpu& gpu = gpus.emplace_back(look_at(host, device));
    finding.facts["gpus"].push_back(facts_of(gpu));
    finding.saw(source, fmt::format("{}, BAR1 {} bytes, driver {}", device.id(), or_null(gpu.bar1_bytes).dump(),
                                    gpu.driver.empty() ? "none" : gpu.driver));
  }
  judge(finding, gpus, parameters.value("at_least", kAtLeast));
  for (const PciDevice* device : left_out) {
    finding.facts["left_out"].push_back({{"address", device->address}, {"why", device->left_out}});
    finding.summary += fmt::format("; without {}: {}", device->address, device->left_out);
  }
  return finding;
}

}  // namespace

extern const Probe kGpuInventory = {
    .id = "gpu-inventory",
    .asserts = "at least `at_least` NVIDIA GPUs are on the PCI bus and answer",
    .parameters = kParameters,
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
