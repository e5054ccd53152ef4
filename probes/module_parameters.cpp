// SPDX-License-Identifier: MIT
// module-parameters: the loaded nvidia module runs with the options that are configured, and no registry key is wrong.
// Guides pass RegistryDwords on between drivers, but their values changed at 575 (RMForceP2PType=1 is right there and
// forces broken mailbox P2P before), and two popular keys do nothing there: they are module options. What was
// configured after the module was loaded is not in force. Keys that are not known here are facts, never judged. Reads
// /proc/driver/nvidia/params, /sys/module/nvidia/version, modprobe.d as libkmod does. Of other modules: nothing.
// Reference: nvrm_registry.h and nv-reg.h of NVIDIA's open-gpu-kernel-modules, tags 550.54.15 to 595.45.04.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/modprobe_d.hpp"
#include "base/nvidia_procfs.hpp"
#include "base/probe.hpp"
#include "base/registry_keys.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kParams = "/proc/driver/nvidia/params";
constexpr std::string_view kVersion = "/sys/module/nvidia/version";
constexpr std::string_view kPrefix = "NVreg_";

/// What modprobe.d gives to nvidia: NVreg_ name to the option that counts. Debian's name of it first.
Result<std::map<std::string, ModuleOption>> configured_options(const Host& host) {
  const std::vector<ModuleOption> options = TRY(module_options(host));
  std::map<std::string, ModuleOption> out;
  for (const std::string_view module : {"nvidia_current", "nvidia"})
    for (const ModuleOption& option : options)
      if (option.module == module && option.name.starts_with(kPrefix)) out[option.name] = option;
  return out;
}

/// Judges the keys of one list in force; what is wrong goes to `problems`.
void judge_keys(const Dwords& dwords, int major, Finding& finding, std::vector<std::string>& problems) {
  for (const auto& dword : dwords) {
    const std::string& key = dword.first;
    const std::string& text = dword.second;
    if (key == "pci") continue;  // RegistryDwordsPerDevice: "pci=0000:01:00.0;Key=1"
    nlohmann::json fact = {{"value", text}, {"wrong", nullptr}};
    if (const std::string wrong = wrong_registry_key(key, text, major); !wrong.empty()) {
      fact["wrong"] = wrong;
      problems.push_back(key + "=" + text + ": " + wrong);
    }
    fact["experimental"] = is_experimental_key(key);
    fact["known"] = is_known_key(key);
    finding.facts["registry_dwords"][key] = std::move(fact);
  }
}

bool same_dwords(const std::string& left, const std::string& right) {
  Dwords one = parse_dwords(left), other = parse_dwords(right);
  std::ranges::sort(one);
  std::ranges::sort(other);
  return std::ranges::equal(
      one, other, [](const auto& a, const auto& b) { return a.first == b.first && same_value(a.second, b.second); });
}

/// The configured options that the loaded module does not run with, named by file and line.
std::vector<std::string> not_in_force(const std::map<std::string, ModuleOption>& configured,
                                      const std::map<std::string, std::string>& params, Finding& finding) {
  std::vector<std::string> out;
  for (const auto& [name, option] : configured) {
    const auto running = params.find(name);
    const bool dwords = name.starts_with(kRegistryDwords);
    const bool same = running != params.end() &&
                      (dwords ? same_dwords(running->second, option.value) : same_value(running->second, option.value));
    nlohmann::json& fact = finding.facts["options"][name];
    fact = {{"configured", option.value}, {"running", nullptr}, {"source", option.source()}};
    if (running != params.end()) fact["running"] = running->second;
    finding.evidence.push_back({option.source(), name + "=" + option.value});
    if (same) continue;
    out.push_back(running == params.end()
                      ? fmt::format("{} ({}) is no option of this driver", name, option.source())
                      : fmt::format("{}={} ({}) is not in force: the module runs with {}", name, option.value,
                                    option.source(), running->second.empty() ? "none" : running->second));
  }
  return out;
}

Result<Finding> check(const Host& host, const Parameters&) {
  Finding finding;
  finding.facts = {
      {"version", nullptr}, {"options", nlohmann::json::object()}, {"registry_dwords", nlohmann::json::object()}};
  if (!host.files().exists("/sys/module/nvidia")) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = "the nvidia module is not loaded";
    return finding;
  }
  const std::string version = TRY(host.line(kVersion));
  int major = 0;
  const auto [end, error] = std::from_chars(version.data(), version.data() + version.size(), major);
  if (error != std::errc() || end == version.data() + version.size() || *end != '.')
    return fail(ErrorCode::invalid, std::string(kVersion) + ": '" + version + "' is no driver version");
  const auto params = TRY(nvidia_params(host));
  if (!params.contains(std::string(kRegistryDwords)))
    return fail(ErrorCode::invalid, std::string(kParams) + " has no RegistryDwords");
  const auto configured = TRY(configured_options(host));

  finding.facts["version"] = version;
  std::vector<std::string> wrong;
  for (const auto& [name, value] : params) {
    if (!name.starts_with(kRegistryDwords)) continue;
    finding.evidence.push_back({std::string(kParams), name.substr(kPrefix.size()) + ": \"" + value + "\""});
    judge_keys(parse_dwords(value), major, finding, wrong);
  }
  for (const std::string& address : excluded_gpus(host)) {
    finding.evidence.push_back({"/proc/driver/nvidia/gpus/" + address + "/information", "GPU Excluded: Yes"});
    wrong.push_back("it was told to leave out " + address + " (NVreg_ExcludedGpus, NVreg_GpuBlacklist)");
  }
  const std::vector<std::string> stale = not_in_force(configured, params, finding);
  finding.facts["wrong_keys"] = wrong;
  finding.facts["not_in_force"] = stale;
  if (wrong.empty() && stale.empty()) {
    finding.verdict = Verdict::pass;
    finding.summary =
        fmt::format("nvidia {} runs with its {} configured options; {} registry keys, none known to be wrong", version,
                    configured.size(), finding.facts["registry_dwords"].size());
    return finding;
  }
  finding.verdict = Verdict::fail;
  const std::size_t others = wrong.size() + stale.size() - 1;
  finding.summary = fmt::format("nvidia {}: {}{}", version, wrong.empty() ? stale.front() : wrong.front(),
                                others == 0 ? "" : fmt::format("; and {} more", others));
  finding.next = wrong.empty() ? "Rebuild the initramfs if it has the module, then load the module again or reboot."
                               : "Correct that in /etc/modprobe.d, then load the module again or reboot.";
  return finding;
}

}  // namespace

extern const Probe kModuleParameters;
const Probe kModuleParameters = {
    "module-parameters",
    "the nvidia module runs with its configured options, and with no registry key that is known to "
    "be wrong for its version",
    {},
    nullptr,
    check,
    false};

}  // namespace p2pd
