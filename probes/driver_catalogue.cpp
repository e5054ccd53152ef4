// SPDX-License-Identifier: MIT
// driver-catalogue: a driver build of the catalogue fits these GPUs and every bootable kernel, or none is needed.
// NVIDIA's own driver refuses P2P between GeForce cards; a patched build must fit generation, kernel, the kernel's
// headers and compiler, and no build helps if BAR1 cannot cover the VRAM. machine/driver/solver.hpp chooses it.
// Reads configuration space, sysfs, /boot, /proc/version, os-release, kernel headers, /etc/p2pd/catalogue.d; asks
// nvidia-smi for the VRAM of GeForce cards, because converted cards have more than their PCI id implies; asks apt-cache
// for the offered version of packages that would be purged.
// Reference: NVIDIA open-gpu-kernel-modules README.md (kernels, GPUs); config/catalogue.yaml names its sources.
#include <fmt/format.h>

#include "base/probe.hpp"
#include "machine/driver/driver_update.hpp"
#include "machine/driver/machine.hpp"
#include "machine/driver/solver.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/dpkg_status.hpp"
#include "machine/packages/driver_packages.hpp"

namespace p2pd {
namespace {

nlohmann::json facts_of(const Machine& machine, const Choice& choice) {
  nlohmann::json facts = {{"entry", nullptr},
                          {"cause", choice.cause},
                          {"notes", choice.notes},
                          {"gpus", nlohmann::json::array()},
                          {"kernels", nlohmann::json::array()}};
  if (choice.entry != nullptr)
    facts.update({{"entry", choice.entry->id},
                  {"keeps_packages", choice.keeps_packages},
                  {"evidence", choice.evidence},
                  {"reported", choice.reported}});
  for (const Machine::Gpu& gpu : machine.gpus)
    facts["gpus"].push_back(
        {{"address", gpu.address}, {"architecture", or_null(gpu.model ? gpu.model->architecture : "")}});
  for (const Machine::Target& kernel : machine.kernels)
    facts["kernels"].push_back({{"release", kernel.release}, {"compat_rules", kernel.rules}});
  facts["entries"] = nlohmann::json::object();  // "p2pctl catalogue" has the reasons
  for (const EntryVerdict& row : choice.table)
    if (row.cause != "other-packages") facts["entries"][row.entry->id] = to_string(row.fit);
  return facts;
}

constexpr Parameter kParameters[] = {
    {"purge", Parameter::Type::boolean, false,
     "true: packages may be purged although the distribution offers a version with which they could stay"},
};

/// True if packages that could stay go.
bool goes(const Host& host, const Machine& machine, const Choice& choice) {
  return !choice.already_p2p && !choice.keeps_packages && machine.packages.can_stay() && !is_image(host);
}

/// Version that the distribution offers, with a build for which the packages could stay; they cannot stay as they are.
Result<DriverUpdate> upgrade_instead(const Host& host, const Machine& machine, const Choice& choice) {
  if (!goes(host, machine, choice)) return DriverUpdate();
  auto update = driver_update(host);
  if (!update && update.error().code == ErrorCode::not_found) return DriverUpdate();  // there is no apt
  return update;
}

/// A package of the driver that apt may not upgrade (apt-mark hold); empty: none.
std::string held_package(const Host& host) {
  for (const DpkgPackage& package : dpkg_packages(host).value_or(std::vector<DpkgPackage>()))
    if (package.present() && package.held() && driver_role(package.name) != DriverRole::none) return package.name;
  return {};
}

/// Next step before an upgrade.
std::string upgrade_step(const std::string& held) {
  if (held.empty())
    return "Update with \"sudo p2pctl apply driver-update\"; \"p2pctl cancel\" ends a run that is open.";
  return fmt::format(
      "{} is on hold: \"apt-mark unhold\" what may change, then \"sudo p2pctl apply driver-update\"; \"purge: true\" "
      "for this step of the plan replaces the packages.",
      held);
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  const Catalogue all = TRY(catalogue(host));
  const Machine machine = TRY(machine_of(host, all));
  const Choice choice = choose_driver(all, machine);
  Finding finding;
  finding.facts = facts_of(machine, choice);
  finding.saw(pci_source(host), fmt::format("{} NVIDIA GPUs", machine.gpus.size()));
  for (const Machine::Target& kernel : machine.kernels)
    finding.saw(kernel.running ? "/proc/sys/kernel/osrelease" : "/boot/vmlinuz-" + kernel.release, kernel.release);
  if (!machine.driver_version.empty()) finding.saw(kLoadedDriver, machine.driver_version);
  DriverUpdate update;
  if (const std::string why = stale_lists(host); !why.empty() && host.live() && goes(host, machine, choice))
    finding.facts["notes"].push_back(why + ": after \"apt-get update\" the packages may be able to stay");
  if (!parameters.value("purge", false)) update = TRY(upgrade_instead(host, machine, choice));
  if (!update.build.empty())
    finding.set(Verdict::fail,
                fmt::format("the packages of {} can stay once they are upgraded to {}, for which {} is made",
                            update.installed, update.offered, update.build),
                upgrade_step(held_package(host)));
  else if (choice.entry == nullptr && !choice.already_p2p)
    finding.set(machine.gpus.empty() ? Verdict::not_applicable : Verdict::fail, choice.summary, choice.next);
  else if (choice.questions.empty())
    finding.set(Verdict::pass, choice.summary, choice.next);
  else
    finding.set(Verdict::unknown, fmt::format("{}, as far as is known: {}", choice.summary, choice.questions.front()),
                "Run p2pctl doctor as root; install kernel headers where they are missing.");
  return finding;
}

}  // namespace

extern const Probe kDriverCatalogue = {
    .id = "driver-catalogue",
    .asserts = "an allowed driver build fits the GPUs and every bootable kernel, or the driver gives P2P already",
    .parameters = kParameters,
    .check = check,
    .asks_driver = true,
};

}  // namespace p2pd
