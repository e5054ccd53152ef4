// SPDX-License-Identifier: MIT
#include "machine/packages/apt_lists.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "base/log.hpp"
#include "machine/packages/apt.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kLists = "/var/lib/apt/lists";
constexpr const char* kTouchedByUpdate[] = {"/var/lib/apt/lists", "/var/lib/apt/lists/partial",
                                            "/var/lib/apt/periodic/update-success-stamp"};
constexpr std::time_t kDay = 86'400;
constexpr std::chrono::minutes kUpdateDeadline{10};
constexpr std::string_view kBlame[] = {"Unable to locate", "no installation candidate", "Failed to fetch",
                                       "unmet dependencies", "held broken packages"};

}  // namespace

std::string stale_lists(const Host& host) {
  const auto names = host.names(kLists);
  if (std::ranges::none_of(names, [](const std::string& name) { return name.find("_Packages") != name.npos; }))
    return "apt has no package lists";
  std::time_t newest = 0;  // the lists themselves have the times of their servers
  for (const char* path : kTouchedByUpdate)
    if (const auto info = host.files().stat(path)) newest = std::max(newest, info->st_mtim.tv_sec);
  const std::time_t age = std::time(nullptr) - newest;
  return age <= kDay ? "" : fmt::format("apt's package lists are {} days old", age / kDay);
}

Command update_command() {
  Command command =
      apt_get({"-oAcquire::http::Timeout=20", "-oAcquire::https::Timeout=20", "-oAcquire::Retries=1", "update"});
  command.deadline = kUpdateDeadline;
  return command;
}

Result<void> refresh_lists(Host& host, const std::string& why) {
  log::info("{}: fetching them", why);
  const auto done = host.run(update_command());
  if (done) return {};
  if (done.error().code == ErrorCode::interrupted) return Failure(done.error());
  log::warning("not all of apt's sources answered: {}", done.error().message);
  return {};
}

bool blames_lists(const Error& error) {
  return error.code == ErrorCode::command && std::ranges::any_of(kBlame, [&](std::string_view words) {
           return error.message.find(words) != std::string::npos;
         });
}

}  // namespace p2pd
