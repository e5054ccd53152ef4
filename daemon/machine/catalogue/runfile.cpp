// SPDX-License-Identifier: MIT
#include "machine/catalogue/runfile.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/sha256.hpp"
#include "base/url.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/fetch/download.hpp"

namespace p2pd {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSumLimit = 64U << 10;  // bytes
/// Trees of one host are not supersets of each other: each has versions that the other lacks.
constexpr std::string_view kTrees[] = {"/XFree86/Linux-x86_64", "/tesla"};

Download small(std::string url) {
  return {.url = std::move(url), .limit_bytes = kSumLimit, .sha256 = {}, .deadline = 60s, .stall = 15s};
}

/// Finds sum and size of the runfile at `place`, if a host has both.
Result<Runfile> at(const Host& host, Runfile place) {
  const std::string name = place.path.substr(place.path.rfind('/') + 1);
  const std::string text = TRY(fetch_text(host, small(place.sum_url())));
  place.sha256 = TRY_IN(without_user_info(place.sum_url()), published_sum(text, name));
  Download whole = small(place.url());
  whole.limit_bytes = Download().limit_bytes;
  place.bytes = TRY(remote_bytes(host, whole));
  return place;
}

}  // namespace

Result<std::string> version_of_modules(std::string_view version_mk) {
  std::optional<std::string> found;
  std::istringstream lines{std::string(version_mk)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');  // end of "=" or ":="
    if (equals == std::string::npos) continue;
    std::istringstream left(line.substr(0, line[equals - (equals > 0 ? 1 : 0)] == ':' ? equals - 1 : equals));
    std::istringstream right(line.substr(equals + 1));
    std::string name, value, more;
    if (!(left >> name) || name != "NVIDIA_VERSION" || left >> more) continue;
    right >> value;
    if (found || right >> more || !parse_version(value) || std::ranges::count(value, '.') > 2)
      return fail(ErrorCode::invalid, "version.mk does not name one driver version",
                  "Name a branch of NVIDIA's open modules, or of a fork of them.");
    found = value;
  }
  if (!found)
    return fail(ErrorCode::invalid, "version.mk has no NVIDIA_VERSION",
                "Name a branch of NVIDIA's open modules, or of a fork of them.");
  return *found;
}

Result<std::string> published_sum(std::string_view text, std::string_view name) {
  std::istringstream lines{std::string(text)};
  std::optional<std::string> found;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string sum, file;
    words >> sum >> file;
    if (file.starts_with('*')) file.erase(0, 1);  // mark of a binary file
    if (!is_sha256(sum) || (file != name && !file.ends_with(fmt::format("/{}", name)))) continue;
    if (found && *found != sum) return fail(ErrorCode::invalid, fmt::format("two sums of {}", name));
    found = sum;
  }
  if (!found) return fail(ErrorCode::invalid, fmt::format("no SHA-256 of {}", name));
  return *found;
}

Result<Runfile> find_runfile(const Host& here, const std::vector<std::string>& hosts, const std::string& version) {
  std::optional<Error> trouble;  // first error other than a plain "not here"
  std::vector<std::string> asked;
  for (const std::string& host : hosts) {
    for (const std::string_view tree : kTrees) {
      Runfile place{host, fmt::format("{}/{}/NVIDIA-Linux-x86_64-{}.run", tree, version, version), {}, 0};
      Result<Runfile> found = at(here, place);
      if (found || found.error().code == ErrorCode::interrupted) return found;
      if (found.error().code == ErrorCode::not_found) continue;
      if (!trouble) trouble = std::move(found).error();
      if (trouble->code == ErrorCode::busy || trouble->code == ErrorCode::timeout)
        break;  // fault of the host, not of the tree
    }
    asked.push_back(without_user_info(host));
  }
  if (trouble) return Failure(std::move(*trouble));
  return fail(
      ErrorCode::not_found,
      fmt::format("no runfile of driver {} with a published SHA-256 at {}", version, fmt::join(asked, ", ")),
      "Name a mirror that has NVIDIA-Linux-x86_64-" + version + ".run and its .run.sha256sum: --runfile-host URL.");
}

}  // namespace p2pd
