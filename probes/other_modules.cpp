// SPDX-License-Identifier: MIT
// other-modules: no other driver has the GPUs: nouveau or Nova, which are part of Linux, or NVIDIA modules other than
// the files which modprobe would load now. A module stays in the kernel when its file is replaced, and keeps its GPUs:
// a test then tests the old driver. The version string is that of the stock module, and srcversion may be; the build id
// is not. No loaded module passes. Reads `driver` of each GPU, /sys/module/*/{initstate,srcversion,notes}, modules.dep,
// .modinfo and .note.gnu.build-id of the files. Reference: Documentation/ABI/stable/sysfs-module of Linux;
// scripts/mod/sumversion.c; ld(1), --build-id.
#include <fmt/format.h>

#include <algorithm>

#include "base/probe.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/loaded_driver.hpp"
#include "machine/modules/modprobe_d.hpp"
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
  const std::string taken = taken_by_linux(TRY(drivers_of_gpus(host)));
  if (const auto finding = no_entry_needed(parameters); finding && taken.empty()) return *finding;
  const std::vector<DriverModule> loaded = driver_modules(host);
  Finding finding;
  finding.facts = {{"other", nlohmann::json::array()}};
  std::map<std::string, std::string> files;
  if (!loaded.empty()) {
    auto listed = modules_by_name(host, TRY(host.line("/proc/sys/kernel/osrelease")));
    if (!listed && listed.error().code != ErrorCode::not_found) return Failure(listed.error());
    files = std::move(listed).value_or(std::map<std::string, std::string>());
  }
  std::string other;
  bool weaker = false;
  for (const auto& [name, identity] : loaded) {
    const bool of_linux = std::ranges::count(kLinuxDrivers, name) > 0;
    const ModuleIdentity installed = of_linux ? ModuleIdentity() : TRY(installed_identity(host, files, name));
    finding.saw(fmt::format("/sys/module/{}/srcversion", name), identity.srcversion);
    if (!identity.build_id.empty())
      finding.saw(fmt::format("/sys/module/{}/notes/.note.gnu.build-id", name), identity.build_id);
    weaker = weaker || !identity.by_build_id(installed);
    if (identity.is(installed)) continue;
    finding.facts["other"].push_back(name);
    other = installed.srcversion.empty() ? name + " is loaded and belongs to another driver"
                                         : not_installed_text(name, identity, installed);
  }
  if (!taken.empty()) other = taken;
  const bool reboot = keeps_gpus_until_reboot(loaded);
  if (reboot) finding.facts["reboot"] = true;
  if (!other.empty())
    finding.set(Verdict::fail, other,
                reboot ? "Reboot: only that takes the GPUs from Nova."
                       : "Stop the processes that use the GPUs and unload the modules, or reboot.");
  else if (loaded.empty())
    finding.set(Verdict::pass, "no driver of the GPUs is loaded");
  else
    finding.set(Verdict::pass, "the loaded module is the installed one" +
                                   (weaker ? fmt::format(", by srcversion, {}", kWeakerSign) : std::string()));
  return finding;
}

}  // namespace

extern const Probe kOtherModules = {
    .id = "other-modules",
    .asserts = "no other driver than the installed one has the GPUs, and none of its modules is loaded",
    .parameters = kParameters,
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
