// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/finding.hpp"
#include "base/host.hpp"
#include "base/parameters.hpp"
#include "machine/catalogue/catalogue.hpp"

namespace p2pd {

// Places of fetched and built files, before anything of the old driver is touched.
inline constexpr std::string_view kCache = "/var/cache/p2pd";
inline constexpr std::string_view kRunfiles = "/var/cache/p2pd/runfiles";
inline constexpr std::string_view kSources = "/var/cache/p2pd/sources";
inline constexpr std::string_view kBuilds = "/var/cache/p2pd/builds";
inline constexpr std::string_view kLogs = "/var/log/p2pd";
inline constexpr std::string_view kBuildLogPrefix = "driver-build-";
inline constexpr std::string_view kBuildLogHead = "p2pd " P2PD_VERSION ": ";  ///< prefix of the command

// Values of parameter `entry` in place of FORK/BRANCH.
inline constexpr std::string_view kChosenEntry = "chosen";  ///< the solver's choice: plan/resolve.hpp inserts it
inline constexpr std::string_view kNoEntry = "none";        ///< the running driver supports P2P: nothing is built

inline constexpr Parameter kEntryParameter = {"entry", Parameter::Type::string, true,
                                              "id of a catalogue entry that may be used, chosen or none"};
/// The same, for a check that goes by the loaded driver without it.
inline constexpr Parameter kNextEntryParameter = {"entry", Parameter::Type::string, false,
                                                  "id of the catalogue entry that will be installed, chosen or none"};

// Values of parameter `userspace`.
inline constexpr std::string_view kKeepPackages = "keep";  ///< installed packages stay: their version is the entry's
inline constexpr std::string_view kRunfile =
    "runfile";  ///< packages are purged, and NVIDIA's runfile installs the entry's version
inline constexpr std::string_view kChosenUserspace =
    "chosen";  ///< keep if it fits: plan/resolve.hpp inserts the choice

inline constexpr Parameter kUserspaceParameter = {
    "userspace", Parameter::Type::string, false,
    "keep, runfile (unless told) or chosen: where libraries and programs come from"};

/// Returns not_applicable if parameter `entry` is "none"; nullopt for any other.
std::optional<Finding> no_entry_needed(const Parameters& parameters);

/// Checks that parameter `userspace` is "keep".
bool keeps_packages(const Parameters& parameters);
/// Does the same as no_entry_needed(), and returns not_applicable if the packages stay.
std::optional<Finding> no_runfile_needed(const Parameters& parameters);

/// Entry of `all` that parameter `entry` names; an Error if it may not be used yet.
Result<CatalogueEntry> staged_entry(const Catalogue& all, const Parameters& parameters);
/// The same, if it has what parameter `userspace` says: a runfile, unless packages stay.
Result<CatalogueEntry> staged_userspace(const Catalogue& all, const Parameters& parameters);

/// "/var/cache/p2pd/runfiles/NVIDIA-Linux-x86_64-570.86.16.run"
std::string runfile_of(const CatalogueEntry& entry);

/// Name of a build's directory and log: "570.211.01-0e943687150e-6.12.117+deb13-amd64".
std::string build_name(const CatalogueEntry& entry, std::string_view kernel);
inline constexpr std::string_view kNoSource = "source";  ///< in place of a kernel: no source could be made

/// Path of a build's output, which stays after a failure: "/var/log/p2pd/driver-build-NAME.log".
std::string build_log_of(std::string_view name);

/// Parameter `mirrors` without trailing slashes; none if it is not given.
std::vector<std::string> mirrors_of(const Parameters& parameters);

/// Checks that each is a file://, http:// or https:// URL without a user name.
Result<void> check_mirrors(const std::vector<std::string>& mirrors);

/// Checks for the Error of a missing or damaged file: a fix can make it; other Errors mean "could not find out".
bool can_be_made(const Error& error);

/// Checks that `entry` is FORK/BRANCH, "chosen" or "none", `userspace` one of its words, and each of `mirrors` a
/// file://, http:// or https:// URL.
Result<void> validate_staging(const Parameters& parameters);

/// Name beside `path` for an incomplete file; always the same, so that a retry replaces what a kill left.
std::string unfinished(std::string_view path);

/// Checks for such a name.
bool is_unfinished(std::string_view path);

/// Makes an empty directory at unfinished(`path`), which a move turns into `path`; undo removes both.
Result<std::string> make_unfinished(Host& host, std::string_view path);

/// SHA-256 of a regular file, in 64 hexadecimal digits; the file is streamed.
Result<std::string> sha256_of_file(const Host& host, std::string_view path);

/// Checks that the future file system of `path` has `bytes` for an ordinary user.
Result<void> need_room(const Host& host, std::string_view path, std::uint64_t bytes);

}  // namespace p2pd
