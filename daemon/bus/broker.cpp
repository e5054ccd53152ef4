// SPDX-License-Identifier: MIT
#include "bus/broker.hpp"

#include <fmt/format.h>
#include <sys/inotify.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/directories.hpp"
#include "base/json_members.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
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

/// Publishes org.freedesktop.LogControl1, with which "systemctl service-log-level" reads and sets the log level.
/// Reference: org.freedesktop.LogControl1(5).
Result<void> publish_log_control(sd_bus* bus) {
  const int code = sd_bus_add_object_vtable(bus, nullptr, "/org/freedesktop/LogControl1", "org.freedesktop.LogControl1",
                                            kVtable, nullptr);
  if (code < 0) return fail(ErrorCode::io, fmt::format("LogControl1: {}", error_text(code)));
  return {};
}

constexpr int kIdle = 30;  // seconds

/// Event loop and its sources.
class Broker {
 public:
  ~Broker() {
    manager_.reset();
    for (sd_event_source* source : {watch_, timer_}) sd_event_source_disable_unref(source);
    sd_bus_flush_close_unref(bus_);
    sd_event_unref(event_);
  }

  Result<void> start(const std::filesystem::path& state, Manager::Gpus gpus) {
    const char* idle = std::getenv("P2PD_IDLE_S");
    idle_ = static_cast<std::uint64_t>(idle == nullptr ? kIdle : std::atoi(idle)) * 1'000'000;
    TRY(need("event loop", sd_event_default(&event_)));
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    TRY(need("signals", sd_event_add_signal(event_, nullptr, SIGTERM, nullptr, nullptr)));  // ends the loop
    TRY(need("signals", sd_event_add_signal(event_, nullptr, SIGINT, nullptr, nullptr)));
    TRY(need("watchdog", sd_event_set_watchdog(event_, 1)));
    TRY(need("system bus", sd_bus_open_system(&bus_)));
    TRY(need("system bus", sd_bus_attach_event(bus_, event_, SD_EVENT_PRIORITY_NORMAL)));
    TRY(need("system bus", sd_bus_set_exit_on_disconnect(bus_, 1)));
    TRY(need("system bus", sd_bus_add_filter(bus_, nullptr, guarded<heard>, this)));
    manager_.emplace(bus_, event_, state, std::move(gpus));
    TRY(manager_->publish());
    TRY(publish_log_control(bus_));
    const std::string directory = runtime_directory();
    TRY(need(directory.c_str(), sd_event_add_inotify(event_, &watch_, directory.c_str(), IN_MOVED_TO | IN_DELETE,
                                                     guarded<published>, this)));
    TRY(need("timer", sd_event_add_time_relative(event_, &timer_, CLOCK_MONOTONIC, kTick, 0, guarded<tick>, this)));
    note_activity();
    TRY(need("its name on the bus",
             sd_bus_request_name(bus_, bus_names::kService, 0)));  // last: the service answers from now on
    tell_systemd("READY=1\n");
    return {};
  }

  int run() {
    const int code = sd_event_loop(event_);
    ::sd_notify(0, "STOPPING=1");
    return code;
  }

 private:
  static constexpr std::uint64_t kTick = 1'000'000;  // microseconds

  static Result<void> need(const char* what, int code) {
    if (code >= 0) return {};
    return fail(ErrorCode::io, fmt::format("{}: {}", what, error_text(code)));
  }

  void note_activity() { sd_event_now(event_, CLOCK_MONOTONIC, &active_); }

  static int heard(sd_bus_message*, void* broker, sd_bus_error*) {
    static_cast<Broker*>(broker)->note_activity();
    return 0;
  }

  static int published(sd_event_source*, const inotify_event*, void* data) {
    auto* broker = static_cast<Broker*>(data);
    broker->manager_->look();
    broker->tell_systemd("");
    return 0;
  }

  /// Exits after a long time without requests. Tells systemd first, then releases the name: a call from then on starts
  /// p2pd again.
  static int tick(sd_event_source* source, std::uint64_t, void* data) {
    auto* broker = static_cast<Broker*>(data);
    std::uint64_t now = 0;
    sd_event_now(broker->event_, CLOCK_MONOTONIC, &now);
    if (!broker->leaving_ && broker->manager_->idle() && now > broker->active_ + broker->idle_) {
      ::sd_notify(0, "STOPPING=1");
      sd_bus_release_name(broker->bus_, bus_names::kService);
      broker->leaving_ = true;
    }
    if (broker->leaving_ && broker->manager_->idle() && sd_bus_process(broker->bus_, nullptr) == 0)
      return sd_event_exit(broker->event_, 0);
    sd_event_source_set_time_relative(source, kTick);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
  }

  void tell_systemd(const char* first) const {
    const nlohmann::json& status = manager_->status();
    const nlohmann::json progress = status.value("progress", nlohmann::json::object());
    ::sd_notifyf(0, "%sSTATUS=%s", first,
                 fmt::format("{}: step {} of {}", status.value("state", ""), json_number<int>(progress, "done"),
                             json_number<int>(progress, "total"))
                     .c_str());
  }

  sd_event* event_ = nullptr;
  sd_bus* bus_ = nullptr;
  sd_event_source* watch_ = nullptr;
  sd_event_source* timer_ = nullptr;
  std::optional<Manager> manager_;
  std::uint64_t active_ = 0;  ///< CLOCK_MONOTONIC, microseconds
  std::uint64_t idle_ = 0;
  bool leaving_ = false;  ///< the name is released; earlier calls are still answered
};

}  // namespace

int answer_the_bus(const std::filesystem::path& state, Manager::Gpus gpus) {
  Broker broker;
  if (const Result<void> started = broker.start(state, std::move(gpus)); !started) {
    log::error("{}", started.error().text());
    return 1;
  }
  const int code = broker.run();
  if (code < 0) log::error("event loop: {}", error_text(code));
  return code == 0 ? 0 : 1;
}

}  // namespace p2pd
