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
  return fail(code == -ETIMEDOUT ? ErrorCode::timeout : ErrorCode::io,
              fmt::format("logind: {}: {}", what, error.text(code)));
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
  Descriptor lock(::fcntl(fd, F_DUPFD_CLOEXEC, 3));  // the message owns its own descriptor
  if (!lock) return fail_errno("logind: inhibit");
  return lock;
}

Result<void> Logind::schedule(const Schedule& schedule, const std::string& message) {
  const Bus bus = TRY(connect());
  BusError error;
  int code =
      sd_bus_call_method(bus.get(), kName, kPath, kManager, "SetWallMessage", error, nullptr, "sb", message.c_str(), 1);
  if (code < 0) return failed("wall message", error, code);
  BusError second;
  code = sd_bus_call_method(bus.get(), kName, kPath, kManager, "ScheduleShutdown", second, nullptr, "st",
                            schedule.kind.c_str(), schedule.when);
  if (code < 0) return failed("schedule a " + schedule.kind, second, code);
  return {};
}

Result<void> Logind::cancel() {
  const Bus bus = TRY(connect());
  BusError error;
  const int code = sd_bus_call_method(bus.get(), kName, kPath, kManager, "CancelScheduledShutdown", error, nullptr, "");
  if (code < 0) return failed("call off a restart", error, code);
  return {};
}

Result<bool> Logind::going_down() {
  const Bus bus = TRY(connect());
  BusError error;
  int preparing = 0;
  const int code =
      sd_bus_get_property_trivial(bus.get(), kName, kPath, kManager, "PreparingForShutdown", error, 'b', &preparing);
  if (code < 0) return failed("query of the shutdown state", error, code);
  return preparing != 0;
}

Result<std::optional<Logind::Schedule>> Logind::scheduled() {
  const Bus bus = TRY(connect());
  BusError error;
  MessageRef reply;
  const int code =
      sd_bus_get_property(bus.get(), kName, kPath, kManager, "ScheduledShutdown", error, reply.out(), "(st)");
  const char* kind = nullptr;
  Schedule found;
  if (code < 0 || sd_bus_message_read(reply, "(st)", &kind, &found.when) < 0)
    return failed("query of a scheduled shutdown", error, code);
  found.kind = kind;
  if (found.kind.empty()) return std::optional<Schedule>();
  return std::optional(std::move(found));
}

}  // namespace p2pd
