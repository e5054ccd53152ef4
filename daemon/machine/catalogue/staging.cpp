// SPDX-License-Identifier: MIT
#include "machine/catalogue/staging.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/descriptor.hpp"
#include "base/sha256.hpp"
#include "base/units.hpp"
#include "base/url.hpp"
#include "machine/fetch/download.hpp"

namespace p2pd {
namespace {

/// Checks for a URL that is safe for any tool: it has a scheme, and no character that a tool could misread.
bool is_mirror(std::string_view url) {
  const auto printable = [](char c) { return c > ' ' && c < 0x7f; };
  return (url.starts_with("file:///") || url.starts_with("http://") || url.starts_with("https://")) &&
         std::ranges::all_of(url, printable);
}

Error not_usable_yet(const CatalogueEntry& entry) {
  return {ErrorCode::invalid,
          fmt::format("{} ({}) may not be used yet: {}", entry.id, entry.source, entry.why_not_usable()),
          fmt::format("\"sudo p2pctl catalogue allow {}\" shows what is known of it, and asks.", entry.id)};
}

}  // namespace

std::optional<Finding> no_entry_needed(const Parameters& parameters) {
  if (parameters.at("entry") != kNoEntry) return std::nullopt;
  Finding finding;
  finding.verdict = Verdict::not_applicable;
  finding.summary = "the driver that runs gives P2P: no other is wanted";
  return finding;
}

bool keeps_packages(const Parameters& parameters) {
  return parameters.is_object() && parameters.value("userspace", kRunfile) == kKeepPackages;
}

std::optional<Finding> no_runfile_needed(const Parameters& parameters) {
  auto finding = no_entry_needed(parameters);
  if (finding || !keeps_packages(parameters)) return finding;
  finding.emplace();
  finding->verdict = Verdict::not_applicable;
  finding->summary = "the installed packages of the driver stay";
  return finding;
}

Result<CatalogueEntry> staged_entry(const Catalogue& all, const Parameters& parameters) {
  const auto id = parameters.at("entry").get<std::string>();
  if (id == kChosenEntry)
    return fail(ErrorCode::not_found, "no driver build is chosen yet", "The check driver-catalogue says why.");
  const auto found = std::ranges::find(all.entries, id, &CatalogueEntry::id);
  if (found == all.entries.end())
    return fail(ErrorCode::not_found, "the catalogue has no entry " + id,
                "The check driver-catalogue lists the entries: \"p2pctl doctor --json\".");
  return found->modules_usable() ? Result<CatalogueEntry>(*found) : Failure(not_usable_yet(*found));
}

Result<CatalogueEntry> staged_userspace(const Catalogue& all, const Parameters& parameters) {
  CatalogueEntry entry = TRY(staged_entry(all, parameters));
  if (keeps_packages(parameters)) return entry;
  if (entry.has_runfile()) return entry.usable() ? Result<CatalogueEntry>(entry) : Failure(not_usable_yet(entry));
  return fail(ErrorCode::invalid,
              fmt::format("{} is for installed packages of {}: it has no runfile", entry.id, entry.base_version),
              "Say \"userspace: keep\" in the plan, or take an entry with a runfile.");
}

std::string runfile_of(const CatalogueEntry& entry) {
  return fmt::format("{}/NVIDIA-Linux-x86_64-{}.run", kRunfiles, entry.base_version);
}

std::string build_name(const CatalogueEntry& entry, std::string_view kernel) {
  return fmt::format("{}-{:.12}-{}", entry.base_version, entry.commit, kernel);
}

std::string build_log_of(std::string_view name) { return fmt::format("{}/{}{}.log", kLogs, kBuildLogPrefix, name); }

std::vector<std::string> mirrors_of(const Parameters& parameters) {
  auto mirrors = parameters.value("mirrors", std::vector<std::string>());
  for (std::string& mirror : mirrors) mirror.erase(mirror.find_last_not_of('/') + 1);
  return mirrors;
}

bool can_be_made(const Error& error) { return error.code == ErrorCode::not_found || error.code == ErrorCode::invalid; }

Result<void> validate_staging(const Parameters& parameters) {
  const auto id = parameters.at("entry").get<std::string>();
  const bool word = id == kChosenEntry || id == kNoEntry;
  if (!word && (std::ranges::count(id, '/') != 1 || id.front() == '/' || id.back() == '/'))
    return fail(ErrorCode::invalid, fmt::format("entry: '{}' is not FORK/BRANCH", id));
  const auto userspace = parameters.value("userspace", std::string(kRunfile));
  if (userspace != kKeepPackages && userspace != kRunfile && userspace != kChosenUserspace)
    return fail(ErrorCode::invalid, fmt::format("userspace: '{}' is neither keep, runfile nor chosen", userspace));
  return check_mirrors(parameters.value("mirrors", std::vector<std::string>()));
}

Result<void> check_mirrors(const std::vector<std::string>& mirrors) {
  for (const std::string& mirror : mirrors)
    if (const std::string shown = without_user_info(mirror); !is_mirror(mirror))
      return fail(ErrorCode::invalid, fmt::format("mirrors: '{}' is no file:///, http:// or https:// URL", shown));
    else if (shown != mirror)
      return fail(
          ErrorCode::invalid,
          fmt::format("mirrors: '{}' has a user name: user and password belong into /root/.netrc (mode 0600)", shown));
  return {};
}

std::string unfinished(std::string_view path) {
  const std::size_t name = path.rfind('/') + 1;
  return fmt::format("{}.{}.new", path.substr(0, name), path.substr(name));
}

bool is_unfinished(std::string_view path) {
  return path.substr(path.rfind('/') + 1).starts_with('.') && path.ends_with(".new");
}

Result<std::string> make_unfinished(Host& host, std::string_view path) {
  std::string beside = unfinished(path);
  TRY(host.will_change(beside, Restore::discarded));
  TRY(host.will_change(path, Restore::discarded));
  TRY(host.remove_tree(beside));
  TRY(host.make_directory(beside));
  return beside;
}

Result<std::string> sha256_of_file(const Host& host, std::string_view path) {
  if (!S_ISREG(TRY(host.files().stat(path)).st_mode))
    return fail(ErrorCode::invalid, std::string(path) + " is not a regular file", "Remove it.");
  const Descriptor file(
      ::open(TRY(host.files().real_path(path)).c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return fail_errno(path);
  return sha256_of_file(file, path);
}

Result<void> need_room(const Host& host, std::string_view path, std::uint64_t bytes) {
  const std::vector<std::string> missing = TRY(host.files().missing_parents(path));
  const std::string_view first = missing.empty() ? path : std::string_view(missing.front());
  const std::string there(first.substr(0, std::max<std::size_t>(first.rfind('/'), 1)));
  const std::uint64_t free = TRY(host.files().free_bytes(there));
  if (free >= bytes) return {};
  return fail(ErrorCode::io, fmt::format("{} has {} MiB free, and {} are needed", there, free / kMiB, bytes / kMiB),
              "Make room there: old kernels and the package cache (apt-get clean) are the usual places.");
}

}  // namespace p2pd
