// SPDX-License-Identifier: MIT
// Requests and answers between two peers of D-Bus, as between p2pd and its worker.
#include "bus/requests.hpp"

#include <sys/socket.h>

#include <array>
#include <functional>

#include "catch.hpp"

using namespace p2pd;

namespace {

/// Two connected peers; the one that is asked answers by `answer`.
class Peers {
 public:
  explicit Peers(std::function<int(sd_bus_message*, sd_bus_error*)> answer) : answer_(std::move(answer)) {
    std::array<int, 2> fds{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) == 0);
    sd_id128_t id;
    sd_id128_randomize(&id);
    for (const bool server : {true, false}) {
      sd_bus*& bus = server ? asked_ : asks_;
      sd_bus_new(&bus);
      sd_bus_set_fd(bus, fds[server ? 0 : 1], fds[server ? 0 : 1]);
      if (server) sd_bus_set_server(bus, 1, id);
      if (server) sd_bus_add_filter(bus, nullptr, called, this);
      REQUIRE(sd_bus_start(bus) >= 0);
    }
  }
  ~Peers() {
    sd_bus_close_unref(asks_);
    sd_bus_close_unref(asked_);
  }

  /// The reply to a call.
  MessageRef reply_to(sd_bus_message* call) {
    MessageRef reply;
    REQUIRE(sd_bus_call_async(asks_, nullptr, call, kept, &reply, 5'000'000) >= 0);
    for (int i = 0; i < 1000 && reply == nullptr; ++i) {
      for (sd_bus* bus : {asks_, asked_}) sd_bus_process(bus, nullptr);
    }
    REQUIRE(reply != nullptr);
    return reply;
  }
  sd_bus* asks() const { return asks_; }

 private:
  static int called(sd_bus_message* call, void* peers, sd_bus_error* error) {
    return sd_bus_message_is_method_call(call, nullptr, nullptr) > 0 ? static_cast<Peers*>(peers)->answer_(call, error)
                                                                     : 0;
  }
  static int kept(sd_bus_message* reply, void* to, sd_bus_error*) {
    *static_cast<MessageRef*>(to) = MessageRef(reply);
    return 1;
  }

  std::function<int(sd_bus_message*, sd_bus_error*)> answer_;
  sd_bus* asks_ = nullptr;
  sd_bus* asked_ = nullptr;
};

}  // namespace

TEST_CASE("requests are read as they were made, and the run comes back") {
  Request read;
  Peers peers([&](sd_bus_message* call, sd_bus_error* error) {
    const std::optional<int> refused = read_request(call, read, error);
    return refused ? *refused : send_answer(call, 7);
  });
  using Kind = Event;
  for (const Kind kind : {Kind::apply, Kind::pause, Kind::resume, Kind::retry, Kind::cancel, Kind::revert}) {
    const Request request{kind, kind == Kind::apply ? "work" : "", kind != Kind::apply};
    const MessageRef reply = peers.reply_to(*call_of(peers.asks(), nullptr, request));
    CHECK(answer_in(reply).value() == 7);
    CHECK_FALSE(error_in(reply));
    CHECK(read.event == kind);
    CHECK(read.plan == request.plan);
    CHECK(read.reboot == request.reboot);
  }
  const MessageRef refused = peers.reply_to(*call_of(peers.asks(), nullptr, {.plan = "/etc/p2pd/plans/x.yaml"}));
  REQUIRE(error_in(refused));
  CHECK(error_in(refused)->code == ErrorCode::invalid);
}

TEST_CASE("an error of p2pd keeps its code, message and next step") {
  Error error;
  Peers peers([&](sd_bus_message* call, sd_bus_error*) { return send_answer(call, Failure(error)); });
  for (int code = 0; code <= static_cast<int>(ErrorCode::database_quarantined); ++code) {
    error = {static_cast<ErrorCode>(code), "m; next: x \xff", "\ufffe\ufdd0n\U0001fffe\uffbe\ufdcf"};
    const MessageRef reply = peers.reply_to(*call_of(peers.asks(), nullptr, {.event = Event::pause}));
    const std::optional<Error> read = error_in(reply);
    REQUIRE(read);
    CHECK(read->code == error.code);
    CHECK(read->message == "m; next: x \ufffd");
    const std::string bad = "\ufffd";
    CHECK(read->next == bad + bad + bad + bad + bad + bad + "n" + bad + bad + bad + bad + "\uffbe\ufdcf");
  }
}

TEST_CASE("arguments that are none of the method, and replies that are no run, are errors") {
  Peers peers([](sd_bus_message* call, sd_bus_error* error) {
    Request request;
    const std::optional<int> refused = read_request(call, request, error);
    if (!refused) return sd_bus_reply_method_return(call, "s", "seven");
    return sd_bus_reply_method_errno(call, *refused, error);
  });
  struct Row {
    const char* method;
    const char* types;
    const char* key;
  };
  for (const Row& row : {Row{"Apply", "", ""}, Row{"Frobnicate", "", ""}, Row{"Apply", "sa{sv}", "frob"}}) {
    INFO(row.method << " " << row.types << " " << row.key);
    MessageRef call;
    REQUIRE(sd_bus_message_new_method_call(peers.asks(), call.out(), nullptr, bus_names::kPath, bus_names::kManager,
                                           row.method) >= 0);
    if (*row.types != '\0') REQUIRE(sd_bus_message_append(call, row.types, "work", 1, row.key, "b", 1) >= 0);
    const MessageRef reply = peers.reply_to(call);
    CHECK(sd_bus_message_is_method_error(reply, nullptr) > 0);
    CHECK_FALSE(error_in(reply));
  }
  const MessageRef reply = peers.reply_to(*call_of(peers.asks(), nullptr, {.plan = "work"}));
  REQUIRE_FALSE(answer_in(reply));
  CHECK(answer_in(reply).error().code == ErrorCode::io);
}
