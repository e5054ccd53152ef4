// SPDX-License-Identifier: MIT
#include "plan/resolve.hpp"

#include <algorithm>
#include <functional>
#include <map>

#include "machine/boot/kernel_arguments.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/cdi.hpp"
#include "machine/driver/cuda_toolkit.hpp"
#include "machine/driver/driver_update.hpp"
#include "machine/driver/machine.hpp"
#include "machine/driver/solver.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/hardware/pcie_path.hpp"
#include "machine/hardware/peer_groups.hpp"
#include "machine/modules/module_install.hpp"
#include "plan/assess.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kFewest = 3;  // without one of two GPUs there is no pair

Result<std::string> chosen_entry(const Host& host) {
  const Catalogue all = TRY(catalogue(host));
  const Machine machine = TRY(machine_of(host, all));
  const Choice choice = choose_driver(all, machine);
  if (choice.already_p2p) return std::string(kNoEntry);
  const auto installed = installed_build(host);
  for (std::size_t i = 0; installed && i < choice.table.size();
       ++i) {  // keeps a driver that works, even if a better entry exists
    const CatalogueEntry& entry = all.entries[i];
    const bool apart =
        machine.packages.can_stay() && !keeps_packages(entry, machine);  // the packages were upgraded since
    if (!apart && entry.commit == installed->commit &&
        (installed->release.empty() || entry.base_version == installed->release) &&
        choice.table[i].fit <= EntryVerdict::Fit::untried)
      return entry.id;
  }
  if (choice.by_hand != nullptr && choice.by_hand->base_version == machine.driver_version && has_modules_by_hand(host))
    return choice.by_hand->id;
  return choice.entry == nullptr ? std::string(kChosenEntry) : choice.entry->id;
}

/// Build for the newest packages that the distribution offers; the best build if it offers none.
Result<std::string> offered_entry(const Host& host) {
  const auto update = driver_update(host);
  return update && !update->build.empty() ? update->build : chosen_entry(host);
}

/// "keep" if the installed packages have the version of the step's entry, or will have it once they are updated.
Result<std::string> userspace_for(const Host& host, const std::string& id, bool offered) {
  const Catalogue all = TRY(catalogue(host));
  const auto entry = std::ranges::find(all.entries, id, &CatalogueEntry::id);
  if (entry == all.entries.end()) return std::string(kChosenUserspace);  // no entry is chosen yet
  const auto update = offered ? driver_update(host) : DriverUpdate();
  const bool stays = keeps_packages(*entry, TRY(machine_of(host, all))) || (update && update->build == id);
  return std::string(stays ? kKeepPackages : kRunfile);
}

/// CUDA toolkit for the driver that is chosen, or for the one that stays: all drivers of a branch run the same CUDA.
Result<std::string> chosen_toolkit(const Host& host) {
  const Catalogue all = TRY(catalogue(host));
  const std::string id = TRY(chosen_entry(host));
  auto entry = std::ranges::find(all.entries, id, &CatalogueEntry::id);
  if (entry == all.entries.end()) {
    const auto loaded = nvidia_version(host);
    const std::string version = loaded ? loaded->version : TRY(installed_libcuda(host));
    const std::string branch = version.substr(0, version.find('.') + 1);
    entry = std::ranges::find_if(all.entries, [&](const CatalogueEntry& one) {
      return !branch.empty() && one.base_version.starts_with(branch);
    });
  }
  return toolkit_for(host, entry == all.entries.end() ? "" : entry->cuda);
}

Result<std::string> chosen_acs_argument(const Host& host) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  const auto asked = ports_without_acs_redirect(parse_kernel_line(host.line("/proc/cmdline").value_or("")));
  const std::string argument = acs_argument(acs_ports(host, devices, nvidia_gpus(devices)), asked);
  return argument.empty() ? std::string(kChosenAcsArgument) : argument;
}

/// Open parameter of a plan, and the function that chooses its value.
struct Open {
  const char* parameter;
  std::string_view word;
  Result<std::string> (*choose)(const Host&);
};

