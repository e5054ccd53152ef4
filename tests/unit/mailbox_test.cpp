// SPDX-License-Identifier: MIT
#include "worker/mailbox.hpp"

#include <poll.h>

#include <cstdlib>

#include "catch.hpp"
#include "temporary.hpp"

using namespace p2pd;

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

using Kind = Event;

/// Posts; returns the answer, or nothing if there is none yet.
std::shared_ptr<std::optional<Answer>> post(Mailbox& mailbox, Kind kind, std::string plan = "") {
  auto answer = std::make_shared<std::optional<Answer>>();
  mailbox.post({{kind, std::move(plan), true}, [answer](const Answer& said) { *answer = said; }});
  return answer;
}

bool is_taken(const std::shared_ptr<std::optional<Answer>>& answer) { return *answer && **answer && ***answer == 7; }
bool is_refused(const std::shared_ptr<std::optional<Answer>>& answer, ErrorCode code) {
  return *answer && !**answer && (*answer)->error().code == code;
}

Run run_of(RunState state) {
  Run run;
  run.id = 7;
  run.plan = "test";
  run.state = state;
  return run;
}

/// The worker begins a walk, whose run is in that state.
void walk(Mailbox& mailbox, RunState state = RunState::walking) {
  mailbox.begin();
  mailbox.note(run_of(state));
}

}  // namespace

TEST_CASE("requests wait for a worker that is at rest, in order, and not without bound") {
  Mailbox mailbox;
  const auto first = post(mailbox, Kind::apply, "a");
  post(mailbox, Kind::pause);
  CHECK_FALSE(*first);
  CHECK(mailbox.next()->plan == "a");
  CHECK(mailbox.next()->event == Kind::pause);
  CHECK_FALSE(mailbox.next());
  for (int i = 0; i < 16; ++i) CHECK_FALSE(*post(mailbox, Kind::apply));
  CHECK(is_refused(post(mailbox, Kind::apply), ErrorCode::busy));
}

TEST_CASE("while a run is walked, requests are answered at once, and heard between two steps") {
  const Runtime runtime;
  Mailbox mailbox("test");
  mailbox.begin();
  const auto early = post(mailbox, Kind::apply, "test");
  CHECK_FALSE(*early);
  mailbox.note(run_of(RunState::walking));
  CHECK(is_taken(early));
  CHECK(is_taken(post(mailbox, Kind::apply)));
  CHECK(is_refused(post(mailbox, Kind::apply, "other"), ErrorCode::state));
  CHECK(is_taken(post(mailbox, Kind::resume)));  // it is running already
  CHECK(is_taken(post(mailbox, Kind::retry)));
  CHECK_FALSE(mailbox.poll());
  CHECK(is_taken(post(mailbox, Kind::pause)));
  CHECK_FALSE(readable(mailbox.halt_fd()));  // a pause lets running commands end
  CHECK(mailbox.poll() == Event::pause);
  CHECK_FALSE(mailbox.poll());
  CHECK_FALSE(mailbox.end());
}

TEST_CASE("an apply without a plan is one of the configured plan, whatever is walked") {
  Mailbox mailbox("other");
  walk(mailbox);
  CHECK(is_refused(post(mailbox, Kind::apply), ErrorCode::state));
}

TEST_CASE("restarts of a run that makes them cannot be left to somebody else in its middle") {
  Mailbox mailbox("test");
  mailbox.begin();
  Run run = run_of(RunState::walking);
  const auto leave = [&] {
    Answer answer;
    mailbox.note(run);
    mailbox.post({{Kind::apply, "test", false}, [&](const Answer& said) { answer = said; }});
    return answer;
  };
  run.resolved = R"({"policy": {"reboot": "automatic"}})";
  CHECK(leave().error().code == ErrorCode::state);
  run.resolved = R"({"policy": {"reboot": "external"}})";
  CHECK(leave().value() == 7);
}

TEST_CASE("what was promised outlives a kill of the worker, until it is done") {
  const Runtime runtime;
  {
    Mailbox killed("test");
    walk(killed);
    post(killed, Kind::pause);
  }
  CHECK(Mailbox().asked() == Event::pause);
  Mailbox next;
  CHECK(next.poll() == Event::pause);
  CHECK_FALSE(Mailbox().asked());
  walk(next);
  post(next, Kind::cancel);
  next.done_with(Event::pause);
  CHECK(Mailbox().asked() == Event::cancel);
  next.stop();
  CHECK_FALSE(next.end());  // the next start reads it
  CHECK(Mailbox().asked() == Event::cancel);
}

