// SPDX-License-Identifier: MIT
// nouveau-blacklist: keeps nouveau and Nova off the GPUs by a modprobe.d file of p2pd.
// Writes nothing if other files do so already. The initramfs has modprobe.d files of its own: the step initramfs
// comes after this one. Takes effect at the next boot.
// Writes /etc/modprobe.d/p2pd-nouveau.conf.
// Reference: modprobe.d(5); README of NVIDIA's driver, chapter 8.
#include <algorithm>

#include "base/action.hpp"
#include "machine/modules/initramfs.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kFile = "/etc/modprobe.d/p2pd-nouveau.conf";
constexpr std::string_view kText =
    "# Written by p2pd: the NVIDIA driver uses the GPUs.\nblacklist nouveau\noptions nouveau modeset=0\n"
    "blacklist nova_core\nblacklist nova_drm\nblacklist nova\n";

Result<bool> kept_off(const Host& host) {
  const std::vector<BannedModule> drivers = TRY(linux_drivers(host));
  return std::ranges::none_of(drivers, [](const BannedModule& one) { return one.source.empty(); });
}

Result<Description> describe(const Host& host, const Parameters&) {
  Description description;
  description.summary = "blacklist";
  for (const BannedModule& one : TRY(linux_drivers(host)))
    if (one.source.empty()) description.summary += " " + one.module;
  if (!TRY(kept_off(host)))
    description.files.push_back({std::string(kFile), FileState::Kind::regular, std::string(kText)});
  return description;
}

Result<void> apply(Host& host, const Parameters&) {
  if (TRY(kept_off(host))) return {};
  return host.write_own(kFile, std::string(kText));
}

}  // namespace

extern const Action kNouveauBlacklistAction = {
    .id = "nouveau-blacklist",
    .topic = "options",
    .does = "keeps nouveau and Nova off the GPUs by a modprobe.d file",
    .describe = describe,
    .apply = apply,
};

}  // namespace p2pd
