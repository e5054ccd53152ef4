// SPDX-License-Identifier: MIT
// initramfs: every kernel's initramfs agrees with modprobe.d about the driver, and has no module of another driver.
// A boot loads modules from the initramfs first, by the modprobe.d files that were copied into it when it was made: an
// old one loads nouveau or the old nvidia again, even if the system behind it is correct.
// Reads the list of each image (lsinitramfs, lsinitrd), modprobe.d and /lib/modules; compares names and sizes.
// Reference: initramfs-tools(7), dracut(8).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/probe.hpp"
#include "machine/modules/initramfs.hpp"

namespace p2pd {
namespace {

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<Initramfs> images = TRY(initramfs_images(host));
  if (images.empty()) return not_applicable("no kernel of /boot starts with an initramfs");
  Finding finding;
  std::vector<std::string> stale;
  for (const Initramfs& one : images) {
    std::string why = TRY(stale_initramfs(host, one));
    finding.facts["images"].push_back({{"kernel", one.release}, {"image", one.image}, {"stale", why}});
    finding.saw(one.image, why.empty() ? "as modprobe.d and /lib/modules say" : why);
    if (!why.empty()) stale.push_back(std::move(why));
  }
  if (stale.empty())
    finding.set(Verdict::pass,
                fmt::format("the modprobe.d settings of the driver are in all of {} images", images.size()));
  else
    finding.set(Verdict::fail, fmt::format("{}", fmt::join(stale, "; ")));
  return finding;
}

}  // namespace

extern const Probe kInitramfs = {
    .id = "initramfs",
    .asserts =
        "every bootable kernel's initramfs has the modprobe.d settings of the driver, and no module of another "
        "driver",
    .check = check,
};

}  // namespace p2pd
