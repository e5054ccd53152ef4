// SPDX-License-Identifier: MIT
// driver-runfile: fetches NVIDIA's installer of the entry's version into the cache.
// Tries mirrors first, then the hosts of the catalogue, until one provides a file with the catalogue's SHA-256. Until
// then the bytes are in a .part file; a download that a lost connection or a kill interrupted is continued. Writes
// /var/cache/p2pd/runfiles/NVIDIA-Linux-x86_64-VERSION.run; undo removes it. Reference: NVIDIA's layout of downloads,
// in config/catalogue.yaml as runfile_hosts and each entry's path.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/action.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "base/url.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/fetch/download.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    kEntryParameter,
    {"mirrors", Parameter::Type::strings, false,
     "file, http or https URLs with NVIDIA's layout, or with just the file"},
};
constexpr std::uint64_t kUnknownBytes = 1024 * kMiB;  // more than any runfile so far
constexpr std::uint64_t kSpareBytes = 64 * kMiB;      // for the file system and other writers

std::uint64_t most_bytes(const CatalogueEntry& entry) {
  return entry.runfile_bytes > 0 ? entry.runfile_bytes : kUnknownBytes;
}

/// URLs of the runfile, in the order of the attempts.
std::vector<std::string> urls_of(const Catalogue& all, const CatalogueEntry& entry, const Parameters& parameters) {
  std::vector<std::string> urls;
  for (const std::string& mirror : mirrors_of(parameters)) {
    urls.push_back(mirror + entry.runfile_path);
    urls.push_back(mirror + entry.runfile_path.substr(entry.runfile_path.rfind('/')));
  }
  for (const std::string& server : all.runfile_hosts) urls.push_back(server + entry.runfile_path);
  return urls;
}

/// Logs each tenth of a file.
auto tenths(std::string name) {
  return [name = std::move(name), told = std::uint64_t{0}](std::uint64_t done, std::uint64_t total) mutable {
    const std::uint64_t tenth = total == 0 ? done / (64 * kMiB) : done * 10 / total;
    if (tenth == told) return;
    told = tenth;
    log::info("{}: {} of {} MiB", name, done / kMiB, total == 0 ? "?" : std::to_string(total / kMiB));
  };
}

Result<Description> describe(const Host& host, const Parameters& parameters) {
  const Catalogue all = TRY(catalogue(host));
  const CatalogueEntry entry = TRY(staged_userspace(all, parameters));
  Description description;
  description.summary =
      fmt::format("fetch NVIDIA's runfile of {} ({} MiB)", entry.base_version, most_bytes(entry) / kMiB);
  description.commands.push_back(fmt::format("curl -o {} {}    # SHA-256 {}", runfile_of(entry),
                                             without_user_info(urls_of(all, entry, parameters).front()),
                                             entry.runfile_sha256));
  return description;
}

Result<void> fetch(Host& host, const CatalogueEntry& entry, const std::string& url) {
  const std::string file = runfile_of(entry);
  Download download;
  download.url = url;
  download.limit_bytes = most_bytes(entry);
  download.sha256 = entry.runfile_sha256;
  download.progress = tenths(file.substr(kRunfiles.size() + 1));
  log::info("fetching {}", without_user_info(url));
  TRY(fetch_file(host, download, file));
  return {};
}

Result<void> apply(Host& host, const Parameters& parameters) {
  const Catalogue all = TRY(catalogue(host));
  const CatalogueEntry entry = TRY(staged_userspace(all, parameters));
  const std::string file = runfile_of(entry);
  if (const auto sum = sha256_of_file(host, file); sum && *sum == entry.runfile_sha256) return {};
  TRY(need_room(host, file, most_bytes(entry) + kSpareBytes));
  TRY(host.will_change(file + ".part", Restore::discarded));
  TRY(host.will_change(file, Restore::discarded));
  TRY(host.make_directory(kRunfiles));
  TRY(host.remove_tree(file));
  std::vector<std::string> reasons;
  for (const std::string& url : urls_of(all, entry, parameters)) {
    auto fetched = fetch(host, entry, url);
    if (fetched) return fetched;
    const ErrorCode code = fetched.error().code;
    if (code == ErrorCode::interrupted || code == ErrorCode::command) return fetched;  // the next URL would fail, too
    const std::string shown = without_user_info(url);
    const std::string& message = fetched.error().message;
    reasons.push_back(message.find(shown) == std::string::npos ? shown + ": " + message : message);
    log::warning("{}", reasons.back());
  }
  return fail(ErrorCode::not_found,
              fmt::format("the runfile of {} could not be fetched: {}", entry.base_version, fmt::join(reasons, "; ")),
              fmt::format("Give the plan a mirror that has it, or put it at {} yourself (SHA-256 {}).", file,
                          entry.runfile_sha256));
}

}  // namespace

extern const Action kDriverRunfileAction = {
    .id = "driver-runfile",
    .topic = "download",
    .does = "fetches NVIDIA's runfile of the entry's version and checks its SHA-256",
    .parameters = kParameters,
    .validate = validate_staging,
    .describe = describe,
    .apply = apply,
};

}  // namespace p2pd
