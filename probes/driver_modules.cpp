// SPDX-License-Identifier: MIT
// driver-modules: modprobe would load the chosen driver's modules, as they were built, on every kernel that can boot.
// The stock and the patched module have one version string, and depmod prefers updates/ to kernel/: a module that was
// installed may still not be the one that is loaded. Compared are srcversion and vermagic of what modules.dep names.
// `by: dkms` asks besides that DKMS has them, so that it builds them for the next kernel, too.
// Reads modules.dep, the modules, modprobe.d, /var/lib/dkms and /var/cache/p2pd/builds.
// Reference: depmod.d(5), dkms(8); scripts/mod/sumversion.c of Linux.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/module_install.hpp"
#include "base/probe.hpp"
#include "base/staging.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter, kByParameter};

Finding not_built(const CatalogueEntry& entry, const Error& error) {
  Finding finding;
  finding.verdict = Verdict::fail;
  finding.summary = fmt::format("modules of {} are not installed: {}", entry.id, error.message);
  finding.facts = {{"entry", entry.id}, {"kernels", nlohmann::json::array()}};
  finding.next = error.next;
  return finding;
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  if (const auto finding = no_entry_needed(parameters)) return *finding;
  const bool dkms = by_dkms(parameters);
  const Catalogue all = TRY(catalogue(host));
  const CatalogueEntry entry = TRY(staged_entry(all, parameters));
  const auto builds = wanted_builds(host, all, entry);
  if (!builds && can_be_made(builds.error())) return not_built(entry, builds.error());
  if (!builds) return Failure(builds.error());
  Finding finding;
  finding.facts = {{"entry", entry.id}, {"kernels", nlohmann::json::array()}};
  std::vector<std::string> lacking, there;
  for (const ModuleBuild& build : *builds) {
    const std::string& release = build.target.release;
    const auto found = installed_modules(host, build);
    if (!found && !can_be_made(found.error())) return Failure(found.error());
    // where a build would lie depends on headers, which a record of a machine does not hold
    std::string why = found ? found->lacking : release + ": they are not built (driver-build says why)";
    if (why.empty() && dkms && !in_dkms(host, release)) why = release + ": DKMS does not have them";
    finding.facts["kernels"].push_back({{"kernel", release},
                                        {"modules", found ? found->files : nlohmann::json()},
                                        {"foreign", found ? found->foreign : std::vector<std::string>()},
                                        {"installed", why.empty()}});
    finding.evidence.push_back(
        {"/lib/modules/" + release + "/modules.dep", why.empty() ? "the modules as built" : why});
    there.push_back(release);
    if (!why.empty()) lacking.push_back(std::move(why));
  }
  finding.verdict = lacking.empty() ? Verdict::pass : Verdict::fail;
  finding.summary = lacking.empty()
                        ? fmt::format("modprobe loads the modules of {} on {}", entry.id, fmt::join(there, ", "))
                        : fmt::format("modules of {} are not installed: {}", entry.id, fmt::join(lacking, "; "));
  return finding;
}

}  // namespace

extern const Probe kDriverModulesProbe;
const Probe kDriverModulesProbe = {
    "driver-modules",
    "modprobe would load the entry's modules, as they were built, on every kernel that can boot",
    kParameters,
    validate_module_install,
    check,
    false};

}  // namespace p2pd