TEST_CASE("a cancel ends what runs, and is not lost when the walk ends first") {
  const Runtime runtime;
  Mailbox mailbox;
  walk(mailbox);
  post(mailbox, Kind::cancel);
  CHECK(readable(mailbox.halt_fd()));
  CHECK(mailbox.end() == Event::cancel);
  CHECK_FALSE(readable(mailbox.halt_fd()));
  walk(mailbox, RunState::reverting);
  CHECK(is_refused(post(mailbox, Kind::pause), ErrorCode::state));
  CHECK(is_taken(post(mailbox, Kind::cancel)));  // it is already undoing its changes
  CHECK_FALSE(mailbox.poll());
  CHECK(is_taken(post(mailbox, Kind::revert)));  // of all runs: read between two steps, interrupts no undo
  CHECK_FALSE(readable(mailbox.halt_fd()));
  CHECK(mailbox.poll() == Event::revert);
  CHECK_FALSE(mailbox.end());
}

TEST_CASE("the last request wins: pause and resume, in any order and number, before the step ends") {
  const Runtime runtime;
  for (const Kind on : {Kind::resume, Kind::retry, Kind::apply}) {
    Mailbox mailbox("test");
    walk(mailbox);
    CHECK(is_taken(post(mailbox, Kind::pause)));
    CHECK(is_taken(post(mailbox, on)));
    CHECK_FALSE(mailbox.asked());
    CHECK_FALSE(Mailbox().asked());  // nor is it saved for the next start
    CHECK_FALSE(mailbox.poll());
    CHECK(is_taken(post(mailbox, Kind::pause)));
    CHECK(is_taken(post(mailbox, on)));
    CHECK(is_taken(post(mailbox, Kind::pause)));
    CHECK(Mailbox().asked() == Event::pause);
    CHECK(mailbox.poll() == Event::pause);
  }
}

TEST_CASE("the last request wins: a cancel or a revert replaces a pause, and each other") {
  const Runtime runtime;
  Mailbox mailbox("test");
  walk(mailbox);
  for (const Kind kind : {Kind::pause, Kind::cancel, Kind::revert, Kind::cancel}) {
    CHECK(is_taken(post(mailbox, kind)));
    CHECK(mailbox.asked() == kind);
    CHECK(Mailbox().asked() == kind);
  }
  CHECK(readable(mailbox.halt_fd()));
}

TEST_CASE("after a cancel has ended what ran, no other request is answered OK") {
  const Runtime runtime;
  for (const Kind undo : {Kind::cancel, Kind::revert}) {
    Mailbox mailbox("test");
    walk(mailbox);
    post(mailbox, undo);
    for (const Kind kind : {Kind::pause, Kind::resume, Kind::retry, Kind::apply}) {
      const auto answer = post(mailbox, kind);
      CHECK(is_refused(answer, ErrorCode::state));
      CHECK((*answer)->error().message.find("is being undone") != std::string::npos);
    }
    CHECK(Mailbox().asked() == undo);
    CHECK(mailbox.poll() == undo);
  }
}

TEST_CASE("a resume that comes after the walk was told to pause waits for the end of the walk") {
  const Runtime runtime;
  Mailbox mailbox("test");
  walk(mailbox);
  post(mailbox, Kind::pause);
  SECTION("told by poll()") { REQUIRE(mailbox.poll() == Event::pause); }
  SECTION("told by a restart that was called off") { mailbox.done_with(Event::pause); }
  const auto early = post(mailbox, Kind::resume);
  CHECK_FALSE(*early);
  mailbox.note(run_of(RunState::paused));
  const auto late = post(mailbox, Kind::resume);
  CHECK_FALSE(*late);
  CHECK_FALSE(mailbox.end());
  CHECK(mailbox.next()->event == Kind::resume);
  CHECK(mailbox.next()->event == Kind::resume);
}

TEST_CASE("a request that comes after the walk was told to undo is answered once it does") {
  const Runtime runtime;
  Mailbox mailbox("test");
  walk(mailbox);
  post(mailbox, Kind::cancel);
  REQUIRE(mailbox.poll() == Event::cancel);
  const auto resume = post(mailbox, Kind::resume), again = post(mailbox, Kind::cancel);
  CHECK_FALSE(*resume);
  mailbox.note(run_of(RunState::reverting));
  CHECK(is_refused(resume, ErrorCode::state));
  CHECK(is_taken(again));
  CHECK_FALSE(mailbox.end());
}

TEST_CASE("a request for a run that has come to rest is not lost with the end of its walk") {
  const Runtime runtime;
  for (const RunState state :
       {RunState::blocked, RunState::paused, RunState::failed, RunState::ready, RunState::idle}) {
    Mailbox mailbox("test");
    walk(mailbox, state);
    CHECK_FALSE(*post(mailbox, Kind::retry));
    CHECK_FALSE(mailbox.end());
    CHECK(mailbox.next()->event == Kind::retry);
  }
}

TEST_CASE("a signal ends what runs, and nothing is taken after it") {
  Mailbox mailbox;
  mailbox.stop();
  CHECK(mailbox.stopping());
  CHECK(mailbox.poll() == Event::stopped);
  CHECK(readable(mailbox.halt_fd()));
  CHECK(is_refused(post(mailbox, Kind::apply), ErrorCode::busy));
}
