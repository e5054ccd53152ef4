// SPDX-License-Identifier: MIT
#include "machine/modules/module_build.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/sha256.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/module_file.hpp"

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

namespace {

/// Files that distinguish builds of a kernel release: distributions rebuild a release under the same name.
constexpr std::string_view kHeaderFiles[] = {"Module.symvers", "include/generated/autoconf.h",
                                             "include/generated/utsversion.h", "include/generated/package.h",
                                             "include/generated/uapi/linux/version.h"};

std::string headers_identity(const Host& host, const BuildTarget& target) {
  std::string all;
  for (const std::string_view file : kHeaderFiles)
    all += fmt::format("{} {}\n", file, sha256_of(kernel_header(host, target, file).value_or("")));
  return sha256_of(all);
}

Result<ModuleBuild> wanted_build(const Host& host, const Catalogue& all, const CatalogueEntry& entry,
                                 BuildTarget target) {
  if (!target.compiler)
    return fail(ErrorCode::not_found,
                fmt::format("{} would tell the compiler of {}", target.compiler_source, target.release),
                "Install that kernel's package anew: apt-get install --reinstall linux-image-" + target.release);
  ModuleBuild build{std::move(target), {}, {}, {}, {}};
  build.name = build_name(entry, build.target.release);
  build.rules = TRY(rules_for(host, all, entry, build.target));
  nlohmann::json compat = nlohmann::json::object();
  for (const std::string& rule : build.rules)
    compat[rule] = sha256_of(TRY(compat_header(host, all.compat_rules.at(rule).include)));
  build.made_of = {{"release", entry.base_version},
                   {"base_commit", entry.base_commit},
                   {"commit", entry.commit},
                   {"kernel", build.target.release},
                   {"headers", headers_identity(host, build.target)},
                   {"compiler", build.target.compiler->text()},
                   {"compat", std::move(compat)}};
  build.directory = fmt::format("{}/{}-{:.12}", kBuilds, build.name, sha256_of(build.made_of.dump()));
  return build;
}

Result<void> need_headers(const std::vector<BuildTarget>& targets) {
  for (const BuildTarget& target : targets) {
    if (target.has_headers || (!target.running && target.release != targets.back().release)) continue;
    return fail(ErrorCode::not_found,
                fmt::format("kernel {} has no headers, without which no module is built for it", target.release),
                "apt-get install linux-headers-" + target.release);
  }
  return {};
}

}  // namespace

Result<std::vector<ModuleBuild>> wanted_builds(const Host& host, const Catalogue& all, const CatalogueEntry& entry) {
  const std::vector<BuildTarget> targets = TRY(build_targets(host));
  TRY(need_headers(targets));
  std::vector<ModuleBuild> builds;
  for (const BuildTarget& target : targets)
    if (target.has_headers) builds.push_back(TRY(wanted_build(host, all, entry, target)));
  return builds;
}

Result<nlohmann::json> check_build(const Host& host, const ModuleBuild& build) {
  const std::string path = build.directory + std::string(kBuildRecord);
  const auto record = parse_json(TRY(host.files().read(path, kBuildRecordLimit)));
  if (!record.is_object() || record.value("made_of", nlohmann::json()) != build.made_of)
    return fail(ErrorCode::invalid, path + " is not the record of this build");
  nlohmann::json modules = TRY(describe_modules(host, build, build.directory));
  for (const auto& [name, module] : modules.items())  // an older record has no build ids, but the SHA-256
    if (!record.contains(nlohmann::json::json_pointer(fmt::format("/modules/{}/build_id", name))))
      module.erase("build_id");
  if (record.value("modules", nlohmann::json()) != modules)
    return fail(ErrorCode::invalid, "a module in " + build.directory + " is not the one that was built");
  return record;
}

Result<nlohmann::json> describe_modules(const Host& host, const ModuleBuild& build, const std::string& directory) {
  nlohmann::json modules = nlohmann::json::object();
  for (const std::string_view name : kModuleNames) {
    const std::string file = fmt::format("{}/{}.ko", directory, name);
    auto info = TRY(module_info(host, file));
    const std::string vermagic = info["vermagic"];
    if (vermagic.substr(0, vermagic.find(' ')) != build.target.release)
      return fail(ErrorCode::invalid,
                  fmt::format("{} is for kernel '{}', not {}", file, vermagic, build.target.release));
    if (const std::string release = build.made_of["release"]; info["version"] != release)
      return fail(ErrorCode::invalid, fmt::format("{} is of driver '{}', not {}", file, info["version"], release));
    const std::string srcversion = info["srcversion"];
    if (srcversion.empty() || srcversion.find_first_not_of("0123456789ABCDEF") != std::string::npos)
      return fail(ErrorCode::invalid, file + " has no srcversion");
    nlohmann::json& module = modules[name] = to_json({module_build_id(host, file), srcversion});
    module["sha256"] = TRY(sha256_of_file(host, file));
  }
  return modules;
}

}  // namespace p2pd
