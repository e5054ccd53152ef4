// SPDX-License-Identifier: MIT
// driver-modules: modprobe would load the chosen driver's modules, as they were built, on every kernel that can boot.
// The stock and the patched module have one version string, and depmod prefers updates/ to kernel/: the module that is
// loaded may not be the installed one. Compares build id (else srcversion) and vermagic of the files in modules.dep
// with the installed build: in DKMS (`by: dkms`), which builds it for later kernels, too, or in a directory of its own,
// with an override for depmod and hooks for later kernels. With Secure Boot on, and a key of this machine enrolled,
// they must have an enrolled signature. Skips an older kernel without headers. Reads modules.dep, the modules,
// modprobe.d, /var/lib/dkms, /usr/src/p2pd-nvidia-*, updates/p2pd, depmod.d, the hooks in /etc/kernel, efivars.
// Reference: depmod.d(5), dkms(8); scripts/mod/sumversion.c of Linux.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/probe.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/module_file.hpp"
#include "machine/modules/module_install.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter, kUserspaceParameter, kByParameter};

Result<Finding> check(const Host& host, const Parameters& parameters) {
  if (const auto finding = no_entry_needed(parameters)) return *finding;
  const CatalogueEntry entry = TRY(staged_entry(TRY(catalogue(host)), parameters));
  const std::vector<BuildTarget> kernels = TRY(build_targets(host));
  Finding finding;
  finding.facts = {{"entry", entry.id}};
  std::vector<std::string> lacking, there;
  bool refused = false;
  for (const BuildTarget& kernel : kernels) {
    const std::string& release = kernel.release;
    const InstalledModules found = TRY(installed_modules(host, entry, release, by_dkms(parameters)));
    const bool installed = found.lacking.empty();
    finding.facts["kernels"].push_back({{"kernel", release}, {"installed", installed}});
    const std::string as_built = found.by_build_id
                                     ? "the modules as built"
                                     : fmt::format("the modules as built, by srcversion, {}", kWeakerSign);
    finding.saw("/lib/modules/" + release + "/modules.dep", installed ? as_built : found.lacking);
    const bool matters = kernel.has_headers || kernel.running || release == kernels.back().release;
    if (installed) there.push_back(release);
    if (!installed && matters) lacking.push_back(found.lacking);
    refused |= found.refused;
  }
  if (const std::string file = by_dkms(parameters) ? "" : TRY(missing_place_file(host));
      !file.empty() && lacking.empty())
    lacking.push_back(fmt::format("{} differs from the file that p2pd wrote", file));
  if (lacking.empty())
    finding.set(Verdict::pass, fmt::format("modprobe loads the modules of {} on {}", entry.id, fmt::join(there, ", ")));
  else
    finding.set(Verdict::fail, fmt::format("modules of {} are not installed: {}", entry.id, fmt::join(lacking, "; ")),
                "\"p2pctl catalogue\" shows the kernels that they fit; remove the packages of the others.");
  if (refused) finding.next = "\"sudo p2pctl apply\" signs them with this machine's key and installs them again.";
  return finding;
}

}  // namespace

extern const Probe kDriverModules = {
    .id = "driver-modules",
    .asserts = "modprobe would load the entry's modules, as they were built, on every kernel that can boot",
    .parameters = kParameters,
    .validate = validate_module_install,
    .check = check,
};

}  // namespace p2pd
