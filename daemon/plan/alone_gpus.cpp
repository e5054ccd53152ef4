// SPDX-License-Identifier: MIT
#include "plan/alone_gpus.hpp"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "machine/hardware/peer_groups.hpp"
#include "plan/resolve.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kFewest = 3;  // without one of two GPUs there is no pair

Finding finding_of(const Step& step, const Registry& registry, const Host& host) {
  return registry.probe(step.check)->check(host, step.with).value_or(Finding{});
}

/// Gates that P2P does not need as long as an alternative may apply that does without them.
std::set<std::string> spared_gates(const Plan& plan, const Registry& registry, const Host& host) {
  std::set<std::string> spared;
  for (const Step& step : plan.steps) {
    if (step.spares.empty() || !step.is_gate()) continue;
    const Verdict verdict = finding_of(step, registry, host).verdict;
    if (verdict == Verdict::pass || verdict == Verdict::fail) spared.insert(step.spares.begin(), step.spares.end());
  }
  return spared;
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

std::map<std::string, std::string> alone_gpus(const Plan& plan, const Registry& registry, const Host& host) {
  const auto seen = host.snapshot(std::map<std::string, std::string>());
  const auto devices = pci_devices(*seen);
  if (plan.gpus.all || !devices || nvidia_gpus(*devices).size() < kFewest) return {};
  const Plan resolved = resolve(plan, registry, *seen);  // a gate may depend on the driver to come
  const std::set<std::string> spared = spared_gates(resolved, registry, *seen);
  std::map<std::string, std::string> alone;
  for (const Step& step : resolved.steps) {
    const bool asked = step.kind == StepKind::gate && step.fix.empty() && registry.probe(step.check)->judges_each_gpu;
    if (asked && !spared.contains(step.id)) alone.merge(finding_of(step, registry, *seen).in_the_way);
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
