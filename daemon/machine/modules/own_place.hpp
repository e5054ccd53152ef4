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
// depmod is told to prefer them, and hooks build them for later kernels.
inline constexpr std::string_view kOwnPlace = "updates/p2pd";  ///< below /lib/modules/RELEASE; a link to a directory of kOwnFiles
/// The files themselves. DKMS looks below /lib/modules/RELEASE for modules of the names that it installs, and follows no links:
/// version 3.2 moves those that it finds away, 3.0 installs nothing beside one of the same version.
inline constexpr std::string_view kOwnFiles = "/lib/p2pd-modules";
/// Of several lines for one module depmod takes the last, in the order of file names.
inline constexpr std::string_view kDepmodDropIn = "/etc/depmod.d/zz-p2pd.conf";
/// run-parts(8) calls them after dkms and before initramfs-tools, each with the kernel's release.
inline constexpr std::string_view kKernelHooks[] = {"/etc/kernel/postinst.d/dkms-p2pd", "/etc/kernel/header_postinst.d/dkms-p2pd"};
inline constexpr std::string_view kRemovalHook = "/etc/kernel/postrm.d/dkms-p2pd";

/// "/lib/p2pd-modules/6.1.0-1-amd64"
std::string own_files(std::string_view release);

/// "nvidia-current-open-uvm" for nvidia-uvm where Debian's packages call nvidia so: the name that modprobe loads here.
/// ErrorCode::invalid: an install line of modprobe.d runs something else.
Result<std::string> name_here(const Host& host, std::string_view module);

/// A file that makes depmod prefer the modules, or has them built for later kernels and removed with theirs.
struct PlaceFile {
  std::string path, content;
  mode_t mode = 0644;
};
Result<std::vector<PlaceFile>> own_place_files(const Host& host);
/// The first of them that is not as it should be; empty: all are.
Result<std::string> missing_place_file(const Host& host);

/// The depmod.d line of somebody else that overrides `module` after ours, "FILE:LINE"; empty: there is none.
std::string overruling_override(const Host& host, std::string_view module);

/// Copies the modules of `build` there, signs them where the system wants it, and runs depmod; replaces what was there.
Result<void> install_in_own_place(Host& host, const ModuleBuild& build);

}  // namespace p2pd
