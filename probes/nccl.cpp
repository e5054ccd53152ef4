// SPDX-License-Identifier: MIT
// nccl: NCCL uses the proven P2P, by its own choice or by the level in /etc/nccl.conf.
// NCCL stops at PCIe switches (PXB) on most hosts: between GPUs that are farther apart, proven P2P changes nothing
// without NCCL_P2P_LEVEL. Where a proof found P2P across NUMA nodes slower than host memory, the level stays below
// that. NCCL_P2P_DISABLE=1, left over from a time without P2P, makes NCCL do without: a warning. Reads PCI
// configuration space, NUMA nodes, /etc/nccl.conf, the files of the system's environment and the report of the last
// full proof; a user's own environment and ~/.nccl.conf take precedence, and are not read.
// Reference: NCCL, "Environment Variables"; machine/hardware/nccl.cpp.
#include "machine/hardware/nccl.hpp"

#include <fmt/format.h>

#include "base/probe.hpp"

namespace p2pd {
namespace {

/// Reason why NCCL does not use P2P as it should; empty: it does.
std::string lacking(const NcclPlan& plan) {
  const std::string_view level = to_string(plan.need.level);
  if (!plan.contradicting.empty() && !plan.unfit)
    return fmt::format("{} prevent{} NCCL from using proven P2P", plan.contradiction(),
                       plan.contradicting.size() == 1 ? "s" : "");
  if (plan.is_in_force()) return {};
  if (plan.unfit) return "P2P is not fit for NCCL, and p2pd's block in /etc/nccl.conf asks for it";
  if (plan.block.empty()) return "p2pd's block in /etc/nccl.conf is not needed";
  return fmt::format("{}; it needs NCCL_P2P_LEVEL={}", plan.need.why(), level);
}

std::string holding(const NcclPlan& plan) {
  if (plan.unfit) return "P2P is not proven fit for NCCL";
  if (plan.need.level == NcclReach::unknown) return "the paths between the GPUs are not visible: NCCL decides";
  if (plan.need.by_itself) return "NCCL needs no setting for P2P between these GPUs";
  return plan.conf.level->text();
}

Result<Finding> check(const Host& host, const Parameters&) {
  const NcclPlan plan = TRY(nccl_plan(host));
  if (plan.need.pairs == 0) return not_applicable("fewer than two GPUs");
  Finding finding;
  finding.facts = {{"level", to_string(plan.need.level)}, {"by_itself", plan.need.by_itself}, {"fit", !plan.unfit}};
  if (!plan.need.by_itself) finding.saw("paths between GPUs", plan.need.why());
  std::vector<NcclVariable> assigned = plan.environment;
  for (const auto& setting : {plan.conf.disabled, plan.conf.level})
    if (setting) assigned.insert(assigned.begin(), *setting);
  for (const NcclVariable& one : assigned) finding.saw(one.source, fmt::format("{}={}", one.name, one.value));
  if (std::string why = lacking(plan); !why.empty())
    finding.set(Verdict::fail, std::move(why));
  else
    finding.set(plan.unfit ? Verdict::not_applicable : Verdict::pass, holding(plan));
  if (plan.contradicting.empty() || plan.unfit) return finding;
  finding.next = plan.contradicting.size() == 1 ? "Remove that line: p2pd did not add it."
                                                : "Remove those lines: p2pd did not add them.";
  for (const NcclVariable& one : plan.contradicting)
    finding.facts["warnings"].push_back(one.text() +
                                        " prevents NCCL from using proven P2P. Remove that line: p2pd did not add it.");
  return finding;
}

}  // namespace

extern const Probe kNccl = {
    .id = "nccl",
    .asserts = "NCCL uses proven P2P, by its own choice or by /etc/nccl.conf",
    .check = check,
    .asks_driver = true,
    .skip_on_image = true,
};

}  // namespace p2pd
