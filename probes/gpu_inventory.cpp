// SPDX-License-Identifier: MIT
// gpu-inventory: enough NVIDIA GPUs are on the PCI bus, and every one of them answers.
// P2P is traffic between two GPUs; a card that fell off the bus (configuration space all ones, "header type 7f")
// hangs drivers and benchmarks, so it fails separately. The card's audio function is not a GPU.
// Reads configuration space, sysfs `resource` and `driver`; names and VRAM come from config/gpus.yaml by PCI id,
// and an unlisted GPU is "unknown", never guessed.
// Reference: PCI Express Base Specification, 7.8.6 (Resizable BAR); drivers/pci/pci-sysfs.c.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/probe.hpp"
#include "base/units.hpp"
#include "machine/hardware/gpus.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/hardware/peer_groups.hpp"

namespace p2pd {

Result<Finding> gpu_inventory(const Host& host, const Parameters& parameters);

namespace {

constexpr std::int64_t kAtLeast = 2;

constexpr Parameter kParameters[] = {
    {"at_least", Parameter::Type::integer, false, "minimum number of NVIDIA GPUs; 2 by default"},
};

struct Gpu {
  PciDevice device;
  std::string id;                 ///< "10de:2684"
  std::optional<GpuModel> model;  ///< nothing: an unknown chip
  std::string name;               ///< from the driver if the model is not listed
  nlohmann::json bar1_bytes;      ///< null: unreadable
  nlohmann::json driver;          ///< null: none is bound
};

Gpu look_at(const Host& host, PciDevice device, const std::vector<GpuModel>& models) {
  Gpu gpu{std::move(device), {}, std::nullopt, {}, nullptr, nullptr};
  gpu.id = gpu.device.id();
  gpu.model = model_of(models, gpu.id);
  if (!gpu.model || gpu.model->segment.empty()) gpu.name = told_of_gpu(host, gpu.device.address, "Model");
  if (gpu.name.empty()) gpu.name = gpu.model ? gpu.model->name : "unknown " + gpu.id;
  const auto bytes = pci_bar_bytes(host, gpu.device, nvidia_bar1(gpu.device));
  if (bytes) gpu.bar1_bytes = *bytes;
  if (std::string driver = pci_driver(host, gpu.device.address); !driver.empty()) gpu.driver = std::move(driver);
  return gpu;
}

/// null: not readable, except perhaps by root; {"present": false}: the card or its vBIOS has none.
nlohmann::json resizable_bar_facts(const PciDevice& device) {
  if (!device.extended_readable || device.is_lost()) return nullptr;
  const auto bar = resizable_bar(device, nvidia_bar1(device));
  if (!bar) return {{"present", false}};
  nlohmann::json supported = nlohmann::json::array();
  for (const std::uint64_t bytes : bar->supported_bytes) supported.push_back(bytes / kMiB);
  return {{"present", true}, {"current_mib", bar->bytes / kMiB}, {"supported_mib", std::move(supported)}};
}

nlohmann::json facts_of(const Gpu& gpu) {
  nlohmann::json facts = {{"address", gpu.device.address},
                          {"id", gpu.id},
                          {"name", nullptr},
                          {"segment", nullptr},
                          {"architecture", nullptr},
                          {"vram_mib", nullptr},
                          {"class", fmt::format("{:04x}", gpu.device.class_code >> 8)},
                          {"bar1_bytes", gpu.bar1_bytes},
                          {"resizable_bar", resizable_bar_facts(gpu.device)},
                          {"driver", gpu.driver},
                          {"lost", gpu.device.is_lost()}};
  if (gpu.name.find(gpu.id) == std::string::npos) facts["name"] = gpu.name;
  if (!gpu.model) return facts;
  if (!gpu.model->segment.empty()) facts["segment"] = gpu.model->segment;
  facts["architecture"] = gpu.model->architecture;
  if (gpu.model->vram_mib) facts["vram_mib"] = *gpu.model->vram_mib;
  return facts;
}

/// True or false if every model is known, else null.
nlohmann::json same_architecture(const std::vector<Gpu>& gpus) {
  std::set<std::string> architectures;
  for (const Gpu& gpu : gpus) {
    if (!gpu.model) return nullptr;
    architectures.insert(gpu.model->architecture);
  }
  return architectures.size() <= 1;
}

/// "2 x NVIDIA GeForce RTX 4090, 1 x unknown 10de:abcd"
std::string listing(const std::vector<Gpu>& gpus) {
  std::map<std::string, int> counts;
  for (const Gpu& gpu : gpus) ++counts[gpu.name];
  std::string text;
  for (const auto& [name, count] : counts) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, name);
  return text;
}

void judge(Finding& finding, const std::vector<Gpu>& gpus, std::int64_t at_least) {
  std::string lost;
  for (const Gpu& gpu : gpus) {
    if (gpu.device.is_lost()) lost += (lost.empty() ? "" : ", ") + gpu.device.address;
  }
  finding.verdict = Verdict::fail;
  if (gpus.empty()) {
    finding.summary = "no NVIDIA GPU on the PCI bus";
    finding.next = "Check that the cards are seated and powered; in a virtual machine, pass the GPUs through to it.";
  } else if (!lost.empty()) {
    finding.summary = fmt::format("{}; fell off the bus: {}", listing(gpus), lost);
    finding.next =
        "Power the machine off and on (a reboot is often not enough), then check that card's power and riser.";
  } else if (static_cast<std::int64_t>(gpus.size()) < at_least) {
    finding.summary = fmt::format("{}; at least {} NVIDIA GPUs are needed", listing(gpus), at_least);
    finding.next =
        "Add a card; if one is installed and not listed here, check its seat, its power and the slot's firmware "
        "setting.";
  } else {
    finding.verdict = Verdict::pass;
    finding.summary = listing(gpus);
  }
}

}  // namespace

