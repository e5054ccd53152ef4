// SPDX-License-Identifier: MIT
// nouveau-blacklist: nouveau and Nova do not take the GPUs at boot.
// Both are part of Linux, Nova (nova_core, nova_drm) from 7.0 on, and drive any GPU that no other driver has yet;
// nvidia then finds them taken. Any file of modprobe.d that keeps them off is enough, also one that is not p2pd's. Nova
// counts where it is loaded, or belongs to a kernel that can boot. Reads modprobe.d as libkmod does, /sys/module and
// modules.dep. Reference: modprobe.d(5).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/probe.hpp"
#include "machine/modules/initramfs.hpp"

namespace p2pd {
namespace {

Result<Finding> check(const Host& host, const Parameters&) {
  Finding finding;
  std::vector<std::string> kept_off, free;
  std::string source;
  for (const BannedModule& driver : TRY(linux_drivers(host))) {
    const bool banned = !driver.source.empty();
    (banned ? kept_off : free).push_back(driver.module);
    if (banned) source = driver.source;
    finding.saw(banned ? driver.source : "modprobe.d",
                driver.module + (banned ? " is kept off" : ": no entry keeps it off"));
  }
  finding.facts = {{"source", or_null(source)}};
  if (free.empty())
    finding.set(Verdict::pass, fmt::format("{} {} kept off the GPUs by {}", fmt::join(kept_off, " and "),
                                           kept_off.size() == 1 ? "is" : "are", source));
  else
    finding.set(Verdict::fail, fmt::format("nothing keeps {} off the GPUs", fmt::join(free, " and ")));
  return finding;
}

}  // namespace

extern const Probe kNouveauBlacklist = {
    .id = "nouveau-blacklist",
    .asserts = "modprobe.d keeps nouveau and Nova off the GPUs",
    .check = check,
};

}  // namespace p2pd
