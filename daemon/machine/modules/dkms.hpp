// SPDX-License-Identifier: MIT
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"
#include "machine/catalogue/catalogue.hpp"

namespace p2pd {

inline constexpr std::string_view kDkms = "/var/lib/dkms";
inline constexpr std::string_view kDkmsPlace = "updates/dkms";  ///< place below /lib/modules/RELEASE

inline constexpr std::string_view kDkmsName =
    "p2pd-nvidia";  ///< name of p2pd's DKMS package; no distribution has one so called
inline constexpr std::string_view kDkmsTree = "/var/lib/dkms/p2pd-nvidia";  ///< directory below kDkms
inline constexpr std::string_view kDkmsKept = "/var/cache/p2pd/dkms";       ///< builds in progress for DKMS

/// Path of p2pd's source directory: "/usr/src/p2pd-nvidia-570.86.16".
std::string dkms_source(const CatalogueEntry& entry);

/// Makes dkms.conf of `entry`. `dkms autoinstall` uses it only for kernels that the modules were built for: a
/// build that fails, or BUILD_EXCLUSIVE_KERNEL, would leave a new kernel's package half configured.
std::string dkms_conf(const CatalogueEntry& entry);

/// Makes the script beside it, which takes a build of p2pd, or builds with the kernel's compiler and the compat headers
/// it needs.
std::string dkms_build_script(const Catalogue& all, const CatalogueEntry& entry);

/// Name of the link in kDkmsTree that marks p2pd's modules as installed for `release`; empty: there is none.
std::string dkms_link(const Host& host, std::string_view release);

/// Owner of the module file: "package X", "DKMS module X"; empty: none.
Result<std::string> owner_of_module(const Host& host, std::string_view release, const std::string& file);

/// Removes the remains of a killed "dkms remove": DKMS does not know a module without its link "source", and fails on
/// it.
Result<void> forget_torn_dkms(Host& host);

/// Names of the modules ("nvidia-current-uvm") that DKMS built from sources whose dkms.conf is among `paths`.
std::vector<std::string> built_by_dkms(const Host& host, const std::set<std::string>& paths);

/// Removes the files of `modules` that a killed "dkms install" left in DKMS's directories, for any kernel: DKMS records
/// an installation only at its end, so it does not remove them with their package. Files of a package stay.
Result<void> discard_torn_modules(Host& host, const std::vector<std::string>& modules);

}  // namespace p2pd
