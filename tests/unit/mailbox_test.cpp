// SPDX-License-Identifier: MIT
#include "worker/mailbox.hpp"

#include <poll.h>

#include <cstdlib>
#include <thread>

#include "catch.hpp"
#include "temporary.hpp"

using namespace p2pd;
using nlohmann::json;

namespace {

bool readable(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1;
}

/// A runtime directory of the test's own.
struct Runtime {
  test::TemporaryDirectory directory;
  Runtime() { ::setenv("P2PD_RUNTIME", directory.path().c_str(), 1); }
  ~Runtime() { ::unsetenv("P2PD_RUNTIME"); }
};

/// Posts; what it is answered, or null as long as it is not.
std::shared_ptr<json> post(Mailbox& mailbox, Event event, std::string plan = "") {
  auto answer = std::make_shared<json>();
  mailbox.post({event, std::move(plan), true, [answer](const json& said) { *answer = said; }});
  return answer;
}

Run run_of(RunState state) {
  Run run;
  run.id = 7;
  run.plan = "test";
  run.state = state;
  return run;
}

}  // namespace

TEST_CASE("requests: what is understood, and what is refused with its reason") {
  const auto request = parse_request(R"({"do": "apply", "plan": "geforce-p2p", "reboot": false})");
  REQUIRE(request);
  CHECK(request->event == Event::apply);
  CHECK(request->plan == "geforce-p2p");
  CHECK_FALSE(request->reboot);
  CHECK(parse_request(R"({"do": "revert"})")->event == Event::revert);
  for (const char* line : {"", "{", "[]", "7", R"({"do": 7})", R"({"do": "go-on"})", R"({"do": "proven"})", R"({"do": "stopped"})",
                           R"({"do": "apply", "plan": "/etc/passwd"})", R"({"do": "apply", "plan": "../x"})",
                           R"({"do": "apply", "plan": 7})", R"({"do": "apply", "reboot": "no"})", R"({"do": "pause", "plan": "x"})",
                           R"({"do": "apply", "frob": true})"}) {
    INFO(line);
    const auto refused = parse_request(line);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == ErrorCode::invalid);
  }
}

TEST_CASE("requests wait for a worker that is at rest, in order, and not without bound") {
  Mailbox mailbox;
  const auto first = post(mailbox, Event::apply, "a");
  post(mailbox, Event::pause);
  CHECK(first->is_null());
  CHECK(mailbox.wait(std::chrono::seconds(0))->plan == "a");
  CHECK(mailbox.wait(std::chrono::seconds(0))->event == Event::pause);
  CHECK_FALSE(mailbox.wait(std::chrono::milliseconds(1)));
  for (int i = 0; i < 16; ++i) CHECK(post(mailbox, Event::apply)->is_null());
  CHECK(post(mailbox, Event::apply)->at("code") == "busy");
}

TEST_CASE("while a run is walked, requests are answered at once, and heard between two steps") {
  const Runtime runtime;
  Mailbox mailbox("test");
  mailbox.begin();
  const auto early = post(mailbox, Event::apply, "test");
  CHECK(early->is_null());
  mailbox.note(run_of(RunState::walking));
  CHECK(early->at("run") == 7);
  CHECK(post(mailbox, Event::apply)->at("run") == 7);
  CHECK(post(mailbox, Event::apply, "other")->at("code") == "state");
  CHECK(post(mailbox, Event::resume)->at("run") == 7);  // it goes on already
  CHECK(post(mailbox, Event::retry)->at("run") == 7);
  CHECK_FALSE(mailbox.poll());
  CHECK(post(mailbox, Event::pause)->at("ok") == true);
  CHECK_FALSE(readable(mailbox.halt_fd()));  // a pause lets what runs come to its end
  CHECK(mailbox.poll() == Event::pause);
  CHECK_FALSE(mailbox.poll());
  CHECK_FALSE(mailbox.end());
}

TEST_CASE("an apply without a plan is one of the configured plan, whatever is walked") {
  Mailbox mailbox("other");
  mailbox.begin();
  mailbox.note(run_of(RunState::walking));
  CHECK(post(mailbox, Event::apply)->at("code") == "state");
}

TEST_CASE("restarts of a run that makes them cannot be left to somebody else in its middle") {
  Mailbox mailbox("test");
  mailbox.begin();
  Run run = run_of(RunState::walking);
  const auto leave = [&] {
    json answer;
    mailbox.note(run);
    mailbox.post({Event::apply, "test", false, [&](const json& said) { answer = said; }});
    return answer;
  };
  run.resolved = R"({"policy": {"reboot": "automatic"}})";
  CHECK(leave().at("code") == "state");
  run.resolved = R"({"policy": {"reboot": "external"}})";
  CHECK(leave().at("run") == 7);
}

TEST_CASE("what was promised outlives a kill of the worker, until it is done") {
  const Runtime runtime;
  {
    Mailbox killed("test");
    killed.begin();
    killed.note(run_of(RunState::walking));
    post(killed, Event::pause);
  }
  CHECK(Mailbox().asked() == Event::pause);
  Mailbox next;
  CHECK(next.poll() == Event::pause);
  CHECK_FALSE(Mailbox().asked());
  next.begin();
  next.note(run_of(RunState::walking));
  post(next, Event::cancel);
  next.done_with(Event::pause);
  CHECK(Mailbox().asked() == Event::cancel);
  next.stop();
  CHECK_FALSE(next.end());  // the next start hears of it
  CHECK(Mailbox().asked() == Event::cancel);
}