/// Values of `parameter`, one or a list, that still are `word`.
std::vector<nlohmann::json*> open_values(Plan& plan, const Open& open) {
  std::vector<nlohmann::json*> values;
  for (Step& step : plan.steps) {
    const auto found = step.with.find(open.parameter);
    if (found == step.with.end()) continue;
    if (*found == open.word) values.push_back(&*found);
    if (found->is_array())
      for (nlohmann::json& value : *found)
        if (value == open.word) values.push_back(&value);
  }
  return values;
}

/// Removes steps that depend on the machine that an image will boot on, by their check or by that of a condition.
Plan of_an_image(Plan plan, const Registry& registry) {
  const auto waits = [&](const Step& step) {
    const Probe* probe = registry.probe(step.check);
    return probe != nullptr && probe->skip_on_image;
  };
  plan.remove_steps([&](const Step& step) {
    return waits(step) || std::ranges::any_of(step.where, [&](const auto& id) { return waits(*plan.step(id)); });
  });
  return plan;
}

/// True if some GPUs can be peers without those that are alone.
bool leaves_peers(std::vector<PciDevice> devices, const std::map<std::string, std::string>& alone) {
  for (PciDevice& gpu : devices) {
    gpu.group.clear();
    if (alone.contains(gpu.address)) gpu.left_out = kAlone;
  }
  divide_into_groups(devices);
  return !peer_groups(devices).empty();
}

}  // namespace

Plan resolve(Plan plan, const Registry& registry, const Host& host) {
  const bool offered = plan.driver == DriverWanted::offered && !is_image(host);
  const Open kOpen[] = {{"entry", kChosenEntry, offered ? offered_entry : chosen_entry},
                        {"arguments", kChosenAcsArgument, chosen_acs_argument},
                        {"version", kChosenCuda, chosen_toolkit}};
  if (is_image(host)) plan = of_an_image(std::move(plan), registry);
  for (const Open& open : kOpen) {
    const std::vector<nlohmann::json*> values = open_values(plan, open);
    if (values.empty()) continue;
    const std::string choice = open.choose(host).value_or(std::string(open.word));
    for (nlohmann::json* value : values) *value = choice;
  }
  std::map<std::string, std::string> userspaces;  // userspace of each entry
  for (Step& step : plan.steps) {
    if (!step.with.is_object() || step.with.value("userspace", "") != kChosenUserspace) continue;
    const auto entry = step.with.value("entry", std::string(kChosenEntry));
    const auto [known, first] = userspaces.try_emplace(entry);
    if (first) known->second = userspace_for(host, entry, offered).value_or(std::string(kChosenUserspace));
    step.with["userspace"] = known->second;
  }
  return plan;
}

std::map<std::string, std::string> alone_gpus(const Plan& plan, const Registry& registry, const Host& host) {
  const auto seen = host.snapshot(std::map<std::string, std::string>());
  const auto devices = pci_devices(*seen);
  if (plan.gpus.all || !devices || nvidia_gpus(*devices).size() < kFewest) return {};
  const Plan resolved = resolve(plan, registry, *seen);  // a gate may depend on the driver to come
  const Check check = [&](const Step& step) { return finding_of(step, registry, *seen); };
  const SparedGates spared = spared_gates(resolved, check);
  std::map<std::string, std::string> alone;
  for (const Step& step : resolved.steps) {
    const bool asked = step.kind == StepKind::gate && step.fix.empty() && registry.probe(step.check)->judges_each_gpu;
    if (asked && !spared.all.contains(step.id)) alone.merge(check(step).in_the_way);
  }
  return leaves_peers(*devices, alone) ? alone : std::map<std::string, std::string>();
}

void take_gpus(Host& host, const Plan& plan) {
  host.leave_out_gpus(plan.gpus.left_out);
  host.require_all_gpus(plan.gpus.all);
  host.set_alone_gpus(plan.gpus.alone.value_or(std::map<std::string, std::string>()));
}

void choose_gpus(Host& host, Plan& plan, const Registry& registry) {
  take_gpus(host, plan);
  if (plan.gpus.alone) return;
  plan.gpus.alone = alone_gpus(plan, registry, host);
  take_gpus(host, plan);
}

}  // namespace p2pd
