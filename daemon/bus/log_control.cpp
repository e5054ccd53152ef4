// SPDX-License-Identifier: MIT
#include "bus/log_control.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.hpp"
#include "bus/sd_bus.hpp"

namespace p2pd {
namespace {

// syslog has more levels than p2pd: a level is shown by its first name, and set by any of its names
constexpr std::array<std::pair<const char*, log::Level>, 8> kLevels = {{
    {"debug", log::Level::debug},
    {"info", log::Level::info},
    {"notice", log::Level::info},
    {"warning", log::Level::warning},
    {"err", log::Level::error},
    {"crit", log::Level::critical},
    {"alert", log::Level::critical},
    {"emerg", log::Level::critical},
}};

int get_level(sd_bus*, const char*, const char*, const char*, sd_bus_message* reply, void*, sd_bus_error*) {
  const auto level = std::max(log::level(), log::Level::debug);
  const auto row = std::ranges::find(kLevels, level, &std::pair<const char*, log::Level>::second);
  return sd_bus_message_append(reply, "s", row == kLevels.end() ? "info" : row->first);
}

int set_level(sd_bus*, const char*, const char*, const char*, sd_bus_message* value, void*, sd_bus_error* error) {
  const char* name = nullptr;
  const int code = sd_bus_message_read(value, "s", &name);
  if (code < 0) return code;
  const auto row =
      std::ranges::find_if(kLevels, [&](const auto& level) { return std::string_view(level.first) == name; });
  if (row == kLevels.end())
    return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS, "no log level is called \"%s\"", name);
  log::set_level(row->second);
  return 0;
}

int get_target(sd_bus*, const char*, const char*, const char*, sd_bus_message* reply, void*, sd_bus_error*) {
  return sd_bus_message_append(reply, "s", "journal-or-kmsg");
}

int set_target(sd_bus*, const char*, const char*, const char*, sd_bus_message*, void*, sd_bus_error* error) {
  return sd_bus_error_set(error, SD_BUS_ERROR_NOT_SUPPORTED, "p2pd logs to the journal");
}

int get_identifier(sd_bus*, const char*, const char*, const char*, sd_bus_message* reply, void*, sd_bus_error*) {
  return sd_bus_message_append(reply, "s", "p2pd");
}

// NOLINTBEGIN: libsystemd's macros
const sd_bus_vtable kVtable[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_WRITABLE_PROPERTY("LogLevel", "s", guarded<get_level>, guarded<set_level>, 0, 0),
    SD_BUS_WRITABLE_PROPERTY("LogTarget", "s", guarded<get_target>, guarded<set_target>, 0, 0),
    SD_BUS_PROPERTY("SyslogIdentifier", "s", guarded<get_identifier>, 0, 0),
    SD_BUS_VTABLE_END,
};
// NOLINTEND

}  // namespace

Result<void> publish_log_control(sd_bus* bus) {
  const int code = sd_bus_add_object_vtable(bus, nullptr, "/org/freedesktop/LogControl1", "org.freedesktop.LogControl1",
                                            kVtable, nullptr);
  if (code < 0) return fail(ErrorCode::io, fmt::format("LogControl1: {}", error_text(code)));
  return {};
}

}  // namespace p2pd
