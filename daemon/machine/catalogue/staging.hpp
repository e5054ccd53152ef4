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

// Where what is fetched and built lies before anything of the old driver is touched.
inline constexpr std::string_view kCache = "/var/cache/p2pd";
inline constexpr std::string_view kRunfiles = "/var/cache/p2pd/runfiles";
inline constexpr std::string_view kSources = "/var/cache/p2pd/sources";
inline constexpr std::string_view kBuilds = "/var/cache/p2pd/builds";
inline constexpr std::string_view kLogs = "/var/log/p2pd";
inline constexpr std::string_view kBuildLogPrefix = "driver-build-";
inline constexpr std::string_view kBuildLogHead = "p2pd " P2PD_VERSION ": ";  ///< then the command

// What parameter `entry` may say in place of FORK/BRANCH.
inline constexpr std::string_view kChosenEntry = "chosen";  ///< what the solver takes: plan/resolve.hpp puts it in
inline constexpr std::string_view kNoEntry = "none";        ///< the driver that runs gives P2P: nothing is built here

inline constexpr Parameter kEntryParameter = {"entry", Parameter::Type::string, true,
                                              "id of a catalogue entry that may be used, chosen or none"};

// What parameter `userspace` may say.
inline constexpr std::string_view kKeepPackages = "keep";  ///< the packages that are installed stay: their version is the entry's
inline constexpr std::string_view kRunfile = "runfile";    ///< packages are purged, and NVIDIA's runfile brings the entry's version
inline constexpr std::string_view kChosenUserspace = "chosen";  ///< keep where it fits: plan/resolve.hpp puts it in

inline constexpr Parameter kUserspaceParameter = {"userspace", Parameter::Type::string, false,
                                                  "keep, runfile (unless told) or chosen: where libraries and programs come from"};

/// not_applicable where parameter `entry` is "none"; nothing for any other.
std::optional<Finding> no_entry_needed(const Parameters& parameters);

/// Parameter `userspace` is "keep".
bool keeps_packages(const Parameters& parameters);
/// The same as no_entry_needed(), and not_applicable where the packages stay.
std::optional<Finding> no_runfile_needed(const Parameters& parameters);

/// The entry of `all` that parameter `entry` names; an Error where nothing may be made of it yet.
Result<CatalogueEntry> staged_entry(const Catalogue& all, const Parameters& parameters);

/// "/var/cache/p2pd/runfiles/NVIDIA-Linux-x86_64-570.86.16.run"
std::string runfile_of(const CatalogueEntry& entry);

/// "570.211.01-0e943687150e-6.12.117+deb13-amd64": a build, in the names of its directory and its log.
std::string build_name(const CatalogueEntry& entry, std::string_view kernel);
/// The output of a build, which stays where it failed: "/var/log/p2pd/driver-build-NAME.log"
std::string build_log_of(std::string_view name);

/// Parameter `mirrors` without trailing slashes; none where it is not given.
std::vector<std::string> mirrors_of(const Parameters& parameters);

/// Error unless each is a file://, http:// or https:// URL without a user name.
Result<void> check_mirrors(const std::vector<std::string>& mirrors);

/// True of the Error of what is not there or damaged: a fix can make it, where other Errors mean "could not find out".
bool can_be_made(const Error& error);

/// Path on this host of a file:// URL; nothing for others. It is taken as it stands, without %-escapes.
std::optional<std::string> local_path(std::string_view url);

/// Error unless `entry` is FORK/BRANCH, "chosen" or "none", `userspace` one of its words, and each of `mirrors` a file://,
/// http:// or https:// URL.
Result<void> validate_staging(const Parameters& parameters);

/// Name beside `path` for what is not complete yet; always the same, so that a retry replaces what a kill left.
std::string unfinished(std::string_view path);

/// Whether `path` is such a name.
bool is_unfinished(std::string_view path);

/// Makes an empty directory at unfinished(`path`), for what becomes `path` by a move; undo removes both.
Result<std::string> make_unfinished(Host& host, std::string_view path);

/// SHA-256 of a regular file, which is streamed, in 64 hexadecimal digits.
Result<std::string> sha256_of_file(const Host& host, std::string_view path);

/// Error unless the file system that `path` will be on has `bytes` for whoever is not root.
Result<void> need_room(const Host& host, std::string_view path, std::uint64_t bytes);

}  // namespace p2pd
