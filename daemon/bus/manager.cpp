// SPDX-License-Identifier: MIT
#include "bus/manager.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/json_members.hpp"
#include "base/log.hpp"
#include "base/utf8.hpp"
#include "engine/status.hpp"

namespace p2pd {
namespace {

using nlohmann::json;

constexpr std::uint32_t kHistoryLimit = 1000;

/// Text of a JSON string as valid UTF-8, which D-Bus requires.
std::string text(const json& value) { return value.is_string() ? as_utf8(value.get<std::string>()) : std::string(); }

int append_text(sd_bus_message* reply, const json& value) {
  return sd_bus_message_append(reply, "s", text(value).c_str());
}

/// Property and the part of the status that it shows.
struct Shown {
  const char* name;
  const char* pointer;
  int (*append)(sd_bus_message*, const json&);
};

const std::vector<Shown>& shown() {
  static const std::vector<Shown> table = {
      {"State", "/state", append_text},
      {"Reason", "/reason", append_text},
      {"Next", "/next", append_text},
      {"FitFor", "/fit_for",
       [](sd_bus_message* m, const json& v) {
         int done = sd_bus_message_open_container(m, 'a', "s");
         for (const json& use : v.is_array() ? v : json::array())
           if (done >= 0) done = append_text(m, use);
         return done < 0 ? done : sd_bus_message_close_container(m);
       }},
      {"PlanName", "/plan", append_text},
      {"RunId", "/run",
       [](sd_bus_message* m, const json& v) {
         return sd_bus_message_append(m, "t", json_number<std::uint64_t>(v).value_or(0));
       }},
      {"Step", "/step/id", append_text},
      {"Progress", "/progress",
       [](sd_bus_message* m, const json& v) {
         const json p = v.is_object() ? v : json::object();
         return sd_bus_message_append(m, "(usuu)", json_number<std::uint32_t>(p, "percent"),
                                      text(p.value("message", json())).c_str(), json_number<std::uint32_t>(p, "done"),
                                      json_number<std::uint32_t>(p, "total"));
       }},
      {"RebootRequired", "/reboot_required",
       [](sd_bus_message* m, const json& v) { return sd_bus_message_append(m, "b", v == true ? 1 : 0); }},
      {"Reboots", "",
       [](sd_bus_message* m, const json& v) {
         return sd_bus_message_append(m, "(uu)", json_number<std::uint32_t>(v, "reboots"),
                                      json_number<std::uint32_t>(v, "reboots_at_most"));
       }},
  };
  return table;
}

json value_of(const json& status, const Shown& property) {
  const json::json_pointer at(property.pointer);
  return status.contains(at) ? status[at] : json();
}

/// Part of `value` that a property shows, to detect a change.
json told(const Shown& property, const json& value) {
  if (std::string_view(property.name) != "Reboots") return value;
  return {value.value("reboots", json()), value.value("reboots_at_most", json())};
}

/// Action of polkit that allows a request.
const char* polkit_action(const Request& request) {
  switch (request.event) {
    case Event::pause: return "org.p2pd1.apply";
    case Event::cancel:
    case Event::revert: return "org.p2pd1.revert";
    default: return request.reboot ? "org.p2pd1.reboot" : "org.p2pd1.apply";
  }
}

}  // namespace

/// Handlers of the vtable.
struct Handlers {
  static int property(sd_bus*, const char*, const char*, const char* name, sd_bus_message* reply, void* data,
                      sd_bus_error*) {
    const auto& manager = *static_cast<Manager*>(data);
    const auto row = std::ranges::find(shown(), std::string_view(name), &Shown::name);
    return row->append(reply, value_of(manager.status_, *row));
  }
  static int version(sd_bus*, const char*, const char*, const char*, sd_bus_message* reply, void*, sd_bus_error*) {
    return sd_bus_message_append(reply, "s", P2PD_VERSION);
  }
  static int gpus(sd_bus*, const char*, const char*, const char*, sd_bus_message* reply, void* data, sd_bus_error*) {
    int code = sd_bus_message_open_container(reply, 'a', "(ss)");
    for (const auto& [address, name] : static_cast<Manager*>(data)->gpus_)
      if (code >= 0) code = sd_bus_message_append(reply, "(ss)", address.c_str(), name.c_str());
    return code < 0 ? code : sd_bus_message_close_container(reply);
  }