TEST_CASE("a cancel ends what runs, and is not lost when the walk ends first") {
  const Runtime runtime;
  Mailbox mailbox;
  mailbox.begin();
  mailbox.note(run_of(RunState::walking));
  post(mailbox, Event::cancel);
  CHECK(readable(mailbox.halt_fd()));
  CHECK(mailbox.end() == Event::cancel);
  CHECK_FALSE(readable(mailbox.halt_fd()));
  mailbox.begin();
  mailbox.note(run_of(RunState::reverting));
  CHECK(post(mailbox, Event::pause)->at("code") == "state");
  CHECK(post(mailbox, Event::cancel)->at("ok") == true);  // that is what it does
  CHECK_FALSE(mailbox.poll());
  CHECK(post(mailbox, Event::revert)->at("ok") == true);  // of all runs: heard between two steps, no undo is cut short
  CHECK_FALSE(readable(mailbox.halt_fd()));
  CHECK(mailbox.poll() == Event::revert);
  CHECK_FALSE(mailbox.end());
}

TEST_CASE("the last request wins: pause and resume, in any order and number, before the step ends") {
  const Runtime runtime;
  for (const Event on : {Event::resume, Event::retry, Event::apply}) {
    Mailbox mailbox("test");
    mailbox.begin();
    mailbox.note(run_of(RunState::walking));
    CHECK(post(mailbox, Event::pause)->at("ok") == true);
    CHECK(post(mailbox, on)->at("ok") == true);
    CHECK_FALSE(mailbox.asked());
    CHECK_FALSE(Mailbox().asked());  // nor does a worker that was killed remember it
    CHECK_FALSE(mailbox.poll());
    CHECK(post(mailbox, Event::pause)->at("ok") == true);
    CHECK(post(mailbox, on)->at("ok") == true);
    CHECK(post(mailbox, Event::pause)->at("ok") == true);
    CHECK(Mailbox().asked() == Event::pause);
    CHECK(mailbox.poll() == Event::pause);
  }
}

TEST_CASE("the last request wins: a cancel or a revert replaces a pause, and each other") {
  const Runtime runtime;
  Mailbox mailbox("test");
  mailbox.begin();
  mailbox.note(run_of(RunState::walking));
  for (const Event event : {Event::pause, Event::cancel, Event::revert, Event::cancel}) {
    CHECK(post(mailbox, event)->at("ok") == true);
    CHECK(mailbox.asked() == event);
    CHECK(Mailbox().asked() == event);
  }
  CHECK(readable(mailbox.halt_fd()));
}

TEST_CASE("after a cancel has ended what ran, no other request is answered OK") {
  const Runtime runtime;
  for (const Event undo : {Event::cancel, Event::revert}) {
    Mailbox mailbox("test");
    mailbox.begin();
    mailbox.note(run_of(RunState::walking));
    post(mailbox, undo);
    for (const Event event : {Event::pause, Event::resume, Event::retry, Event::apply}) {
      const auto answer = post(mailbox, event);
      CHECK(answer->at("code") == "state");
      CHECK(answer->at("message").get<std::string>().find("is being undone") != std::string::npos);
    }
    CHECK(Mailbox().asked() == undo);
    CHECK(mailbox.poll() == undo);
  }
}

TEST_CASE("a resume that comes after the walk was told to pause waits for the end of the walk") {
  const Runtime runtime;
  Mailbox mailbox("test");
  mailbox.begin();
  mailbox.note(run_of(RunState::walking));
  post(mailbox, Event::pause);
  SECTION("told by poll()") { REQUIRE(mailbox.poll() == Event::pause); }
  SECTION("told by a restart that was called off") { mailbox.done_with(Event::pause); }
  const auto early = post(mailbox, Event::resume);
  CHECK(early->is_null());
  mailbox.note(run_of(RunState::paused));
  const auto late = post(mailbox, Event::resume);
  CHECK(late->is_null());
  CHECK_FALSE(mailbox.end());
  CHECK(mailbox.wait(std::chrono::seconds(0))->event == Event::resume);
  CHECK(mailbox.wait(std::chrono::seconds(0))->event == Event::resume);
}

TEST_CASE("a request that comes after the walk was told to undo is answered once it does") {
  const Runtime runtime;
  Mailbox mailbox("test");
  mailbox.begin();
  mailbox.note(run_of(RunState::walking));
  post(mailbox, Event::cancel);
  REQUIRE(mailbox.poll() == Event::cancel);
  const auto resume = post(mailbox, Event::resume), again = post(mailbox, Event::cancel);
  CHECK(resume->is_null());
  mailbox.note(run_of(RunState::reverting));
  CHECK(resume->at("code") == "state");
  CHECK(again->at("ok") == true);
  CHECK_FALSE(mailbox.end());
}

TEST_CASE("a request for a run that has come to rest is not lost with the end of its walk") {
  const Runtime runtime;
  for (const RunState state : {RunState::blocked, RunState::paused, RunState::failed, RunState::ready, RunState::idle}) {
    Mailbox mailbox("test");
    mailbox.begin();
    mailbox.note(run_of(state));
    CHECK(post(mailbox, Event::retry)->is_null());
    CHECK_FALSE(mailbox.end());
    CHECK(mailbox.wait(std::chrono::seconds(0))->event == Event::retry);
  }
}

TEST_CASE("a signal ends the wait, what runs, and nothing is taken after it") {
  Mailbox mailbox;
  std::thread signal([&] { mailbox.stop(); });
  CHECK_FALSE(mailbox.wait(std::chrono::seconds(20)));
  signal.join();
  CHECK(mailbox.stopping());
  CHECK(mailbox.poll() == Event::stopped);
  CHECK(readable(mailbox.halt_fd()));
  CHECK(post(mailbox, Event::apply)->at("code") == "busy");
}
