// SPDX-License-Identifier: MIT
// Reference: systemd-timesyncd(8), /run/systemd/timesync/synchronized.
#include "worker/clock_sync.hpp"

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/log.hpp"

namespace p2pd {
namespace {

constexpr double kEarly = 15 * 60;                  // seconds since the boot
constexpr std::chrono::seconds kClockPatience{60};  // limit of the wait: there may be no time server

double uptime() {
  double seconds = kEarly;
  std::ifstream("/proc/uptime") >> seconds;
  return seconds;
}

/// True if a time service runs that has not yet set the clock.
bool is_due() {
  std::error_code unread;
  return std::filesystem::exists("/run/systemd/timesync", unread) &&
         !std::filesystem::exists("/run/systemd/timesync/synchronized", unread);
}

}  // namespace

void wait_for_clock(const Mailbox& mailbox, Publisher& publisher) {
  const auto begun = std::chrono::steady_clock::now();
  while (uptime() < kEarly && is_due()) {
    if (mailbox.stopping() || mailbox.asked() || mailbox.has_waiting()) return;
    if (std::chrono::steady_clock::now() - begun > kClockPatience)
      return log::warning("the clock is not set, and not waited for any longer");
    publisher.waiting("the clock is not set yet");
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace p2pd
