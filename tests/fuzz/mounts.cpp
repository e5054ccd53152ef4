// SPDX-License-Identifier: MIT
// Any text as /proc/self/mountinfo: what is taken is found again at its own mount point, and errors name the line.
#include "machine/boot/mounts.hpp"

#include "fuzz.hpp"

void p2pd::fuzz::run(std::string_view input) {
  static const Tree tree;
  const auto mounts = parse_mounts(input);
  if (!mounts) {
    require(mounts.error().code == ErrorCode::invalid, "an error of another kind");
    require(mounts.error().message.starts_with("line "), "an error that does not say where");
    return;
  }
  for (const Mount& mount : *mounts) {
    require(!mount.point.empty() && !mount.device.empty() && !mount.type.empty() && !mount.source.empty(),
            "a mount that lacks something");
    const Mount* found = mount_above(*mounts, mount.point);
    require(found != nullptr && found->point == mount.point, "a mount point that lies on another mount");
    require(found >= &mount, "an earlier mount hides a later one");
    require(layer_below(tree.host, mount.device).empty(), "a layer below a device that is not there");
  }
}
