// SPDX-License-Identifier: MIT
#include "machine/hardware/peer_groups.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <regex>

#include "machine/hardware/gpus.hpp"
#include "machine/hardware/nvidia_procfs.hpp"

namespace p2pd {
namespace {

/// Generation as CUDA counts it; of a chip that is not known its block of ids, whose members are of one generation.
std::string generation_of(const PciDevice& gpu) {
  const auto model = model_of(gpu.id());
  return model ? model->architecture : fmt::format("chip {}", gpu.id().substr(0, 7));
}

bool can_have_peers(const PciDevice& gpu) {
  const auto model = model_of(gpu.id());
  return !model || !is_old_geforce(*model);
}

}  // namespace

bool is_gpu_name(std::string_view word) {
  static const std::regex kForms("([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]|10de:[0-9a-f]{4}|GPU-[0-9a-f-]{36}");
  return std::regex_match(word.begin(), word.end(), kForms);
}

std::string why_left_out(const Host& host, const PciDevice& gpu) {
  if (told_of_gpu(host, gpu.address, "GPU Excluded") == "Yes")
    return "the driver was told to leave it out (NVreg_ExcludedGpus)";
  if (const auto alone = host.alone_gpus().find(gpu.address); alone != host.alone_gpus().end())
    return fmt::format("{}{}", kAlone, alone->second);
  if (host.left_out_gpus().empty()) return {};
  const std::string uuid = told_of_gpu(host, gpu.address, "GPU UUID");
  const bool named = std::ranges::any_of(host.left_out_gpus(), [&](const std::string& word) {
    return word == gpu.id() || (!uuid.empty() && word == uuid) || word == gpu.address || "0000:" + word == gpu.address;
  });
  return named ? "the plan leaves it out" : "";
}

void divide_into_groups(std::vector<PciDevice>& devices) {
  std::map<std::string, int> members;
  for (const PciDevice& gpu : devices)
    if (gpu.takes_part() && can_have_peers(gpu)) ++members[generation_of(gpu)];
  if (std::ranges::none_of(members, [](const auto& group) { return group.second > 1; })) return;
  for (PciDevice& gpu : devices) {
    if (!gpu.takes_part()) continue;
    std::string group = generation_of(gpu);
    if (!can_have_peers(gpu))
      gpu.left_out = fmt::format("{}P2P over PCIe is known from Ampere on, and it is of {}", kAlone, group);
    else if (members[group] < 2)
      gpu.left_out = fmt::format("{}no other GPU that takes part is of {}", kAlone, group);
    else
      gpu.group = std::move(group);
  }
}

std::vector<PeerGroup> peer_groups(const std::vector<PciDevice>& devices) {
  std::vector<PeerGroup> groups;
  for (const PciDevice& gpu : devices) {
    if (!gpu.takes_part() || gpu.group.empty()) continue;
    auto known = std::ranges::find(groups, gpu.group, &PeerGroup::name);
    if (known == groups.end()) known = groups.insert(known, {gpu.group, {}});
    known->gpus.push_back(gpu.address);
  }
  std::ranges::sort(groups, {}, &PeerGroup::name);
  std::ranges::stable_sort(groups, std::greater(), [](const PeerGroup& group) { return group.gpus.size(); });
  return groups;
}

bool may_be_peers(const std::vector<PciDevice>& devices, std::string_view one, std::string_view other) {
  const auto first = std::ranges::find(devices, one, &PciDevice::address);
  const auto second = std::ranges::find(devices, other, &PciDevice::address);
  return first == devices.end() || second == devices.end() || may_be_peers(*first, *second);
}

std::string groups_text(const std::vector<PciDevice>& devices) {
  std::vector<std::string> parts;
  const auto add = [&](const auto& belongs, std::string_view after) {
    std::map<std::string, int> counts;
    for (const PciDevice& gpu : devices)
      if (const auto model = model_of(gpu.id()); gpu.is_nvidia_gpu() && belongs(gpu))
        ++counts[model ? short_name(model->name) : gpu.id()];
    std::vector<std::string> names;
    for (const auto& [name, count] : counts) names.push_back(count == 1 ? name : fmt::format("{} x {}", count, name));
    if (!names.empty()) parts.push_back(fmt::format("{}{}", fmt::join(names, " and "), after));
  };
  for (const PeerGroup& group : peer_groups(devices))
    add([&](const PciDevice& gpu) { return gpu.takes_part() && gpu.group == group.name; }, "");
  add([&](const PciDevice& gpu) { return gpu.takes_part() && gpu.group.empty(); }, "");
  add(is_alone, " alone");
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace p2pd
