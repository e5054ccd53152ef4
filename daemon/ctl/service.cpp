// SPDX-License-Identifier: MIT
#include "ctl/service.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "base/json_members.hpp"
#include "bus/requests.hpp"
#include "engine/status.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr std::uint64_t kPatience = 750'000'000;  // microseconds: somebody types a password, then an undo is checked
constexpr int kLookAgain = 2'000;                 // milliseconds: a killed service sends no signal

/// Error of an error reply.
Failure failed(sd_bus_message* reply) {
  if (std::optional<Error> ours = error_in(reply)) return Failure(*std::move(ours));
  const sd_bus_error* error = sd_bus_message_get_error(reply);
  const std::string message = error->message == nullptr ? error->name : error->message;
  for (const char* name : {SD_BUS_ERROR_ACCESS_DENIED, SD_BUS_ERROR_INTERACTIVE_AUTHORIZATION_REQUIRED})
    if (sd_bus_error_has_name(error, name) != 0)
      return fail(ErrorCode::denied, message, "run it as root, or as a user whom polkit permits it");
  return fail(ErrorCode::io, "the service does not answer: " + message,
              "\"systemctl status p2pd\" shows why; \"--no-dbus\" works without it");
}

int keep_reply(sd_bus_message* reply, void* kept, sd_bus_error*) {
  *static_cast<MessageRef*>(kept) = MessageRef(reply);
  return 0;
}

Failure lost(int code) {
  return fail(ErrorCode::io, "the connection to the bus was lost: " + error_text(code),
              "\"p2pctl status\" shows the state");
}

/// Sends a call and waits for its reply. sd_bus_call() would drop all arguments of an error but the first.
Result<MessageRef> send(sd_bus* bus, sd_bus_message* call) {
  MessageRef reply;
  sd_bus_slot* slot = nullptr;
  int code = sd_bus_call_async(bus, &slot, call, guarded<keep_reply>, &reply, 0);
  const std::unique_ptr<sd_bus_slot, decltype(&sd_bus_slot_unref)> pending(slot, sd_bus_slot_unref);
  while (code >= 0 && reply == nullptr) {
    code = sd_bus_process(bus, nullptr);
    if (code == 0) code = sd_bus_wait(bus, UINT64_MAX);
    if (code == -EINTR) code = 0;
  }
  if (reply == nullptr) return lost(code);
  if (sd_bus_message_is_method_error(reply, nullptr) != 0) return failed(reply);
  return reply;
}

template <class... Arguments>
Result<MessageRef> call(sd_bus* bus, const char* method, const char* types, Arguments... arguments) {
  MessageRef call;
  int code = sd_bus_message_new_method_call(bus, call.out(), bus_names::kService, bus_names::kPath, bus_names::kManager,
                                            method);
  if (code >= 0) code = sd_bus_message_append(call, types, arguments...);
  if (code < 0) return fail(ErrorCode::io, std::string("cannot call ") + method + ": " + error_text(code));
  return send(bus, call);
}

Result<json> document_of(sd_bus_message* reply) {
  const char* text = nullptr;
  const int code = sd_bus_message_read(reply, "s", &text);
  json document = code < 0 ? json() : parse_json(text);
  if (!document.is_object()) return fail(ErrorCode::io, "the service's answer is not JSON");
  return document;
}

int changed(sd_bus_message*, void* flag, sd_bus_error*) {
  *static_cast<bool*>(flag) = true;
  return 0;
}

/// Asks a person at this terminal, by pkttyagent, for the passwords that polkit requires, as long as the object exists.
class PasswordAgent {
 public:
  PasswordAgent() {
    if (::geteuid() == 0 || ::isatty(STDIN_FILENO) != 1) return;
    std::array<int, 2> ready{};
    if (::pipe(ready.data()) != 0) return;
    const std::string process = fmt::format("{}", ::getpid()), descriptor = fmt::format("{}", ready[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ready[0]);
      ::execlp("pkttyagent", "pkttyagent", "--process", process.c_str(), "--notify-fd", descriptor.c_str(),
               "--fallback", nullptr);
      ::_exit(127);  // no agent: polkit then reports that it cannot ask anyone
    }
    ::close(ready[1]);
    pollfd registered{ready[0], POLLIN, 0};
    ::poll(&registered, 1, 5'000);  // pkttyagent closes its end once it is registered
    ::close(ready[0]);
  }
  ~PasswordAgent() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    ::kill(pid_, SIGCONT);
    ::waitpid(pid_, nullptr, 0);
  }
  PasswordAgent(const PasswordAgent&) = delete;
  PasswordAgent& operator=(const PasswordAgent&) = delete;

 private:
  int pid_ = -1;
};

