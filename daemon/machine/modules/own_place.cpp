// SPDX-License-Identifier: MIT
#include "machine/modules/own_place.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "machine/catalogue/staging.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "machine/modules/module_file.hpp"
#include "machine/modules/module_signing.hpp"

namespace p2pd {
namespace {

constexpr std::chrono::hours kCopyDeadline{1};

constexpr std::string_view kHookScript = R"sh(#!/bin/sh
# Written by p2pd; undone by `p2pctl revert`. Builds the P2P driver's modules for a newly installed kernel, as dkms does: $1 is
# its release. Where that fails the kernel is installed all the same, and does not start by default.
worker=/usr/libexec/p2pd/p2pd-worker
[ -x "$worker" ] || exit 0
"$worker" new-kernel || echo "p2pd: no P2P driver for kernel $1 yet. Try again later: sudo $0 $1" >&2
exit 0
)sh";

constexpr std::string_view kRemovalScript = R"sh(#!/bin/sh
# Written by p2pd; undone by `p2pctl revert`. Removes the P2P driver's modules with their kernel: $1 is its release.
release=$1
if [ -n "$DEB_MAINT_PARAMS" ]; then    # of the package's script, which is called for an upgrade, too
    eval set -- "$DEB_MAINT_PARAMS"
    [ "$1" = remove ] || exit 0
fi
[ -n "$release" ] || exit 0
rm -rf "/lib/modules/$release/updates/p2pd" "/lib/p2pd-modules/$release" "/lib/p2pd-modules/.$release.new"
rmdir "/lib/modules/$release/updates" 2> /dev/null
exit 0
)sh";

/// Makes the place of `release`, a directory in older versions, a link to its files.
Result<void> link_place(Host& host, const std::string& release) {
  const std::string place = place_of(release, kOwnPlace),
                    target = fmt::format("../../..{}/{}", kOwnFiles.substr(kOwnFiles.rfind('/')), release);
  if (host.files().read_link(place).value_or("") == target) return {};
  TRY(host.remove_tree(place));
  return host.link(place, target);
}

}  // namespace

bool has_modules_by_hand(const Host& host) {
  const std::string release = host.line("/proc/sys/kernel/osrelease").value_or("");
  const auto files = modules_by_name(host, release).value_or(std::map<std::string, std::string>());
  const auto nvidia = files.find("nvidia");
  return nvidia != files.end() && nvidia->second.starts_with(place_of(release, kHandPlace) + "/");
}

std::string own_files(std::string_view release) { return fmt::format("{}/{}", kOwnFiles, release); }

Result<std::string> name_here(const Host& host, std::string_view module) {
  std::string name = renamed(module, TRY(installed_name(host, "nvidia")));
  std::ranges::replace(name, '_', '-');  // form of file names in every distribution; both mean the same
  return name;
}

Result<std::vector<PlaceFile>> own_place_files(const Host& host) {
  std::string overrides =
      "# Written by p2pd; undone by `p2pctl revert`. The modules with P2P win over those of the driver's packages.\n";
  for (const std::string_view module : kModuleNames)
    overrides += fmt::format("override {} * {}\n", TRY(name_here(host, module)), kOwnPlace);
  std::vector<PlaceFile> files{{std::string(kDepmodDropIn), std::move(overrides)}};
  for (const std::string_view hook : kKernelHooks) files.push_back({std::string(hook), std::string(kHookScript), 0755});
  files.push_back({std::string(kRemovalHook), std::string(kRemovalScript), 0755});
  return files;
}

Result<std::string> missing_place_file(const Host& host) {
  for (const PlaceFile& file : TRY(own_place_files(host)))
    if (host.files().read(file.path).value_or("") != file.content) return file.path;
  return std::string();
}

Result<std::string> overruling_override(const Host& host, std::string_view module) {
  std::string found;
  for (const auto& [name, file] : TRY(kmod_files(host, "depmod.d"))) {
    if (name <= kDepmodDropIn.substr(kDepmodDropIn.rfind('/') + 1)) continue;
    for (const Statement& line : statements_of(host.files().read(file).value_or(""), file))
      if (line.verb == "override" && line.module == kernel_name(module)) found = line.source();
  }
  return found;
}

Result<void> install_in_own_place(Host& host, const ModuleBuild& build) {
  const std::string& release = build.target.release;
  const std::string files = own_files(release), beside = TRY(make_unfinished(host, files));
  for (const std::string_view module : kModuleNames) {
    const std::string to = fmt::format("{}/{}.ko", beside, TRY(name_here(host, module)));
    TRY(host.run({.argv = {"cp", "--reflink=auto", build.module_file(module), to}, .deadline = kCopyDeadline}));
  }
  // the record is the reference once the build is removed
  TRY(host.run({{"cp", build.directory + std::string(kBuildRecord), beside}}));
  TRY(sign_modules(host, build.target, beside));
  TRY(host.remove_tree(files));
  TRY(host.move(beside, files));
  TRY(link_place(host, release));
  TRY(host.run({.argv = {"depmod", release}, .deadline = kCopyDeadline}));
  return {};
}

}  // namespace p2pd
