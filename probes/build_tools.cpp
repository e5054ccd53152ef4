// SPDX-License-Identifier: MIT
// build-tools: what a driver build needs is installed, for the running and for the newest kernel, and there is room.
// Modules are built on this machine: headers of the kernel, the compiler that the kernel was built with (an older one
// does not know its options), make, git, DKMS; g++, because nvidia-modeset has C++ parts; pahole where headers carry
// BTF. Whether the driver's source fits a kernel is not asked here: driver-catalogue.
// Reads /lib/modules, /boot/config-*, /proc/version, names in /usr/bin, free space of /usr, /var and /boot.
// Reference: README.md and kernel-open/Makefile of NVIDIA open-gpu-kernel-modules; dkms(8).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/gpus.hpp"
#include "base/mounts.hpp"
#include "base/probe.hpp"
#include "base/recorded.hpp"
#include "base/toolchain.hpp"

namespace p2pd {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::array<std::string_view, 4> kTools = {"make", "git", "dkms", "g++"};

struct Need {
  std::string_view path;
  std::uint64_t bytes;
};
/// Userspace and sources; a runfile of 0.4 GB, unpacked 1.2 GB, a build of 0.8 GB, packages kept; a new initramfs.
constexpr std::array<Need, 3> kRoom = {{{"/usr", 2048 * kMiB}, {"/var", 4096 * kMiB}, {"/boot", 256 * kMiB}}};

/// What is there, what lacks, and what could not be found out.
struct Survey {
  std::vector<std::string> lacking;   ///< for the summary
  std::vector<std::string> packages;  ///< that would bring it
  std::vector<std::string> unclear;

