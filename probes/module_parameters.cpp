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

namespace p2pd {
namespace {

constexpr std::string_view kParams = "/proc/driver/nvidia/params";
constexpr std::string_view kVersion = "/sys/module/nvidia/version";
constexpr std::string_view kPrefix = "NVreg_";
constexpr int kSplit = 575;  // where the values of the P2P keys changed

/// A key in RegistryDwords that does not do what it is set for, in drivers from `first` to before `end`.
struct WrongKey {
  std::string_view key;
  int first;
  int end;
  bool (*wrong)(std::uint32_t value);
  std::string_view why;
};

bool always(std::uint32_t) { return true; }
template <std::uint32_t kValue>
bool equals(std::uint32_t value) {
  return value == kValue;
}
bool three_or_more(std::uint32_t value) { return value >= 3; }
bool four_or_more(std::uint32_t value) { return value >= 4; }
/// A field of 0 in reads (1:0) or writes (5:4) forbids them.
bool forbids(std::uint32_t value) { return (value & 0x3U) == 0 || (value & 0x30U) == 0; }

constexpr int kNever = 1 << 20;
constexpr WrongKey kWrongKeys[] = {
    {"EnableResizableBar", 0, kNever, always, "does nothing here: it is the module option NVreg_EnableResizableBar"},
    {"GrdmaPciTopoCheckOverride", 0, kNever, always,
     "does nothing here: it is the module option NVreg_GrdmaPciTopoCheckOverride, for RDMA only"},
    {"ForceP2P", 0, kNever, forbids, "forbids peer reads or writes; 0x11 allows both"},
    {"RMForceP2PType", 0, kSplit, equals<1>, "before 575, 1 forces mailbox P2P, which GeForce cards lack; BAR1 is 2"},
    {"RMForceP2PType", 0, kSplit, equals<3>, "before 575, 3 forces NVLink; BAR1 is 2"},
    {"RMForceP2PType", 0, kNever, four_or_more, "forces C2C, or nothing that is known"},
    {"RMForceP2PType", kSplit, kNever, equals<2>, "from 575 on, 2 forces NVLink; PCIe is 1"},
    {"RMForceP2PType", kSplit, kNever, equals<3>, "from 575 on, 3 forces C2C; PCIe is 1"},
    {"RMPcieP2PType", 0, kSplit, always, "drivers before 575 do not know it"},
    {"RMPcieP2PType", kSplit, kNever, equals<0>, "0 is mailbox P2P, which GeForce cards lack; BAR1 is 1"},
    {"RMPcieP2PType", kSplit, kNever, three_or_more, "has the values 0 to 2"},
    {"RMForceStaticBar1", kSplit, kNever, three_or_more, "from 575 on it has the values 0 to 2; others are ignored"},
};
constexpr std::string_view kExperimental[] = {"RMDisableFeatureDisablement"};

/// As the driver reads a value: decimal, or hexadecimal after 0x.
Result<std::uint32_t> number_of(const std::string& key, std::string_view text) {
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  const std::string_view digits = hex ? text.substr(2) : text;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.empty())
    return fail(ErrorCode::invalid, key + "=" + std::string(text) + " is no number");
  return value;
}

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
    const auto value = number_of(key, text);
    if (!value) {
      fact["wrong"] = "no number: the driver leaves it out";
    } else {
      for (const WrongKey& row : kWrongKeys)
        if (row.key == key && major >= row.first && major < row.end && row.wrong(*value)) fact["wrong"] = row.why;
    }
    if (!fact["wrong"].is_null()) problems.push_back(key + "=" + text + ": " + fact["wrong"].get<std::string>());
    fact["experimental"] = std::ranges::find(kExperimental, key) != std::end(kExperimental);
    fact["known"] = fact["experimental"] == true || key == "PeerMappingOverride" ||
                    std::ranges::any_of(kWrongKeys, [&](const WrongKey& row) { return row.key == key; });
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
                               : "Correct the key in /etc/modprobe.d, then load the module again or reboot.";
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
