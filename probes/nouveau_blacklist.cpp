// SPDX-License-Identifier: MIT
// nouveau-blacklist: nouveau does not take the GPUs at boot.
// nouveau is part of the kernel and drives any GPU that no other driver has yet; nvidia then finds them taken. Any file
// of modprobe.d that keeps nouveau off is enough, also one that is not p2pd's.
// Reads modprobe.d as libkmod does.
// Reference: modprobe.d(5).
#include <algorithm>

#include "base/probe.hpp"
#include "machine/modules/modprobe_d.hpp"

namespace p2pd {
namespace {

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<BannedModule> banned = TRY(banned_modules(host));
  const auto found = std::ranges::find(banned, "nouveau", &BannedModule::module);
  Finding finding;
  const bool holds = found != banned.end();
  finding.verdict = holds ? Verdict::pass : Verdict::fail;
  finding.facts = {{"source", holds ? nlohmann::json(found->source) : nlohmann::json()}};
  finding.evidence.push_back(
      {holds ? found->source : "modprobe.d", holds ? "nouveau is kept off" : "no entry for nouveau"});
  finding.summary = holds ? "nouveau is kept off the GPUs by " + found->source : "nothing keeps nouveau off the GPUs";
  return finding;
}

}  // namespace

extern const Probe kNouveauBlacklist;
const Probe kNouveauBlacklist = {
    .id = "nouveau-blacklist",
    .asserts = "modprobe.d keeps nouveau off the GPUs",
    .check = check,
};

}  // namespace p2pd
