// SPDX-License-Identifier: MIT
// driver-catalogue: a driver build of the catalogue fits these GPUs and every bootable kernel, or none is needed.
// NVIDIA's own driver refuses P2P between GeForce cards; a patched build must fit generation, kernel, the kernel's
// headers and compiler, and no build helps if BAR1 cannot cover the VRAM. machine/driver/solver.hpp chooses it.
// Reads configuration space, sysfs, /boot, /proc/version, os-release, kernel headers, /etc/p2pd/catalogue.d; asks
// nvidia-smi for the VRAM of GeForce cards, because converted cards have more than their PCI id implies.
// Reference: NVIDIA open-gpu-kernel-modules README.md (kernels, GPUs); config/catalogue.yaml names its sources.
#include <fmt/format.h>

#include "base/probe.hpp"
#include "machine/driver/machine.hpp"
#include "machine/driver/solver.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {
namespace {

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
  for (const char* key : {"gpus", "kernels"}) facts[key] = nlohmann::json::array();
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
  facts["entries"] = nlohmann::json::object();  // "p2pctl catalogue" has the reasons
  for (const EntryVerdict& row : choice.table) facts["entries"][row.entry] = to_string(row.fit);
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
  if (!machine.driver_version.empty()) finding.evidence.push_back({std::string(kLoadedDriver), machine.driver_version});
  if (choice.entry == nullptr && !choice.already_p2p) {
    finding.verdict = machine.gpus.empty() ? Verdict::not_applicable : Verdict::fail;
  } else if (choice.questions.empty()) {
    finding.verdict = Verdict::pass;
  } else {
    finding.verdict = Verdict::unknown;
    finding.summary = fmt::format("{}, as far as is known: {}", choice.summary, choice.questions.front());
    finding.next = "Run p2pctl doctor as root; install kernel headers where they are missing.";
  }
  return finding;
}

}  // namespace

extern const Probe kDriverCatalogue;
const Probe kDriverCatalogue = {
    .id = "driver-catalogue",
    .asserts = "an allowed driver build fits the GPUs and every bootable kernel, or the driver gives P2P already",
    .check = check,
};

}  // namespace p2pd
