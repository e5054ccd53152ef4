// SPDX-License-Identifier: MIT
#include "machine/modules/compat.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace p2pd {
namespace {

struct Header {
  std::string_view name;
  std::string_view text;
};
constexpr Header kHeaders[] = {
#include "compat.inc"  // config/compat/*.h as rows of name and raw string, made by CMake
};
constexpr std::size_t kDropInLimit = 1U << 20;  // bytes

}  // namespace

Result<std::string> compat_header(const Host& host, std::string_view name) {
  const std::string path = fmt::format("{}/{}", kCompatDropIns, name);
  auto text = host.files().read(path, kDropInLimit);
  if (text || text.error().code != ErrorCode::not_found) return text;
  const auto found = std::ranges::find(kHeaders, name, &Header::name);
  if (found != std::end(kHeaders)) return std::string(found->text);
  return fail(ErrorCode::not_found, fmt::format("there is no compat header {}", name), "Put it at " + path + ".");
}

Result<bool> applies(const Host& host, const BuildTarget& target, const CompatRule& rule) {
  const auto text = kernel_header(host, target, rule.header);
  if (!text && rule.replaces() && target.has_headers && text.error().code == ErrorCode::not_found) return true;
  if (!text) return Failure(text.error());
  return (text->find(rule.pattern) != std::string::npos) != rule.gone;
}

Result<std::vector<std::string>> rules_for(const Host& host, const Catalogue& all, const CatalogueEntry& entry,
                                           const BuildTarget& target) {
  std::vector<std::string> applying;
  for (const std::string& name : entry.compat) {
    const CompatRule& rule = all.compat_rules.at(name);
    auto needed = applies(host, target, rule);
    if (!needed) {
      needed.error().next = "apt-get install --reinstall linux-headers-" + target.release;
      return Failure(std::move(needed).error().in("headers of " + target.release));
    }
    if (!*needed) continue;
    if (rule.include.empty())
      return fail(ErrorCode::invalid,
                  fmt::format("in {}, {}, which {} does not know", target.release, rule.why, entry.id),
                  "Use an entry that knows it, or remove that kernel.");
    applying.push_back(name);
  }
  return applying;
}

}  // namespace p2pd
