// SPDX-License-Identifier: MIT
// package-state: dpkg is in a consistent state.
// Fixes install packages, and dpkg refuses after an interruption. package-activity checks for a running
// one, whose result is not known before it ends. Reads dpkg's status and updates, /proc/locks, and the mark of p2pd's
// own change of packages: what that left undone is no fault. Reference: dpkg(1), "package states".
#include <fmt/format.h>

#include "base/probe.hpp"
#include "machine/boot/package_locks.hpp"
#include "machine/modules/toolchain.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/dpkg_status.hpp"

namespace p2pd {
namespace {

Result<Finding> check(const Host& host, const Parameters&) {
  constexpr std::size_t kShown = 20;
  Finding finding;
  if (!host.files().exists(kDpkgStatus) && distribution(host).lacks_apt()) {
    finding.set(Verdict::not_applicable, "this system does not use dpkg");
    finding.saw(kDpkgStatus, "not there");
    return finding;
  }
  const std::vector<DpkgPackage> packages = TRY(dpkg_packages(host));
  std::vector<std::string> interrupted;
  for (const DpkgPackage& package : packages) {
    if (!package.interrupted()) continue;
    interrupted.push_back(package.name);
    if (interrupted.size() <= kShown)
      finding.saw(kDpkgStatus, fmt::format("{}: {} {}", package.name, package.flag, package.state));
  }
  const std::size_t updates = TRY(unwritten_updates(host));
  finding.saw(kDpkgUpdates, fmt::format("{} updates", updates));
  finding.facts = {{"interrupted", interrupted}, {"unwritten_updates", updates}};
  if (interrupted.empty() && updates == 0) {
    finding.set(Verdict::pass,
                fmt::format("dpkg is sound, {} packages{}", packages.size(),
                            host.files().exists("/run/reboot-required") ? "; a reboot is required" : ""));
    return finding;
  }
  finding.set(Verdict::fail,
              fmt::format("dpkg was interrupted: {} packages half installed{}{}", interrupted.size(),
                          interrupted.empty() ? "" : ", " + interrupted.front() + " first",
                          updates == 0 ? "" : fmt::format(", {} updates not written", updates)),
              "Run \"sudo dpkg --configure -a\", then \"sudo apt-get --fix-broken install\".");
  if (const auto locks = package_locks(host).value_or(std::nullopt); locks && !locks->empty())
    finding.set(Verdict::not_applicable,
                fmt::format("process {} {} installs packages now: the state is checked after it ends",
                            locks->front().pid, locks->front().process));
  else if (changes_packages(host))
    finding.set(Verdict::pass, finding.summary + "; p2pd did that, and its fix completes it");
  return finding;
}

}  // namespace

extern const Probe kPackageState = {
    .id = "package-state",
    .asserts = "dpkg is sound",
    .check = check,
};

}  // namespace p2pd
