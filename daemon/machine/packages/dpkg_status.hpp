// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// A paragraph of a control file, as dpkg and apt write them: deb822(5).
struct Paragraph {
  int line = 0;                               ///< line of its first field, from 1
  std::string_view text;                      ///< text as read, with its last newline; a part of the parsed text
  std::map<std::string, std::string> fields;  ///< values by lower-case name; '\n' separates continued lines

  std::string value(const std::string& name) const {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string() : found->second;
  }
};

/// Parses all paragraphs, and the `wanted` ones of their fields (lower case). ErrorCode::invalid names the line that is
/// no field, or reports a text that ends in the middle of a line.
Result<std::vector<Paragraph>> parse_paragraphs(std::string_view text, std::initializer_list<std::string_view> wanted);

/// `text` with a to z for A to Z: apt and dpkg do not distinguish them in names.
std::string lower_case(std::string_view text);

inline constexpr std::string_view kDpkgStatus = "/var/lib/dpkg/status";
inline constexpr std::string_view kDpkgUpdates = "/var/lib/dpkg/updates";
inline constexpr std::string_view kAptMarks = "/var/lib/apt/extended_states";

/// A package at a version.
struct PackageVersion {
  std::string name;
  std::string architecture;
  std::string version;  ///< empty if never unpacked

  /// Returns "libcuda1:i386", or "nvidia-support" for all architectures; apt and dpkg accept both.
  std::string id() const { return architecture.empty() || architecture == "all" ? name : name + ":" + architecture; }
  bool operator==(const PackageVersion&) const = default;
};

/// One package in dpkg's records; the words of Status are dpkg's own.
struct DpkgPackage : PackageVersion {
  std::string want;      ///< "install", "hold", "deinstall", "purge", "unknown"
  std::string flag;      ///< "ok", "reinstreq"
  std::string state;     ///< "installed", "unpacked", "half-configured", "config-files", ...
  std::string priority;  ///< "required", "important", "standard", "optional", "extra"
  std::string depends;   ///< Depends and Pre-Depends: "a (>= 1) | b, c"
  std::string recommends;
  std::string suggests;
  std::string provides;
  std::vector<std::string> conffiles;  ///< paths, without those that the present version no longer has
  bool essential = false;

  bool installed() const { return state == "installed"; }
  bool held() const { return want == "hold"; }
  /// True if it is on the disk, whole or in part; a removed package may leave configuration files alone.
  bool present() const { return state != "config-files" && state != "not-installed"; }
  /// True if dpkg stopped in the middle, or waits for triggers.
  bool interrupted() const {
    return flag != "ok" || !(state == "installed" || state == "config-files" || state == "not-installed");
  }
};

/// Parses the text of a status file. ErrorCode::invalid names the line that breaks the format or ends too early.
Result<std::vector<DpkgPackage>> parse_dpkg_status(std::string_view text);

/// Lists every package of `host`; ErrorCode::not_found if dpkg is not used.
Result<std::vector<DpkgPackage>> dpkg_packages(const Host& host);

/// Number of status changes that dpkg had not yet written when it was killed: numbered files.
Result<std::size_t> unwritten_updates(const Host& host);

/// The text of `host`'s status file.
Result<std::string> dpkg_status_text(const Host& host);

/// The packages that apt installed only because others need them: "NAME:ARCHITECTURE", which is never "all" there.
Result<std::set<std::string>> apt_automatic(const Host& host);

}  // namespace p2pd
