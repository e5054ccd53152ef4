// SPDX-License-Identifier: MIT
// module-parameters: no option or registry key of the loaded nvidia module is wrong for its version.
// Guides pass RegistryDwords on between drivers, but their values changed at 575 (RMForceP2PType=1 is right there and
// forces broken mailbox P2P before), and two popular keys do nothing there: they are module options. A card that the
// driver was told to leave out has no peers. Unknown keys are never judged; options that the driver does not show are
// a note: it omits options that it does not know, and a few that it knows are in no list.
// Reads /proc/driver/nvidia/{params,gpus}, /sys/module/nvidia/version, modprobe.d as libkmod does.
// Reference: nvrm_registry.h and nv-reg.h of NVIDIA's open-gpu-kernel-modules, tags 550.54.15 to 595.45.04.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/probe.hpp"
#include "machine/driver/driver_options.hpp"
#include "machine/driver/registry_keys.hpp"
#include "machine/hardware/nvidia_procfs.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kParams = "/proc/driver/nvidia/params";
constexpr std::string_view kPrefix = "NVreg_";

/// Judges the keys of one list in force, and adds errors to `problems`.
void judge_keys(const Dwords& dwords, int major, Finding& finding, std::vector<std::string>& problems) {
  for (const auto& dword : dwords) {
    const std::string& name = dword.first;
    const std::string& text = dword.second;
    const std::string key = name.substr(name.find('/') + 1);  // without the GPU
    if (const std::string wrong = wrong_registry_key(key, text, major); !wrong.empty())
      problems.push_back(name + "=" + text + ": " + wrong);
    finding.facts["registry_dwords"][name] = {{"value", text}};
  }
}

Result<Finding> check(const Host& host, const Parameters&) {
  if (!host.files().exists("/sys/module/nvidia")) return not_applicable("the nvidia module is not loaded");
  const std::string version = TRY(host.line(kLoadedDriver));
  const int major = major_of(version);
  if (major == 0)
    return fail(ErrorCode::invalid, std::string(kLoadedDriver) + ": '" + version + "' is no driver version");
  const auto params = TRY(nvidia_params(host));
  if (!params.contains(std::string(kRegistryDwords)))
    return fail(ErrorCode::invalid, std::string(kParams) + " has no RegistryDwords");
  Finding finding;
  finding.facts = {{"registry_dwords", nlohmann::json::object()}};
  std::vector<std::string> wrong, not_shown;
  for (const auto& [name, value] : params) {
    if (!name.starts_with(kRegistryDwords)) continue;
    finding.saw(kParams, name.substr(kPrefix.size()) + ": \"" + value + "\"");
    judge_keys(parse_dwords(name, value), major, finding, wrong);
  }
  for (const auto& [name, option] : TRY(configured_options(host))) {
    if (params.contains(name)) continue;
    finding.saw(option.source(), name + "=" + option.value);
    not_shown.push_back(fmt::format("{} ({})", name, option.source()));
  }
  finding.facts["wrong"] = wrong;
  finding.facts["not_shown"] = not_shown;
  if (!wrong.empty()) {
    finding.set(Verdict::fail,
                fmt::format("nvidia {}: {}{}", version, wrong.front(),
                            wrong.size() == 1 ? "" : fmt::format("; and {} more", wrong.size() - 1)),
                "Correct that in /etc/modprobe.d, then load the module again or reboot.");
    return finding;
  }
  const std::size_t keys = finding.facts["registry_dwords"].size();
  finding.set(Verdict::pass, keys == 0 ? fmt::format("nvidia {} runs without registry keys", version)
                                       : fmt::format("nvidia {} runs with {} registry key{}; none prevents P2P",
                                                     version, keys, keys == 1 ? "" : "s"));
  if (!not_shown.empty())
    finding.summary += fmt::format("; not among the options that it shows: {}", fmt::join(not_shown, ", "));
  return finding;
}

}  // namespace

extern const Probe kModuleParameters = {
    .id = "module-parameters",
    .asserts = "no option or registry key of the loaded nvidia module is known to be wrong for its version",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
