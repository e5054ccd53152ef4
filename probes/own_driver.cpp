// SPDX-License-Identifier: MIT
// own-driver: p2pd installed the driver of this machine, and therefore also maintains it.
// If somebody else installed the driver, persistence, pins and the kernels that it is built for are left to that owner.
// Reads the DKMS sources of p2pd in /usr/src and the build records beside its modules in /lib/modules.
// Reference: dkms(8), the source tree of a module; daemon/machine/modules/module_install.hpp, files that p2pd installs.
#include <fmt/format.h>

#include "base/probe.hpp"
#include "machine/modules/module_install.hpp"

namespace p2pd {
namespace {

Result<Finding> check(const Host& host, const Parameters&) {
  const auto build = installed_build(host);
  Finding finding;
  finding.facts = {{"commit", build ? build->commit : ""}};
  if (build)
    finding.set(Verdict::pass, fmt::format("p2pd installed its modules here, of release {} and commit {:.12}",
                                           build->release, build->commit));
  else
    finding.set(Verdict::fail, "p2pd has installed no driver here",
                "\"sudo p2pctl apply\" installs one where no other gives P2P.");
  return finding;
}

}  // namespace

extern const Probe kOwnDriver = {
    .id = "own-driver",
    .asserts = "the driver of this machine is one that p2pd installed",
    .check = check,
};

}  // namespace p2pd
