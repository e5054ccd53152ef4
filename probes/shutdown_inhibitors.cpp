// SPDX-License-Identifier: MIT
// shutdown-inhibitors: no block lock prevents a restart of this machine now.
// A backup, an upgrade or a person takes a block lock of logind for that time. logind lets root through, so p2pd checks
// itself. A delay lock only makes a restart wait some seconds; locks on sleep or the lid's switch do not matter.
// Reads /run/systemd/inhibit, one file per lock, readable by all. Reference: systemd.io/INHIBITOR_LOCKS;
// src/login/logind-inhibit.c of systemd, inhibitor_save() (the keys, values in C quoting).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/probe.hpp"
#include "machine/driver/logind_files.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kInhibitors = "/run/systemd/inhibit";
constexpr std::size_t kFile = 64U << 10;  // bytes

/// True for a block lock on shutdown; WHAT is a list: "shutdown:sleep".
bool blocks_shutdown(const std::map<std::string, std::string>& lock) {
  const auto what = lock.find("WHAT"), mode = lock.find("MODE");
  return what != lock.end() && mode != lock.end() && mode->second.starts_with("block") &&
         (":" + what->second + ":").find(":shutdown:") != std::string::npos;
}

Result<Finding> check(const Host& host, const Parameters&) {
  const auto names = host.files().list(kInhibitors);
  if (!names && names.error().code == ErrorCode::not_found) return not_applicable("logind does not run here");
  Finding finding;
  std::vector<std::string> who;
  for (const std::string& name : TRY(Result<std::vector<std::string>>(names))) {
    const std::string path = std::string(kInhibitors) + "/" + name;
    if (name.ends_with(".ref")) continue;  // a pipe: the lock exists as long as its other end
    const auto text = host.files().read(path, kFile);
    if (!text && text.error().code == ErrorCode::not_found) continue;  // released meanwhile
    auto lock = logind_fields(TRY(Result<std::string>(text)));
    if (!blocks_shutdown(lock)) continue;
    who.push_back(fmt::format("{} (process {}): {}", lock["WHO"], lock["PID"], lock["WHY"]));
    finding.saw(path, who.back());
  }
  finding.facts["blocks"] = who;
  if (who.empty())
    finding.set(Verdict::pass, "nothing inhibits a restart");
  else
    finding.set(Verdict::fail, fmt::format("a restart is blocked by {}", fmt::join(who, "; ")),
                "Wait until it has ended, or end it; \"systemd-inhibit --list\" shows the reasons.");
  return finding;
}

}  // namespace

extern const Probe kShutdownInhibitors = {
    .id = "shutdown-inhibitors",
    .asserts = "nothing inhibits a restart of this machine now",
    .check = check,
    .transient = true,
    .skip_on_image = true,
};

}  // namespace p2pd
