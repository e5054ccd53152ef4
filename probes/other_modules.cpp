// SPDX-License-Identifier: MIT
// other-modules: no kernel module of another driver is loaded: nouveau, or NVIDIA modules other than the files which
// modprobe would load now.
// A module stays in the kernel when its file is replaced, and keeps its GPUs: a test then tests the old driver. The
// version string is that of the stock module, and srcversion may be; the build id is not. No loaded module passes.
// Reads /sys/module/*/{initstate,srcversion,notes}, modules.dep, .modinfo and .note.gnu.build-id of the files.
// Reference: Documentation/ABI/stable/sysfs-module of Linux; scripts/mod/sumversion.c; ld(1), --build-id.
#include <fmt/format.h>

#include <algorithm>

#include "base/probe.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/loaded_driver.hpp"
#include "machine/modules/module_file.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter};

/// Identity of the file that modprobe would load as `name`; empty if there is none.
Result<ModuleIdentity> installed_identity(const Host& host, const std::map<std::string, std::string>& files,
                                          const std::string& name) {
  const std::string base = TRY(installed_name(host, "nvidia"));  // "nvidia_current" if Debian renamed them
  const auto file = files.find(renamed(name, base));
  if (file == files.end()) return ModuleIdentity();
  return TRY(module_identities(host, {file->second})).front();
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  if (const auto finding = no_entry_needed(parameters)) return *finding;
  const std::vector<DriverModule> loaded = driver_modules(host);
  Finding finding;
  finding.facts = {{"loaded", nlohmann::json::object()}, {"other", nlohmann::json::array()}};
  std::map<std::string, std::string> files;
  if (!loaded.empty()) {
    auto listed = modules_by_name(host, TRY(host.line("/proc/sys/kernel/osrelease")));
    if (!listed && listed.error().code != ErrorCode::not_found) return Failure(listed.error());
    files = std::move(listed).value_or(std::map<std::string, std::string>());
  }
  std::string other;
  bool weaker = false;
  for (const auto& [name, identity] : loaded) {
    const ModuleIdentity installed = name == "nouveau" ? ModuleIdentity() : TRY(installed_identity(host, files, name));
    finding.facts["loaded"][name] = identity.srcversion;
    finding.evidence.push_back({fmt::format("/sys/module/{}/srcversion", name), identity.srcversion});
    if (!identity.build_id.empty())
      finding.evidence.push_back({fmt::format("/sys/module/{}/notes/.note.gnu.build-id", name), identity.build_id});
    weaker = weaker || !identity.by_build_id(installed);
    if (identity.is(installed)) continue;
    finding.facts["other"].push_back(name);
    other = installed.srcversion.empty() ? name + " is loaded and belongs to another driver"
                                         : not_installed_text(name, identity, installed);
  }
  finding.verdict = other.empty() ? Verdict::pass : Verdict::fail;
  finding.summary = loaded.empty()   ? "no driver of the GPUs is loaded"
                    : !other.empty() ? other
                    : weaker ? fmt::format("the loaded module is the installed one, by srcversion, {}", kWeakerSign)
                             : "the loaded module is the installed one";
  if (!other.empty()) finding.next = "Stop the processes that use the GPUs and unload the modules, or reboot.";
  return finding;
}

}  // namespace

extern const Probe kOtherModules;
const Probe kOtherModules = {
    .id = "other-modules",
    .asserts = "no kernel module of another driver than the installed one is loaded",
    .parameters = kParameters,
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
