// SPDX-License-Identifier: MIT
// own-driver: the driver of this machine is one that p2pd installed, so that keeping it is p2pd's, too.
// A driver that somebody else installed has an owner with habits of his own: what persists, what is pinned and which kernels
// it is built for is his to say.
// Reads the DKMS sources of p2pd in /usr/src and the build records beside its modules in /lib/modules.
// Reference: dkms(8), the source tree of a module; daemon/base/modules/module_install.hpp, what p2pd lays down.
#include <fmt/format.h>

#include "base/modules/module_install.hpp"
#include "base/probe.hpp"

namespace p2pd {
namespace {

Result<Finding> check(const Host& host, const Parameters&) {
  const std::string commit = installed_commit(host);
  Finding finding;
  finding.facts = {{"commit", commit}};
  finding.verdict = commit.empty() ? Verdict::fail : Verdict::pass;
  finding.summary = commit.empty() ? "p2pd has installed no driver here" : fmt::format("p2pd installed its modules here, of commit {}", commit.substr(0, 12));
  if (commit.empty()) finding.next = "\"p2pctl apply\" installs one where no other gives P2P.";
  return finding;
}

}  // namespace

extern const Probe kOwnDriver;
const Probe kOwnDriver = {
    .id = "own-driver",
    .asserts = "the driver of this machine is one that p2pd installed",
    .check = check,
};

}  // namespace p2pd
