// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/json.hpp"
#include "base/parameters.hpp"
#include "base/result.hpp"
#include "machine/modules/module_build.hpp"
#include "machine/modules/own_place.hpp"

namespace p2pd {

inline constexpr std::string_view kDkmsName =
    "p2pd-nvidia";  ///< of our DKMS package; no distribution has one so called
inline constexpr std::string_view kDkmsTree = "/var/lib/dkms/p2pd-nvidia";  ///< below kDkms
inline constexpr std::string_view kDkmsKept = "/var/cache/p2pd/dkms";  ///< builds on their way into DKMS
inline constexpr std::string_view kDkms = "/var/lib/dkms";
inline constexpr std::string_view kDkmsPlace = "updates/dkms";  ///< below /lib/modules/RELEASE

inline constexpr std::string_view kModuleSuffixes[] = {".ko", ".ko.gz", ".ko.xz", ".ko.zst"};

inline constexpr Parameter kByParameter = {"by", Parameter::Type::string, false,
                                           "dkms (unless told) or modules_install: how modules are installed"};
/// Error unless `by` is one of these, and the rest as validate_staging() wants it.
Result<void> validate_module_install(const Parameters& parameters);
/// False, too, where the driver's packages stay: their DKMS module is in the same place as ours would be.
bool by_dkms(const Parameters& parameters);

/// How what modprobe would load for one kernel compares with what p2pd installed for it.
struct InstalledModules {
  nlohmann::json files = nlohmann::json::object();  ///< module to the file that modprobe would load, or null
  std::string lacking;                              ///< why these are not the entry's; empty: they are
  std::vector<std::string> foreign;                 ///< files that modprobe would load instead
  bool by_build_id = true;                          ///< each was compared by its build id
};

/// Compares by build id (srcversion where there is none) and vermagic, never by version, with what DKMS or the build's
/// record beside the modules has of the entry's commit: that stays when the builds in the cache are gone. An Error: a
/// file or modprobe.d is not readable.
Result<InstalledModules> installed_modules(const Host& host, const CatalogueEntry& entry, const std::string& release,
                                           bool dkms);

/// Of which release and patch the modules are that p2pd installed here; nothing: it installed none.
struct InstalledBuild {
  std::string release;  ///< empty: an older p2pd did not note it
  std::string commit;
};
std::optional<InstalledBuild> installed_build(const Host& host);

/// Name of the link in kDkmsTree by which DKMS says that ours are installed for `release`; empty: there is none.
std::string dkms_link(const Host& host, std::string_view release);

/// Who would miss the module file: "package X", "DKMS module X"; empty: nobody.
Result<std::string> owner_of_module(const Host& host, std::string_view release, const std::string& file);

/// Names a file of another origin so that depmod no longer sees it; Error where it has an owner. clear_modules() gives
/// it its name back.
Result<void> put_aside(Host& host, std::string_view release, const std::string& file);

/// Removes every module, DKMS package and source of ours, of whatever version and kernel, and gives back what was put
/// aside; runs depmod where modules.dep is wrong then. Needs no dkms, no network; fine to be run again.
Result<void> clear_modules(Host& host);

/// Keeps what undo_modules() needs; to be called before the present change does anything else.
Result<void> keep_modules(Host& host);

/// clear_modules() for the undo of a change, and puts back what p2pd had installed before that change.
Result<void> undo_modules(Host& host);

/// Runs depmod for each kernel without modules.dep, or whose modules.dep lists a module of the driver or in updates/ that is gone, or
/// no driver module where one lies.
Result<void> run_due_depmods(Host& host);

/// The files that depmod makes, as paths.
std::vector<std::string> depmod_files(std::string_view release);

/// Name of our source directory: "/usr/src/p2pd-nvidia-570.86.16".
std::string dkms_source(const CatalogueEntry& entry);

/// dkms.conf of `entry`. It offers itself to `dkms autoinstall` only for kernels that the modules were built for: a
/// build that fails, or BUILD_EXCLUSIVE_KERNEL, would leave a new kernel's package half configured.
std::string dkms_conf(const CatalogueEntry& entry);

/// The script beside it that takes a build of p2pd, or builds with the kernel's compiler and the compat headers it
/// needs.
std::string dkms_build_script(const Catalogue& all, const CatalogueEntry& entry);

}  // namespace p2pd
