// SPDX-License-Identifier: MIT
// Reference: cloud-init's /run/cloud-init/{enabled,result.json}; systemd-timesyncd(8), /run/systemd/timesync/synchronized.
#include "walk/first_boot.hpp"

#include <fmt/format.h>

#include <fstream>
#include <thread>

#include "base/log.hpp"
#include "base/package_locks.hpp"

namespace p2pd {
namespace {

constexpr double kEarly = 15 * 60;              // seconds since the boot
constexpr std::chrono::minutes kPatience{5};    // cloud-init may never end
constexpr std::chrono::seconds kClock{60};      // and there may be no time server

double uptime() {
  double seconds = kEarly;
  std::ifstream("/proc/uptime") >> seconds;
  return seconds;
}

/// Who is still at work on this boot; empty: nobody.
std::string at_work(const Host& host, std::chrono::steady_clock::duration waited) {
  const Root& files = host.files();
  if (files.exists("/run/cloud-init/enabled") && !files.exists("/run/cloud-init/result.json")) return "cloud-init has not ended";
  if (const auto locks = package_locks(host); locks && *locks && !(*locks)->empty())
    return fmt::format("{} (process {}) installs packages", (**locks)[0].process, (**locks)[0].pid);
  const bool sets_clock = files.exists("/run/systemd/timesync") && !files.exists("/run/systemd/timesync/synchronized");
  return sets_clock && waited < kClock ? "the clock is not set yet" : "";
}

}  // namespace

void wait_for_first_boot(const Mailbox& mailbox, Publisher& publisher) {
  if (uptime() > kEarly) return;
  const auto root = Root::open("/");
  if (!root) return;
  ProcessRunner runner;
  const Host host(*root, runner);
  const auto begun = std::chrono::steady_clock::now();
  for (;;) {
    const auto waited = std::chrono::steady_clock::now() - begun;
    const std::string who = at_work(host, waited);
    if (who.empty() || mailbox.stopping() || mailbox.asked() || mailbox.has_waiting()) return;
    if (waited > kPatience) {
      log::warning("not waited for any longer: {}", who);
      return;
    }
    publisher.waiting(who);
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace p2pd
