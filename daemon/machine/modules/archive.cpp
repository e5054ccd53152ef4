// SPDX-License-Identifier: MIT
#include "machine/modules/archive.hpp"

#include <fmt/format.h>

namespace p2pd {
namespace {

constexpr std::chrono::minutes kTarDeadline{30};

}  // namespace

Result<void> pack(Host& host, const ArchivePaths& what, const std::string& tar) {
  Command command{{"tar", "--create", "--file=" + tar, "--directory=/", "--xattrs", "--null", "--verbatim-files-from",
                   "--no-recursion", "--files-from=-"}};
  for (const std::string& path : what.paths) command.input += path.substr(1) + '\0';
  if (!what.trees.empty()) command.argv.emplace_back("--recursion");
  for (const std::string& tree : what.trees) command.argv.push_back(tree.substr(1));
  command.deadline = kTarDeadline;
  TRY(host.run(command));
  return {};
}

Result<std::uint64_t> archive_bytes(const Host& host, const std::string& tar) {
  const auto listed = host.output_of({.argv = {"tar", "--list", "--file=" + tar}, .deadline = kTarDeadline});
  if (!listed && listed.error().code == ErrorCode::interrupted) return Failure(listed.error());
  if (!listed)
    return fail(ErrorCode::invalid, fmt::format("{} is damaged: {}", tar, listed.error().message),
                fmt::format("Restore it from a backup of this machine; or, to do without its files, make it an empty "
                            "archive: \"tar -cf {} -T /dev/null\".",
                            tar));
  return static_cast<std::uint64_t>(TRY(host.files().stat(tar)).st_size);
}

Result<void> unpack(Host& host, const std::string& tar) {
  Command command{{"tar", "--extract", "--file=" + tar, "--directory=/", "--xattrs", "--xattrs-include=*",
                   "--same-owner", "--preserve-permissions"}};
  command.deadline = kTarDeadline;
  TRY(host.run(command));
  return {};
}

}  // namespace p2pd
