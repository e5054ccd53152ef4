// SPDX-License-Identifier: MIT
#pragma once

#include <systemd/sd-bus.h>

#include <string>
#include <system_error>
#include <utility>

namespace p2pd {

/// What a negative return code of libsystemd means.
inline std::string error_text(int code) { return std::generic_category().message(code < 0 ? -code : code); }

/// An sd_bus_error that is freed.
class BusError {
 public:
  BusError() = default;
  BusError(const BusError&) = delete;
  BusError& operator=(const BusError&) = delete;
  ~BusError() { sd_bus_error_free(&error_); }
  operator sd_bus_error*() { return &error_; }  // NOLINT: stands for what it wraps
  const sd_bus_error& get() const { return error_; }
  bool is(const char* name) const { return sd_bus_error_has_name(&error_, name) != 0; }
  std::string text(int code) const { return error_.message != nullptr ? error_.message : error_text(code); }

 private:
  sd_bus_error error_{};
};

/// A reference to a message.
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
  operator sd_bus_message*() const { return message_; }  // NOLINT: stands for what it wraps
  sd_bus_message** out() { return &message_; }

 private:
  sd_bus_message* message_ = nullptr;
};

}  // namespace p2pd
