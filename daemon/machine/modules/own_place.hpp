// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/modules/module_build.hpp"

namespace p2pd {

// Modules beside those of the distribution, which stay: below updates/p2pd, under the names that modprobe loads here.
// A depmod.d file makes depmod prefer them, and hooks build them for later kernels.
inline constexpr std::string_view kOwnPlace =
    "updates/p2pd";  ///< place below /lib/modules/RELEASE; a link to a directory of kOwnFiles
/// Place of modules that a person builds by the commands of "p2pctl catalogue", where p2pd replaces no driver.
inline constexpr std::string_view kHandPlace = "updates/by-hand";
/// Checks that modprobe would load module nvidia of the running kernel from there.
bool has_modules_by_hand(const Host& host);
/// Directory of the files. DKMS looks below /lib/modules/RELEASE for modules of the names that it installs, and follows
/// no links: version 3.2 moves those that it finds away, 3.0 installs nothing beside one of the same version.
inline constexpr std::string_view kOwnFiles = "/lib/p2pd-modules";
/// File of depmod.d: depmod uses the last of several lines for one module, by file name.
inline constexpr std::string_view kDepmodDropIn = "/etc/depmod.d/zz-p2pd.conf";
/// Hooks that run-parts(8) calls after dkms and before initramfs-tools, each with the kernel's release.
inline constexpr std::string_view kKernelHooks[] = {"/etc/kernel/postinst.d/dkms-p2pd",
                                                    "/etc/kernel/header_postinst.d/dkms-p2pd"};
inline constexpr std::string_view kRemovalHook = "/etc/kernel/postrm.d/dkms-p2pd";

/// "/lib/p2pd-modules/6.1.0-1-amd64"
std::string own_files(std::string_view release);

/// Name that modprobe loads here: "nvidia-current-open-uvm" for nvidia-uvm if Debian's packages call nvidia so.
/// ErrorCode::invalid: an install line of modprobe.d runs something else.
Result<std::string> name_here(const Host& host, std::string_view module);

/// A file that makes depmod prefer the modules, or has them built for later kernels and removed with theirs.
struct PlaceFile {
  std::string path, content;
  mode_t mode = 0644;
};
Result<std::vector<PlaceFile>> own_place_files(const Host& host);
/// First of them that is not as it should be; empty: all are.
Result<std::string> missing_place_file(const Host& host);

/// Line in another file of depmod.d that overrides `module` after p2pd's, "FILE:LINE"; empty: there is none.
Result<std::string> overruling_override(const Host& host, std::string_view module);

/// Copies the modules of `build` there, signs them if there is a key, and runs depmod; replaces what was there.
Result<void> install_in_own_place(Host& host, const ModuleBuild& build);

}  // namespace p2pd