  /// Asks polkit, then the worker, then answers with the run.
  static int ask(sd_bus_message* call, void* data, sd_bus_error* error) {
    Request request;
    if (const std::optional<int> refused = read_request(call, request, error)) return *refused;
    auto* manager = static_cast<Manager*>(data);
    return manager->authority_.authorize(call, polkit_action(request), [manager, request](const MessageRef& asked) {
      log::info("{} asks for {} {}", sd_bus_message_get_sender(asked), to_string(request.event), request.plan);
      auto kept = std::make_shared<MessageRef>(asked);
      ++manager->asked_;
      ask_worker(manager->event_, request, [manager, kept](const Answer& answer) {
        --manager->asked_;
        manager->look();
        int code = guard([&] { return send_answer(*kept, answer); });
        if (code < 0) code = sd_bus_reply_method_errno(*kept, code, nullptr);
        if (code < 0) log::warning("cannot send a reply: {}", error_text(code));
      });
    });
  }

  static int list_steps(sd_bus_message* call, void* data, sd_bus_error*) {
    MessageRef reply;
    int code = sd_bus_message_new_method_return(call, reply.out());
    if (code >= 0) code = sd_bus_message_open_container(reply, 'a', "(sssss)");
    for (const json& step : static_cast<Manager*>(data)->status_.value("steps", json::array())) {
      if (code < 0) return code;
      code = sd_bus_message_append(
          reply, "(sssss)", text(step.value("id", json())).c_str(), text(step.value("title", json())).c_str(),
          text(step.value("status", json())).c_str(), text(step.value("verdict", json())).c_str(),
          text(step.value("summary", json())).c_str());
    }
    if (code >= 0) code = sd_bus_message_close_container(reply);
    return code < 0 ? code : sd_bus_send(nullptr, reply, nullptr);
  }
  static int report(sd_bus_message* call, void* data, sd_bus_error*) {
    const std::string all = static_cast<Manager*>(data)->status_.dump(-1, ' ', false, json::error_handler_t::replace);
    return sd_bus_reply_method_return(call, "s", all.c_str());
  }
  static int history(sd_bus_message* call, void* data, sd_bus_error* error) {
    std::uint32_t count = 0;
    std::uint64_t before = 0;  // all runs, unless GetHistoryBefore names a run
    int code = sd_bus_message_read(call, "u", &count);
    if (code >= 0 && sd_bus_message_at_end(call, 1) == 0) code = sd_bus_message_read(call, "t", &before);
    if (code < 0) return code;
    if (before > std::numeric_limits<std::int64_t>::max())
      return sd_bus_error_set(error, SD_BUS_ERROR_INVALID_ARGS, "before: no run has such an id");
    if (count == 0 || count > kHistoryLimit)
      return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS, "runs: expected 1 to %u", kHistoryLimit);
    const std::filesystem::path& state = static_cast<Manager*>(data)->state_;
    const Result<json> found = history_in_journal(state, static_cast<int>(count), static_cast<std::int64_t>(before));
    if (!found) return send_answer(call, Failure(found.error()));
    return sd_bus_reply_method_return(call, "s", found->dump(-1, ' ', false, json::error_handler_t::replace).c_str());
  }
};

