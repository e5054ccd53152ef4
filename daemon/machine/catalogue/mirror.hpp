// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/parameters.hpp"
#include "machine/fetch/signature.hpp"

namespace p2pd {

/// A mirror as it is configured.
struct MirrorPlace {
  std::string url;                        ///< without a slash at its end; empty: there is none
  std::vector<std::string> trusted_keys;  ///< files of the host

  explicit operator bool() const { return !url.empty(); }
};

inline constexpr Parameter kMirrorParameter = {"mirror", Parameter::Type::string, false,
                                               "URL of a mirror that \"p2pctl mirror make\" made, tried first"};
inline constexpr Parameter kTrustedKeysParameter = {
    "trusted_keys", Parameter::Type::strings, false,
    "files with the public keys, or certificates of them, that may sign what is on the mirror"};

/// Mirror that parameters `mirror` and `trusted_keys` name.
MirrorPlace mirror_of(const Parameters& parameters);

/// Checks that `mirror` is a URL as in check_mirrors(), and that keys come with it, as absolute paths.
Result<void> check_mirror(const MirrorPlace& place);

using MirrorTime = std::chrono::sys_seconds;

/// A file of a mirror.
struct MirrorFile {
  std::uint64_t bytes = 0;
  std::string sha256;

  bool operator==(const MirrorFile&) const = default;
};

/// List of the files of a mirror. As a file: a line "p2pd.mirror/1 SIGNATURE" in base64, then the JSON that is signed.
/// One file, so that no reader gets a list with another list's signature.
struct MirrorManifest {
  MirrorTime made, valid_until;
  std::map<std::string, MirrorFile, std::less<>> files;  ///< by path below the URL
};

inline constexpr std::string_view kMirrorManifest = "/manifest";
inline constexpr std::string_view kMirrorBuilds = "builds/";    ///< builds/NAME/build.json and its modules
inline constexpr std::string_view kMirrorSources = "sources/";  ///< sources/NAME.tar.gz, NAME.json and NAME.patch

Result<std::string> signed_manifest(const MirrorManifest& manifest, const KeyFile& key);

/// Reads a manifest, its signature first. ErrorCode::invalid: it is not signed by one of `keys`, of another form, or
/// has a path that leaves the mirror.
Result<MirrorManifest> read_manifest(std::string_view text, const std::vector<KeyFile>& keys);

/// A mirror whose manifest was fetched, is signed by a trusted key, valid now and no older than one seen before.
class Mirror {
 public:
  /// Fetches the manifest: at most 4 MiB, in `deadline`. An Error is the reason why the mirror is not used.
  static Result<Mirror> open(const Host& host, const MirrorPlace& place, std::chrono::seconds deadline);
  /// Does the same within a minute, to use it, and records the manifest's time: an older one is refused from then on.
  static Result<Mirror> open(Host& host, const MirrorPlace& place);

  const std::string& url() const { return url_; }
  bool has(std::string_view path) const { return manifest_.files.contains(path); }
  std::uint64_t bytes_of(std::string_view path) const {
    return has(path) ? manifest_.files.find(path)->second.bytes : 0;
  }
  /// Fetches a file of the mirror into `file` of the host, which is recorded; checks its size and its SHA-256.
  Result<void> fetch(Host& host, const std::string& path, const std::string& file) const;

 private:
  Mirror(std::string url, MirrorManifest manifest) : url_(std::move(url)), manifest_(std::move(manifest)) {}
  Result<void> remember(Host& host) const;

  std::string url_;
  MirrorManifest manifest_;
};

}  // namespace p2pd
