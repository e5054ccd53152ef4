// SPDX-License-Identifier: MIT
#include "bus/authority.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/log.hpp"

namespace p2pd {
namespace {

constexpr int kPendingOfOne = 8;
constexpr int kPending = 128;
constexpr std::uint64_t kPatience = 120'000'000;  // microseconds: a person types a password

constexpr const char* kDenied = SD_BUS_ERROR_ACCESS_DENIED;

/// User of the caller; nothing if the bus does not know it.
std::optional<uid_t> user_of(sd_bus_message* call) {
  sd_bus_creds* creds = nullptr;
  uid_t uid = 0;
  const bool known =
      sd_bus_query_sender_creds(call, SD_BUS_CREDS_EUID, &creds) >= 0 && sd_bus_creds_get_euid(creds, &uid) >= 0;
  sd_bus_creds_unref(creds);
  if (!known) return std::nullopt;
  return uid;
}

bool polkit_is_absent(const sd_bus_error* error) {
  for (const char* name :
       {SD_BUS_ERROR_SERVICE_UNKNOWN, SD_BUS_ERROR_NAME_HAS_NO_OWNER, "org.freedesktop.DBus.Error.Spawn.Failed",
        "org.freedesktop.DBus.Error.Spawn.ServiceNotFound", "org.freedesktop.systemd1.NoSuchUnit",
        "org.freedesktop.systemd1.UnitMasked"})
    if (sd_bus_error_has_name(error, name) != 0) return true;
  return false;
}

}  // namespace

struct Authority::Question {
  Authority* authority;
  MessageRef call;
  uid_t user;
  std::string action;
  bool interactive;
  std::function<void(const MessageRef&)> allowed;
  sd_bus_slot* asked = nullptr;
  sd_bus_track* caller = nullptr;

  ~Question() {
    sd_bus_slot_unref(asked);
    sd_bus_track_unref(caller);
    --authority->pending_;
    if (--authority->pending_of_[user] == 0) authority->pending_of_.erase(user);
  }
};

int Authority::authorize(sd_bus_message* call, const char* action, std::function<void(const MessageRef&)> allowed) {
  const std::optional<uid_t> user = user_of(call);
  if (user == 0U) {
    allowed(MessageRef(call));
    return 1;
  }
  const char* sender = sd_bus_message_get_sender(call);
  if (sender == nullptr || !user)
    return sd_bus_reply_method_errorf(call, kDenied, "the bus knows no credentials of the caller");
  if (pending_ >= kPending || pending_of_[*user] >= kPendingOfOne)
    return sd_bus_reply_method_errorf(call, SD_BUS_ERROR_LIMITS_EXCEEDED, "too many requests wait for polkit");
  ++pending_of_[*user];
  ++pending_;
  const bool interactive = sd_bus_message_get_allow_interactive_authorization(call) > 0;
  std::unique_ptr<Question> question(
      new Question{this, MessageRef(call), *user, action, interactive, std::move(allowed)});
  MessageRef ask;
  sd_bus* bus = sd_bus_message_get_bus(call);
  int code = sd_bus_message_new_method_call(bus, ask.out(), "org.freedesktop.PolicyKit1",
                                            "/org/freedesktop/PolicyKit1/Authority",
                                            "org.freedesktop.PolicyKit1.Authority", "CheckAuthorization");
  if (code >= 0)
    code = sd_bus_message_append(ask, "(sa{sv})sa{ss}us", "system-bus-name", 1, "name", "s", sender, action, 0,
                                 question->interactive ? 1U : 0U, "");
  if (code >= 0) code = sd_bus_call_async(bus, &question->asked, ask, guarded<answered>, question.get(), kPatience);
  if (code >= 0) code = sd_bus_track_new(bus, &question->caller, guarded<left>, question.get());
  if (code >= 0) code = sd_bus_track_add_name(question->caller, sender);
  if (code < 0) return code;
  (void)question.release();  // until polkit has answered, the call has timed out, or the caller has left
  return 1;
}

int Authority::left(sd_bus_track*, void* question) {
  delete static_cast<Question*>(question);
  return 1;
}

int Authority::answered(sd_bus_message* reply, void* data, sd_bus_error*) {
  const std::unique_ptr<Question> question(static_cast<Question*>(data));
  if (const sd_bus_error* error = sd_bus_message_get_error(reply); error != nullptr) {
    const bool absent = polkit_is_absent(error);
    log::warning("polkit: {}{}", error->message == nullptr ? error->name : error->message,
                 absent ? "; only root may change something" : "");
    return sd_bus_reply_method_errorf(
        question->call, kDenied, "%s",
        absent ? "polkit is not running: only root may do that" : "polkit did not answer");
  }
  int authorized = 0, challenge = 0;
  int code = sd_bus_message_enter_container(reply, 'r', "bba{ss}");
  if (code >= 0) code = sd_bus_message_read(reply, "bb", &authorized, &challenge);
  if (code >= 0 && authorized != 0) {
    code = guard([&] {
      question->allowed(question->call);
      return 1;
    });
    return code < 0 ? sd_bus_reply_method_errno(question->call, code, nullptr) : code;
  }
  if (code >= 0 && challenge != 0 && !question->interactive)
    return sd_bus_reply_method_errorf(question->call, SD_BUS_ERROR_INTERACTIVE_AUTHORIZATION_REQUIRED,
                                      "a password is needed for %s", question->action.c_str());
  return sd_bus_reply_method_errorf(question->call, kDenied, "polkit does not allow %s", question->action.c_str());
}

}  // namespace p2pd
