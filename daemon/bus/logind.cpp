// SPDX-License-Identifier: MIT
#include "bus/logind.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <systemd/sd-bus.h>

#include <memory>

#include "bus/sd_bus.hpp"

namespace p2pd {
namespace {

constexpr const char* kName = "org.freedesktop.login1";
constexpr const char* kPath = "/org/freedesktop/login1";
constexpr const char* kManager = "org.freedesktop.login1.Manager";

Failure failed(std::string_view what, const BusError& error, int code) {
  return fail(code == -ETIMEDOUT ? ErrorCode::timeout : ErrorCode::io, fmt::format("logind: {}: {}", what, error.text(code)));
}

struct Close {
  void operator()(sd_bus* bus) const { sd_bus_flush_close_unref(bus); }
};
using Bus = std::unique_ptr<sd_bus, Close>;

Result<Bus> connect() {
  sd_bus* bus = nullptr;
  const int code = sd_bus_open_system(&bus);
  if (code < 0) return fail(ErrorCode::not_found, fmt::format("no system bus: {}", error_text(code)));
  sd_bus_set_method_call_timeout(bus, 5'000'000);
  return Bus(bus);
}

}  // namespace

Result<Descriptor> Logind::inhibit(const std::string& why) {
  const Bus bus = TRY(connect());
  BusError error;
  MessageRef reply;
  const int code = sd_bus_call_method(bus.get(), kName, kPath, kManager, "Inhibit", error, reply.out(), "ssss",
                                      "shutdown:sleep", "p2pd", why.c_str(), "block");
  int fd = -1;
  if (code < 0 || sd_bus_message_read(reply, "h", &fd) < 0) return failed("inhibit", error, code);
  Descriptor lock(::fcntl(fd, F_DUPFD_CLOEXEC, 3));  // the message owns its own
  if (!lock) return fail_errno("logind: inhibit");
  return lock;
}

Result<void> Logind::schedule_restart(std::chrono::seconds delay, const std::string& message) {
  const Bus bus = TRY(connect());
  BusError error;
  int code = sd_bus_call_method(bus.get(), kName, kPath, kManager, "SetWallMessage", error, nullptr, "sb", message.c_str(), 1);
  if (code < 0) return failed("wall message", error, code);
  const auto at = std::chrono::duration_cast<std::chrono::microseconds>((std::chrono::system_clock::now() + delay).time_since_epoch());
  BusError second;
  code = sd_bus_call_method(bus.get(), kName, kPath, kManager, "ScheduleShutdown", second, nullptr, "st", "reboot",
                            static_cast<std::uint64_t>(at.count()));
  if (code < 0) return failed("schedule a restart", second, code);
  return {};
}

Result<void> Logind::cancel_restart() {
  const Bus bus = TRY(connect());
  BusError error;
  const int code = sd_bus_call_method(bus.get(), kName, kPath, kManager, "CancelScheduledShutdown", error, nullptr, "");
  if (code < 0) return failed("call off a restart", error, code);
  return {};
}

Result<bool> Logind::restart_under_way() {
  const Bus bus = TRY(connect());
  BusError error;
  int preparing = 0;
  int code = sd_bus_get_property_trivial(bus.get(), kName, kPath, kManager, "PreparingForShutdown", error, 'b', &preparing);
  if (code < 0) return failed("is it restarting", error, code);
  if (preparing != 0) return true;
  BusError second;
  MessageRef reply;
  code = sd_bus_get_property(bus.get(), kName, kPath, kManager, "ScheduledShutdown", second, reply.out(), "(st)");
  const char* kind = nullptr;
  std::uint64_t when = 0;
  if (code < 0 || sd_bus_message_read(reply, "(st)", &kind, &when) < 0) return failed("is a restart scheduled", second, code);
  return std::string_view(kind) == "reboot";
}

}  // namespace p2pd
