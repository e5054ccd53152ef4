// SPDX-License-Identifier: MIT
#include "machine/modules/mirrored_build.hpp"

#include <fmt/format.h>

#include "base/units.hpp"
#include "machine/catalogue/staging.hpp"

namespace p2pd {
namespace {

constexpr std::uint64_t kSpareBytes = 64 * kMiB;  // for the file system and other writers

/// Fetches the build into `scratch`, checks it there, and gives it its name.
Result<void> take_into(Host& host, const Mirror& mirror, const ModuleBuild& build, const std::string& scratch) {
  for (const std::string& file : files_of_build())
    TRY(mirror.fetch(host, mirrored_build(build) + file, scratch + "/" + file));
  ModuleBuild fetched = build;
  fetched.directory = scratch;
  TRY(check_build(host, fetched));
  nlohmann::json record = parse_json(TRY(host.files().read(scratch + std::string(kBuildRecord), kBuildRecordLimit)));
  record["mirror"] = {{"url", mirror.url()}};
  TRY(host.create(scratch + std::string(kBuildRecord), record.dump(1) + "\n"));
  TRY(host.remove_tree(build.directory));
  return host.move(scratch, build.directory);
}

}  // namespace

std::vector<std::string> files_of_build() {
  std::vector<std::string> files = {std::string(kBuildRecord.substr(1))};
  for (const std::string_view module : kModuleNames) files.push_back(std::string(module) + ".ko");
  return files;
}

std::string mirrored_build(const ModuleBuild& build) {
  return std::string(kMirrorBuilds) + build.directory.substr(build.directory.rfind('/') + 1) + "/";
}

Result<void> require_mirrored(const Mirror& mirror, const ModuleBuild& build) {
  const std::string at = mirrored_build(build);
  for (const std::string& file : files_of_build())
    if (!mirror.has(at + file)) return fail(ErrorCode::not_found, fmt::format("it has no {}{}", at, file));
  return {};
}

Result<void> take_build(Host& host, const Mirror& mirror, const ModuleBuild& build) {
  TRY(require_mirrored(mirror, build));
  std::uint64_t bytes = kSpareBytes;
  for (const std::string& file : files_of_build()) bytes += mirror.bytes_of(mirrored_build(build) + file);
  TRY(need_room(host, build.directory, bytes));
  const std::string scratch = TRY(make_unfinished(host, build.directory));
  const auto done = take_into(host, mirror, build, scratch);
  const auto cleared = host.remove_tree(scratch);
  return done ? cleared : done;
}

std::string origin_of(const nlohmann::json& record) {
  const auto text_of = [&](const char* key) {
    const nlohmann::json::json_pointer at(fmt::format("/mirror/{}", key));
    return record.contains(at) && record[at].is_string() ? record[at].get<std::string>() : std::string();
  };
  const std::string url = text_of("url"), refused = text_of("refused");
  if (!refused.empty()) return fmt::format("mirror refused: {}; built here", refused);
  return url.empty() ? "" : "taken from " + url;
}

}  // namespace p2pd
