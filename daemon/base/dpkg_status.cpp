// SPDX-License-Identifier: MIT
#include "base/dpkg_status.hpp"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <array>

namespace p2pd {
namespace {

constexpr std::size_t kLimit = 32U << 20;  // bytes; a desktop with everything has 10 MiB

bool named(std::string_view field, std::string_view name) {
  return field.size() == name.size() && ::strncasecmp(field.data(), name.data(), name.size()) == 0;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// "install ok installed" into its three words; false for anything else.
bool read_status(std::string_view text, DpkgPackage& package) {
  std::array<std::string_view, 3> words;
  for (std::string_view& word : words) {
    text = trimmed(text);
    word = text.substr(0, std::min(text.find(' '), text.size()));
    text.remove_prefix(word.size());
  }
  package.want = words[0];
  package.flag = words[1];
  package.state = words[2];
  return !words[2].empty() && text.empty();
}

}  // namespace

Result<std::vector<DpkgPackage>> parse_dpkg_status(std::string_view text) {
  std::vector<DpkgPackage> packages;
  DpkgPackage package;
  bool open = false;  // inside the paragraph of a package
  int number = 0;
  const auto broken = [&](std::string_view what) {
    return fail(ErrorCode::invalid, fmt::format("line {}: {}", number, what));
  };
  if (!text.empty() && !text.ends_with('\n')) return fail(ErrorCode::invalid, "it ends in the middle of a line");
  while (!text.empty() || open) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (trimmed(line).empty()) {
      if (open && (package.name.empty() || package.state.empty())) return broken("a package without name or status");
      if (open) packages.push_back(std::exchange(package, {}));
      open = false;
      continue;
    }
    if (line.front() == ' ' || line.front() == '\t') continue;  // goes on with the field above
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return broken("not a field");
    open = true;
    const std::string_view field = line.substr(0, colon);
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (named(field, "Package")) package.name = value;
    if (named(field, "Architecture")) package.architecture = value;
    if (named(field, "Version")) package.version = value;
    if (named(field, "Status") && !read_status(value, package)) return broken("a status that is not three words");
  }
  return packages;
}

Result<std::vector<DpkgPackage>> dpkg_packages(const Host& host) {
  auto packages = TRY_IN(kDpkgStatus, parse_dpkg_status(TRY(host.files().read(kDpkgStatus, kLimit))));
  if (packages.empty()) return fail(ErrorCode::invalid, std::string(kDpkgStatus) + " lists no package");
  return packages;
}

}  // namespace p2pd
