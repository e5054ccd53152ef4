// SPDX-License-Identifier: MIT
// disk-space: enough space for a driver is free: its runfile and source, a build, saved packages, and a new initramfs.
// A disk that is full in the middle of a driver swap leaves neither driver. Needs on one file system are added up.
// On /boot one image at a time is made beside the old one; /var keeps the old ones.
// Reads the free space of /usr, /var and /boot for an ordinary process, and the sizes of the initramfs images.
// Reference: statvfs(3); update-initramfs(8); other sizes are those of a 570 runfile and build.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/probe.hpp"
#include "base/recorded.hpp"
#include "base/units.hpp"
#include "machine/boot/mounts.hpp"
#include "machine/hardware/gpus.hpp"
#include "machine/modules/initramfs.hpp"

namespace p2pd {
namespace {

constexpr std::uint64_t kUsrBytes = 2048 * kMiB;  // userspace and sources
constexpr std::uint64_t kVarBytes =
    4096 * kMiB;  // a runfile of 0.4 GB, unpacked 1.2 GB, a build of 0.8 GB, saved packages
constexpr std::uint64_t kImageBytes = 128 * kMiB;  // for an initramfs without a size: a stand-in of a record

struct Need {
  std::string path;
  std::uint64_t bytes;
};

/// Bytes that each place needs on this machine.
std::vector<Need> needs_of(const Host& host) {
  std::uint64_t largest = 0, all = 0;
  for (const Initramfs& one : initramfs_images(host).value_or(std::vector<Initramfs>())) {
    const auto info = host.files().stat(one.image);
    const std::uint64_t bytes = info && info->st_size > 0 ? static_cast<std::uint64_t>(info->st_size) : kImageBytes;
    largest = std::max(largest, bytes);
    all += bytes;
  }
  return {{"/usr", kUsrBytes}, {"/var", kVarBytes + all}, {"/boot", largest + kInitramfsGrowth}};
}

/// Sum of the needs on one file system.
struct Room {
  std::string paths;
  std::uint64_t wanted_bytes = 0, free_bytes = 0;
};

/// Identifier of a file system. A machine record is on one, so its mountinfo identifies them.
std::string file_system_of(const Host& host, const std::string& path) {
  if (!RecordedRunner::is_record(host.files())) {
    const auto info = host.files().stat(path);
    return info ? fmt::format("{}", info->st_dev) : path;
  }
  const auto mounts = parse_mounts(host.files().read(kMountInfo, 8U << 20).value_or(""));
  const Mount* const mount = mounts ? mount_above(*mounts, path) : nullptr;
  return mount != nullptr ? mount->device : path;
}

/// Missing space, and places with unknown free space.
struct Survey {
  std::vector<std::string> lacking, unclear;
};

Survey survey_room(const Host& host, Finding& finding) {
  Survey survey;
  std::map<std::string, Room> rooms;
  for (const auto& [path, bytes] : needs_of(host)) {
    nlohmann::json& fact = finding.facts["free_bytes"][path];
    const auto free = free_bytes(host, path);
    if (!free) {
      survey.unclear.push_back(path);
      continue;
    }
    fact = *free;
    finding.saw(path, fmt::format("{} MiB free", *free / kMiB));
    Room& room = rooms[file_system_of(host, path)];
    room.paths += (room.paths.empty() ? "" : ", ") + path;
    room.wanted_bytes += bytes;
    room.free_bytes = *free;
  }
  for (const auto& [device, room] : rooms)
    if (room.free_bytes < room.wanted_bytes)
      survey.lacking.push_back(fmt::format("{} has {} MiB free, and {} are needed", room.paths, room.free_bytes / kMiB,
                                           room.wanted_bytes / kMiB));
  return survey;
}

Result<Finding> check(const Host& host, const Parameters&) {
  if (!TRY(needs_built_driver(host))) return not_applicable("no GPU that needs a driver built here");
  Finding finding;
  const Survey survey = survey_room(host, finding);
  if (!survey.lacking.empty())
    finding.set(Verdict::fail, fmt::format("{}", fmt::join(survey.lacking, "; ")),
                "Make room: old kernels and the package cache (apt-get clean) are the usual places.");
  else if (!survey.unclear.empty())
    finding.set(Verdict::unknown, fmt::format("free space is not known: {}", fmt::join(survey.unclear, ", ")));
  else
    finding.set(Verdict::pass, "there is room for a driver and its build");
  return finding;
}

}  // namespace

extern const Probe kDiskSpace = {
    .id = "disk-space",
    .asserts = "/usr, /var and /boot have room for a driver and its build",
    .check = check,
};

}  // namespace p2pd
