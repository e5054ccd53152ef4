// SPDX-License-Identifier: MIT
// options-in-force: the loaded modules nvidia and nvidia-uvm run with the options that modprobe.d gives them.
// Options are read once, when a module is loaded: options configured later have no effect, and a test of P2P tests
// the driver without them.
// Reads modprobe.d as libkmod does, /proc/driver/nvidia/params, /sys/module/nvidia_uvm/parameters.
// Reference: modprobe.d(5); nv-reg.h of NVIDIA's open-gpu-kernel-modules.
#include <fmt/format.h>

#include <algorithm>

#include "base/probe.hpp"
#include "machine/driver/driver_options.hpp"
#include "machine/hardware/nvidia_procfs.hpp"

namespace p2pd {
namespace {

bool same_dwords(const std::string& option, const std::string& left, const std::string& right) {
  const auto parsed = [&](const std::string& text) { return parse_dwords(option, text); };
  Dwords one = parsed(left), other = parsed(right);
  std::ranges::sort(one);
  std::ranges::sort(other);
  return std::ranges::equal(
      one, other, [](const auto& a, const auto& b) { return a.first == b.first && same_value(a.second, b.second); });
}

/// Configured options that the loaded module does not use, with file and line.
std::vector<std::string> not_in_force(const std::map<std::string, ModuleOption>& configured,
                                      const std::map<std::string, std::string>& params, Finding& finding) {
  std::vector<std::string> out;
  for (const auto& [name, option] : configured) {
    const auto running = params.find(name);
    const bool dwords = name.starts_with(kRegistryDwords);
    const bool same = running != params.end() && (dwords ? same_dwords(name, running->second, option.value)
                                                         : same_value(running->second, option.value));
    finding.saw(option.source(), name + "=" + option.value);
    if (same || running == params.end())
      continue;  // uvm is not loaded; unknown options of this driver: see module-parameters
    out.push_back(fmt::format("{}={} ({}) is not in force: the module runs with {}", name, option.value,
                              option.source(), running->second.empty() ? "none" : running->second));
  }
  return out;
}

Result<Finding> check(const Host& host, const Parameters&) {
  if (!host.files().exists("/sys/module/nvidia")) return not_applicable("the nvidia module is not loaded");
  auto configured = TRY(configured_options(host));
  auto running = TRY(nvidia_params(host));
  for (const ModuleOption& option : TRY(module_options(host))) {
    if (option.module != "nvidia_uvm") continue;
    configured[option.name] = option;
    if (auto value = host.line("/sys/module/nvidia_uvm/parameters/" + option.name)) running[option.name] = *value;
  }
  Finding finding;
  const std::vector<std::string> stale = not_in_force(configured, running, finding);
  finding.facts["not_in_force"] = stale;
  if (stale.empty())
    finding.set(Verdict::pass,
                fmt::format("the loaded modules run with their {} configured options", configured.size()));
  else
    finding.set(Verdict::fail, stale.front() + (stale.size() > 1 ? fmt::format("; and {} more", stale.size() - 1) : ""),
                "Rebuild the initramfs if it has the module, then load the module again or reboot.");
  return finding;
}

}  // namespace

extern const Probe kOptionsInForce = {
    .id = "options-in-force",
    .asserts = "the loaded modules nvidia and nvidia-uvm run with the options that modprobe.d gives them",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