  void lack(std::string what, std::string package) {
    lacking.push_back(std::move(what));
    if (std::ranges::count(packages, package) == 0) packages.push_back(std::move(package));
  }
};

/// The running kernel and the newest, which may be one.
std::vector<BuildTarget> built_for(std::vector<BuildTarget> kernels) {
  const std::string newest = kernels.back().release;
  std::erase_if(kernels, [&](const BuildTarget& kernel) { return !kernel.running && kernel.release != newest; });
  return kernels;
}

void survey_kernel(const Host& host, const BuildTarget& kernel, const std::vector<int>& gcc, Survey& survey,
                   Finding& finding) {
  const bool btf = host.files().exists(kernel.build() + "/vmlinux");
  finding.evidence.push_back({kernel.build(), kernel.has_headers ? "there" : "not there"});
  finding.facts["kernels"].push_back({{"release", kernel.release},
                                      {"running", kernel.running},
                                      {"headers", kernel.has_headers},
                                      {"compiler", nullptr},
                                      {"compiler_installed", nullptr}});
  nlohmann::json& facts = finding.facts["kernels"].back();
  if (!kernel.has_headers) survey.lack("headers of " + kernel.release, "linux-headers-" + kernel.release);
  if (btf && !host.has_program("pahole")) survey.lack("pahole", "dwarves");
  if (!kernel.compiler) return survey.unclear.push_back("the compiler of " + kernel.release);
  const bool installed = kernel.compiler->family == "gcc" ? std::ranges::count(gcc, kernel.compiler->major) > 0
                                                          : host.has_program(kernel.compiler->text());
  facts["compiler"] = kernel.compiler->text();
  facts["compiler_installed"] = installed;
  finding.evidence.push_back({kernel.compiler_source, kernel.release + " was built with " + kernel.compiler->text()});
  if (!installed)
    survey.lack(fmt::format("{}, the compiler of {}", kernel.compiler->text(), kernel.release),
                kernel.compiler->text());
}

/// Needs on one file system add up.
struct Room {
  std::string paths;
  std::uint64_t wanted_bytes = 0, free_bytes = 0;
};

/// Tells file systems apart; a machine record lies on one, so there its mountinfo tells.
std::string file_system_of(const Host& host, const std::string& path) {
  if (!RecordedRunner::is_record(host.files())) {
    const auto info = host.files().stat(path);
    return info ? fmt::format("{}", info->st_dev) : path;
  }
  const auto mounts = parse_mounts(host.files().read(kMountInfo, 8U << 20).value_or(""));
  const Mount* const mount = mounts ? mount_above(*mounts, path) : nullptr;
  return mount != nullptr ? mount->device : path;
}

void survey_room(const Host& host, Survey& survey, Finding& finding) {
  std::map<std::string, Room> rooms;
  for (const Need& need : kRoom) {
    const std::string path(need.path);
    nlohmann::json& fact = finding.facts["free_bytes"][path];
    const auto free = free_bytes(host, path);
    if (!free) {
      survey.unclear.push_back("free space in " + path);
      continue;
    }
    fact = *free;
    finding.evidence.push_back({path, fmt::format("{} MiB free", *free / kMiB)});
    Room& room = rooms[file_system_of(host, path)];
    room.paths += (room.paths.empty() ? "" : ", ") + path;
    room.wanted_bytes += need.bytes;
    room.free_bytes = *free;
  }
  for (const auto& [device, room] : rooms)
    if (room.free_bytes < room.wanted_bytes)
      survey.lacking.push_back(fmt::format("room: {} has {} MiB free, and {} are needed", room.paths,
                                           room.free_bytes / kMiB, room.wanted_bytes / kMiB));
}

void survey_tools(const Host& host, Survey& survey, Finding& finding) {
  for (const std::string_view tool : kTools) {
    const bool there = host.has_program(tool);
    finding.facts["tools"][std::string(tool)] = there;
    if (!there) survey.lack(std::string(tool), std::string(tool));
  }
}

void judge(const Host& host, const Survey& survey, Finding& finding) {
  finding.verdict = Verdict::pass;
  finding.summary = "headers, compiler, tools and room for a driver build are there";
  if (!survey.lacking.empty()) {
    finding.verdict = Verdict::fail;
    finding.summary = fmt::format("a driver build lacks {}", fmt::join(survey.lacking, ", "));
    const std::string packages = fmt::format("{}", fmt::join(survey.packages, " "));
    if (packages.empty())
      finding.next = "Make room: old kernels and the package cache (apt-get clean) are the usual places.";
    else if (distribution(host).uses_apt)
      finding.next = "apt-get install " + packages;
    else
      finding.next = "Install what these packages of Debian hold: " + packages;
  } else if (!survey.unclear.empty()) {
    finding.verdict = Verdict::unknown;
    finding.summary = fmt::format("not known: {}", fmt::join(survey.unclear, ", "));
  }
}

Result<Finding> check(const Host& host, const Parameters&) {
  Finding finding;
  if (!TRY(needs_built_driver(host))) {
    finding.verdict = Verdict::not_applicable;
    finding.summary = "no GPU that needs a driver built here";
    return finding;
  }
  const std::vector<BuildTarget> kernels = built_for(TRY(build_targets(host)));
  const std::vector<int> gcc = TRY_IN("installed programs", installed_gcc(host));
  Survey survey;
  finding.facts = {{"kernels", nlohmann::json::array()},
                   {"gcc_installed", gcc},
                   {"tools", nlohmann::json::object()},
                   {"free_bytes", nlohmann::json::object()}};
  for (const BuildTarget& kernel : kernels) survey_kernel(host, kernel, gcc, survey, finding);
  survey_tools(host, survey, finding);
  survey_room(host, survey, finding);
  finding.facts["lacking"] = survey.lacking;
  judge(host, survey, finding);
  return finding;
}

}  // namespace

extern const Probe kBuildTools;
const Probe kBuildTools = {
    "build-tools",
    "headers, compiler, tools and room to build a driver for the running and the newest kernel are there",
    {},
    nullptr,
    check,
    false};

}  // namespace p2pd
