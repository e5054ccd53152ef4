// SPDX-License-Identifier: MIT
#pragma once

#include <systemd/sd-bus.h>

#include <cerrno>
#include <exception>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/log.hpp"

namespace p2pd {

/// Message for a negative return code of libsystemd.
inline std::string error_text(int code) { return std::generic_category().message(code < 0 ? -code : code); }

/// Returns the result of `work`, or -EIO after an exception, which is logged: none may pass through libsystemd, which
/// is C.
template <class Work>
int guard(const Work& work) noexcept {
  try {
    return work();
  } catch (const std::exception& error) {
    log::error("unexpected: {}", error.what());
  } catch (...) {
    log::error("unexpected exception of unknown type");
  }
  return -EIO;
}

template <auto callback>
struct Guarded;
template <class First, class... Rest, int (*callback)(First, Rest...)>
struct Guarded<callback> {
  static int call(First first, Rest... rest) noexcept {
    const int code = guard([&] { return callback(first, rest...); });
    // the event loop disables a source that returns an error, for good
    return std::is_same_v<First, sd_event_source*> && code < 0 ? 0 : code;
  }
};
/// `callback` in a form that libsystemd may call. On the bus an exception becomes an error of the call; the event loop
/// continues.
template <auto callback>
inline constexpr auto guarded = &Guarded<callback>::call;

/// An sd_bus_error that is freed on destruction.
class BusError {
 public:
  BusError() = default;
  BusError(const BusError&) = delete;
  BusError& operator=(const BusError&) = delete;
  ~BusError() { sd_bus_error_free(&error_); }
  operator sd_bus_error*() { return &error_; }  // NOLINT: implicit conversion to the wrapped type
  std::string text(int code) const { return error_.message != nullptr ? error_.message : error_text(code); }

 private:
  sd_bus_error error_{};
};

/// Reference to a message.
class MessageRef {
 public:
  MessageRef() = default;
  explicit MessageRef(sd_bus_message* message) : message_(sd_bus_message_ref(message)) {}
  MessageRef(MessageRef&& other) noexcept : message_(std::exchange(other.message_, nullptr)) {}
  MessageRef& operator=(MessageRef&& other) noexcept {
    std::swap(message_, other.message_);
    return *this;
  }
  MessageRef(const MessageRef& other) : message_(sd_bus_message_ref(other.message_)) {}
  MessageRef& operator=(const MessageRef&) = delete;
  ~MessageRef() { sd_bus_message_unref(message_); }
  operator sd_bus_message*() const { return message_; }  // NOLINT: implicit conversion to the wrapped type
  sd_bus_message** out() { return &message_; }

 private:
  sd_bus_message* message_ = nullptr;
};

}  // namespace p2pd
