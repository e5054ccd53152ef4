// SPDX-License-Identifier: MIT
// driver-catalogue: a driver build of the catalogue fits these GPUs and every bootable kernel, or none is needed.
// NVIDIA's own driver refuses P2P between GeForce cards; a patched build must fit generation, kernel, the kernel's
// headers and compiler, and no build helps where BAR1 cannot cover the VRAM. base/solver.hpp decides; this gathers.
// Reads configuration space, sysfs, /boot, /proc/version, os-release, kernel headers, /etc/p2pd/catalogue.d; asks
// nvidia-smi for the VRAM of GeForce cards, because converted cards carry more than their PCI id tells.
// Reference: NVIDIA open-gpu-kernel-modules README.md (kernels, GPUs); config/catalogue.yaml names its sources.
#include <fmt/format.h>

#include <algorithm>

#include "base/bar1.hpp"
#include "base/probe.hpp"
#include "base/solver.hpp"
#include "base/vram.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kDriver = "/sys/module/nvidia/version";

std::optional<std::uint64_t> length_of(const Bar1& bar1) {
  return bar1.range ? std::optional(bar1.range->length) : std::nullopt;
}

/// The most that BAR1 can become; nothing where that is not readable.
std::optional<std::uint64_t> bar1_most(const Bar1& bar1) {
  if (!bar1.gpu->extended_readable || bar1.gpu->is_lost()) return std::nullopt;
  if (!bar1.resizable) return length_of(bar1);  // it stays what it is
  if (bar1.resizable->supported_bytes.empty()) return std::nullopt;
  return std::max(bar1.resizable->bytes, bar1.resizable->supported_bytes.back());
}

Result<std::vector<Machine::Gpu>> gpus_of(const Host& host) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  std::vector<Machine::Gpu> gpus;
  for (const Bar1& bar1 : TRY(bar1_of_gpus(host, devices)))
    gpus.push_back({bar1.gpu->address, fmt::format("{:04x}:{:04x}", bar1.gpu->vendor_id, bar1.gpu->device_id),
                    bar1.model, std::nullopt, length_of(bar1), bar1_most(bar1)});
  if (std::ranges::none_of(gpus, [](const auto& gpu) { return gpu.model && gpu.model->segment == "GeForce"; }))
    return gpus;
  const auto told = told_vram_bytes(host);
  for (Machine::Gpu& gpu : gpus)
    if (const auto vram = told.find(gpu.address); vram != told.end()) gpu.vram_bytes = vram->second;
  return gpus;
}

Result<Machine> machine_of(const Host& host, const Catalogue& all) {
  Machine machine;
  machine.gpus = TRY(gpus_of(host));
  machine.driver_version = host.line(kDriver).value_or("");
  for (BuildTarget& kernel : TRY(build_targets(host))) {
    Machine::Target bootable{std::move(kernel), {}};
    for (const auto& [name, rule] : all.compat_rules) {
      const auto header = kernel_header(host, bootable, rule.header);
      if (header) bootable.rules[name] = header->find(rule.pattern) != std::string::npos;
    }
    machine.kernels.push_back(std::move(bootable));
  }
  machine.gcc_installed = installed_gcc(host).value_or(std::vector<int>());
  machine.distribution = distribution(host);
  return machine;
}

nlohmann::json or_null(const auto& value) { return value ? nlohmann::json(*value) : nlohmann::json(nullptr); }

nlohmann::json facts_of(const Machine& machine, const Choice& choice) {
  nlohmann::json facts = {
      {"entry", nullptr},
      {"cause", choice.cause},
      {"already_p2p", choice.already_p2p},
      {"questions", choice.questions},
      {"notes", choice.notes},
      {"driver_version", machine.driver_version},
      {"distribution", {{"id", machine.distribution.id}, {"version", machine.distribution.version}}},
      {"gcc_installed", machine.gcc_installed}};
  if (choice.entry != nullptr) facts["entry"] = choice.entry->id;
  for (const char* key : {"gpus", "kernels", "entries"}) facts[key] = nlohmann::json::array();
  for (const Machine::Gpu& gpu : machine.gpus)
    facts["gpus"].push_back({{"address", gpu.address},
                             {"id", gpu.id},
                             {"architecture", gpu.model ? nlohmann::json(gpu.model->architecture) : nlohmann::json()},
                             {"vram_told_bytes", or_null(gpu.vram_bytes)},
                             {"bar1_bytes", or_null(gpu.bar1_bytes)},
                             {"bar1_most_bytes", or_null(gpu.bar1_most_bytes)}});
  for (const Machine::Target& kernel : machine.kernels)
    facts["kernels"].push_back(
        {{"release", kernel.release},
         {"running", kernel.running},
         {"compiler", kernel.compiler ? nlohmann::json(kernel.compiler->text()) : nlohmann::json()},
         {"compat_rules", kernel.rules}});
  for (const EntryVerdict& row : choice.table)
    facts["entries"].push_back({{"entry", row.entry},
                                {"fit", to_string(row.fit)},
                                {"reason", row.reason},
                                {"running_kernel_only", row.running_only}});
  return facts;
}

Result<Finding> check(const Host& host, const Parameters&) {
  const Catalogue all = TRY(catalogue(host));
  const Machine machine = TRY(machine_of(host, all));
  const Choice choice = choose_driver(all, machine);
  Finding finding;
  finding.summary = choice.summary;
  finding.next = choice.next;
  finding.facts = facts_of(machine, choice);
  finding.evidence.push_back({pci_source(host), fmt::format("{} NVIDIA GPUs", machine.gpus.size())});
  for (const Machine::Target& kernel : machine.kernels)
    finding.evidence.push_back(
        {kernel.running ? "/proc/sys/kernel/osrelease" : "/boot/vmlinuz-" + kernel.release, kernel.release});
  if (!machine.driver_version.empty()) finding.evidence.push_back({std::string(kDriver), machine.driver_version});
  if (choice.entry == nullptr && !choice.already_p2p) {
    finding.verdict = machine.gpus.empty() ? Verdict::not_applicable : Verdict::fail;
  } else if (choice.questions.empty()) {
    finding.verdict = Verdict::pass;
  } else {
    finding.verdict = Verdict::unknown;
    finding.summary = fmt::format("{}, as far as is known: {}", choice.summary, choice.questions.front());
    finding.next = "Have what is missing in reach (kernel headers installed, run as root), and check again.";
  }
  return finding;
}

}  // namespace

extern const Probe kDriverCatalogue;
const Probe kDriverCatalogue = {
    "driver-catalogue",
    "an enabled driver build fits the GPUs and every bootable kernel, or the driver gives P2P already",
    {},
    nullptr,
    check,
    false};

}  // namespace p2pd