/// History of `runs` runs, collected in pages: `page` returns one, of a number of runs older than a given run.
Result<json> in_pages(int runs, const std::function<Result<json>(int, std::int64_t)>& page) {
  json all = TRY(page(runs, 0));
  for (;;) {
    const auto before = json_number<std::int64_t>(all, "before");
    const int left = runs - static_cast<int>(all["runs"].size());
    if (before <= 0 || left <= 0) return all;
    json more = TRY(page(left, before));
    if (more["runs"].empty() || json_number<std::int64_t>(more, "before") >= before) return all;  // invalid page
    all["runs"].insert(all["runs"].end(), more["runs"].begin(), more["runs"].end());
    more["events"].insert(more["events"].end(), all["events"].begin(), all["events"].end());  // oldest first
    all["events"] = std::move(more["events"]);
    all["before"] = json_number<std::int64_t>(more, "before");
  }
}

/// Document that `ask` gets from the service, or `read` from the files, which have the same data.
Result<json> known(const Context& context, const std::function<Result<json>(Service&)>& ask,
                   const std::function<Result<json>()>& read) {
  if (!over_the_bus(context.options)) return read();
  Result<Service> service = Service::open(context.options);
  Result<json> told = service ? ask(*service) : Failure(service.error());
  return told || !context.options.host.empty() ? told : read();
}

}  // namespace

bool over_the_bus(const Options& options) {
  if (!options.host.empty()) return true;
  if (options.root != "/" || !options.state.empty() || options.no_dbus) return false;
  return ::sd_booted() > 0 || std::getenv("DBUS_SYSTEM_BUS_ADDRESS") != nullptr;
}

void Service::Close::operator()(sd_bus* bus) const { sd_bus_flush_close_unref(bus); }

Result<Service> Service::open(const Options& options) {
  sd_bus* bus = nullptr;
  const int code =
      options.host.empty() ? sd_bus_open_system(&bus) : sd_bus_open_system_remote(&bus, options.host.c_str());
  if (code < 0)
    return fail(
        ErrorCode::io,
        fmt::format("the system bus{}: {}", options.host.empty() ? "" : " of " + options.host, error_text(code)),
        options.host.empty()
            ? "\"--no-dbus\" works without it"
            : fmt::format("\"ssh {0}\" must work first; then \"ssh {0} systemd-stdio-bridge\" shows why",
                          options.host));
  sd_bus_set_allow_interactive_authorization(bus, 1);
  sd_bus_set_method_call_timeout(bus, kPatience);
  return Service(bus, options.host.empty());
}

Result<std::uint64_t> Service::ask(const Request& request) {
  std::optional<PasswordAgent> agent;
  if (here_) agent.emplace();
  return answer_in(TRY(send(bus_.get(), TRY(call_of(bus_.get(), bus_names::kService, request)))));
}

Result<json> Service::report() { return document_of(TRY(call(bus_.get(), "GetReport", ""))); }

Result<json> Service::history(int runs, std::int64_t before) {
  const auto count = static_cast<std::uint32_t>(runs);
  if (before == 0) return document_of(TRY(call(bus_.get(), "GetHistory", "u", count)));
  return document_of(TRY(call(bus_.get(), "GetHistoryBefore", "ut", count, static_cast<std::uint64_t>(before))));
}

Result<void> Service::follow(const std::function<bool(const json&)>& look, int stop_fd) {
  bool news = true;
  sd_bus_slot* slot = nullptr;
  sd_bus_match_signal(bus_.get(), &slot, bus_names::kService, bus_names::kPath, "org.freedesktop.DBus.Properties",
                      "PropertiesChanged", guarded<changed>, &news);
  const std::unique_ptr<sd_bus_slot, decltype(&sd_bus_slot_unref)> matched(slot, sd_bus_slot_unref);
  for (;;) {
    if (std::exchange(news, false)) {
      Result<json> now = report();
      if (!now) now = report();  // a service that was killed during the call starts again for the next one
      if (look(TRY(std::move(now)))) return {};
    }
    int code = 0;
    while ((code = sd_bus_process(bus_.get(), nullptr)) > 0) continue;
    if (code < 0) return lost(code);
    if (news) continue;
    std::array<pollfd, 2> fds{
        {{sd_bus_get_fd(bus_.get()), static_cast<short>(sd_bus_get_events(bus_.get())), 0}, {stop_fd, POLLIN, 0}}};
    news = ::poll(fds.data(), fds.size(), kLookAgain) == 0;
    if (fds[1].revents != 0)
      return fail(ErrorCode::interrupted, "stopped watching; the run continues",
                  "\"p2pctl status --watch\" watches it again");
  }
}

Result<json> known_status(const Context& context) {
  return known(context, &Service::report, [&] {
    const bool own = context.options.root == "/" && context.options.state.empty();
    return own ? current_status(context.state()) : status_in_journal(context.state(), true);
  });
}

Result<json> known_history(const Context& context, int runs) {
  return known(
      context, [&](Service& service) { return in_pages(runs, std::bind_front(&Service::history, &service)); },
      [&] { return in_pages(runs, std::bind_front(history_in_journal, context.state())); });
}

}  // namespace p2pd::ctl