namespace {

#define SHOWN(name, signature) \
  SD_BUS_PROPERTY(name, signature, guarded<Handlers::property>, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE)

// NOLINTBEGIN: libsystemd's macros. units/org.p2pd1.xml documents the same interface; a test compares the two.
const sd_bus_vtable kManagerVtable[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_PROPERTY("Version", "s", guarded<Handlers::version>, 0, SD_BUS_VTABLE_PROPERTY_CONST),
    SHOWN("State", "s"),
    SHOWN("Reason", "s"),
    SHOWN("Next", "s"),
    SHOWN("FitFor", "as"),
    SHOWN("PlanName", "s"),
    SHOWN("RunId", "t"),
    SHOWN("Step", "s"),
    SHOWN("Progress", "(usuu)"),
    SHOWN("RebootRequired", "b"),
    SHOWN("Reboots", "(uu)"),
    SD_BUS_PROPERTY("Gpus", "a(ss)", guarded<Handlers::gpus>, 0, 0),
    P2PD_REQUEST_METHODS(Handlers::ask),
    SD_BUS_METHOD_WITH_ARGS("ListSteps", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(sssss)", steps),
                            guarded<Handlers::list_steps>, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS("GetReport", SD_BUS_NO_ARGS, SD_BUS_RESULT("s", report), guarded<Handlers::report>,
                            SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS("GetHistory", SD_BUS_ARGS("u", runs), SD_BUS_RESULT("s", history),
                            guarded<Handlers::history>, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS("GetHistoryBefore", SD_BUS_ARGS("u", runs, "t", before), SD_BUS_RESULT("s", history),
                            guarded<Handlers::history>, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_SIGNAL_WITH_ARGS("StepChanged", SD_BUS_ARGS("s", step, "s", status, "s", verdict, "s", summary), 0),
    SD_BUS_SIGNAL_WITH_ARGS("RunFinished", SD_BUS_ARGS("t", run, "s", result, "s", reason), 0),
    SD_BUS_VTABLE_END,
};
// NOLINTEND

}  // namespace

Manager::Manager(sd_bus* bus, sd_event* event, std::filesystem::path state, Gpus gpus)
    : bus_(bus), event_(event), state_(std::move(state)), gpus_(std::move(gpus)) {}

Result<void> Manager::publish() {
  look();
  const int code = sd_bus_add_object_vtable(bus_, nullptr, bus_names::kPath, bus_names::kManager, kManagerVtable, this);
  if (code < 0) return fail(ErrorCode::io, fmt::format("{}: {}", bus_names::kPath, error_text(code)));
  return {};
}

bool Manager::idle() const { return authority_.idle() && asked_ == 0 && status_.value("at_work", json()) != true; }

void Manager::look() {
  Result<json> now = current_status(state_);
  if (!now) {
    const Error error = now.error();
    log::warning("{}", error.text());
    Run run;
    run.reason = error.message;
    now = status_of(run, {});
    (*now)["next"] = error.next;
  }
  if (*now == status_) return;
  const json before = std::exchange(status_, *std::move(now));
  if (!before.is_null()) tell(before);
}

void Manager::tell(const json& before) {
  std::vector<char*> changed;
  for (const Shown& property : shown())
    if (told(property, value_of(before, property)) != told(property, value_of(status_, property)))
      changed.push_back(
          const_cast<char*>(property.name));  // NOLINT: the function takes a char**, and does not change it
  changed.push_back(nullptr);
  if (changed.size() > 1)
    sd_bus_emit_properties_changed_strv(bus_, bus_names::kPath, bus_names::kManager, changed.data());

  std::map<std::string, json> known;
  if (before.value("run", json()) == status_.value("run", json()))
    for (const json& step : before.value("steps", json::array())) known[text(step.value("id", json()))] = step;
  for (const json& step : status_.value("steps", json::array())) {
    const std::string id = text(step.value("id", json()));
    if (step.value("verdict", "").empty() || (known.contains(id) && known[id] == step)) continue;
    sd_bus_emit_signal(bus_, bus_names::kPath, bus_names::kManager, "StepChanged", "ssss", id.c_str(),
                       text(step.value("status", json())).c_str(), text(step.value("verdict", json())).c_str(),
                       text(step.value("summary", json())).c_str());
  }
  const std::string result = text(status_.value("result", json()));
  const bool ended = !result.empty() && (before.value("result", json()) != result ||
                                         before.value("run", json()) != status_.value("run", json()));
  if (ended)
    sd_bus_emit_signal(bus_, bus_names::kPath, bus_names::kManager, "RunFinished", "tss",
                       json_number<std::uint64_t>(status_, "run"), result.c_str(),
                       text(status_.value("reason", json())).c_str());
}

}  // namespace p2pd