Result<Finding> gpu_inventory(const Host& host, const Parameters& parameters) {
  const std::int64_t at_least = parameters.value("at_least", kAtLeast);
  const std::vector<GpuModel> models = TRY(gpu_models());
  std::vector<PciDevice> devices = TRY(pci_devices(host));
  const std::size_t functions = devices.size();
  std::vector<Gpu> gpus;
  Finding finding;
  finding.evidence.push_back({pci_source(host), fmt::format("{} functions", functions)});
  nlohmann::json listed = nlohmann::json::array();
  nlohmann::json unknown_ids = nlohmann::json::array(), left_out = nlohmann::json::array();
  for (PciDevice& device : devices) {
    if (!device.is_nvidia_gpu()) continue;
    if (!device.left_out.empty()) {
      left_out.push_back({{"address", device.address}, {"id", device.id()}, {"why", device.left_out}});
      finding.evidence.push_back(
          {"/sys/bus/pci/devices/" + device.address, fmt::format("{}, left out: {}", device.id(), device.left_out)});
      continue;
    }
    gpus.push_back(look_at(host, std::move(device), models));
    const Gpu& gpu = gpus.back();
    listed.push_back(facts_of(gpu));
    if (!gpu.model || gpu.model->segment.empty()) unknown_ids.push_back(gpu.id);
    finding.evidence.push_back({"/sys/bus/pci/devices/" + gpu.device.address,
                                fmt::format("{}, BAR1 {} bytes, driver {}", gpu.id, gpu.bar1_bytes.dump(),
                                            gpu.driver.is_null() ? "none" : gpu.driver.get<std::string>())});
  }
  judge(finding, gpus, at_least);
  for (const nlohmann::json& one : left_out)
    finding.summary +=
        fmt::format("; without {}: {}", one["address"].get<std::string>(), one["why"].get<std::string>());
  finding.facts = {{"at_least", at_least},
                   {"count", gpus.size()},
                   {"gpus", std::move(listed)},
                   {"left_out", std::move(left_out)},
                   {"unknown_ids", std::move(unknown_ids)},
                   {"same_architecture", same_architecture(gpus)}};
  return finding;
}

extern const Probe kGpuInventory;
const Probe kGpuInventory = {
    .id = "gpu-inventory",
    .asserts = "at least `at_least` NVIDIA GPUs are on the PCI bus and answer",
    .parameters = kParameters,
    .check = gpu_inventory,
    .skip_on_image = true,
};

}  // namespace p2pd
