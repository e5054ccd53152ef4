// SPDX-License-Identifier: MIT
// Journalled plans with words that this p2pd does not know, as another version may have written them: such a run is not
// continued, and everything else works.
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <random>

#include "catch.hpp"
#include "world.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

const std::string kPlan = plan_of({"a:live", "k:each-kernel", "e:each-boot", "b:trial"});
const std::string kProven = plan_of({"a:live", "k:each-kernel", "e:each-boot", "p:proof after a, k, e"});
const std::string kBlocked = plan_of({"c", "a:live", "b:trial"});  // c has no fix

using Change = void (*)(nlohmann::json& plan, const std::string& word);
struct Unknown {
  const char* what;
  Change change;
};
const Unknown kUnknown[] = {
    {"check", [](nlohmann::json& plan, const std::string& word) { plan["steps"][0]["check"] = word; }},
    {"fix", [](nlohmann::json& plan, const std::string& word) { plan["steps"][0]["fix"] = word; }},
    {"kind of step",
     [](nlohmann::json& plan, const std::string& word) {
       plan["steps"][0][word] = plan["steps"][0]["gate"];
       plan["steps"][0].erase("gate");
     }},
    {"key of a step", [](nlohmann::json& plan, const std::string& word) { plan["steps"][0][word] = "yes"; }},
    {"parameter", [](nlohmann::json& plan, const std::string& word) { plan["steps"][0]["with"][word] = 1; }},
    {"key of the plan",
     [](nlohmann::json& plan, const std::string& word) {
       plan[word] = {{"x", 1}};
     }},
    {"key of the policy", [](nlohmann::json& plan, const std::string& word) { plan["policy"][word] = 1; }},
    {"word of the policy", [](nlohmann::json& plan, const std::string& word) { plan["policy"]["on_failure"] = word; }},
};

/// A word of 12 letters that no version uses.
std::string random_word() {
  static std::mt19937 chance(std::random_device{}());
  std::string word = "q";
  while (word.size() < 12) word += static_cast<char>('a' + chance() % 26);
  return word;
}

/// Puts an unknown word into the journalled plan of a run.
void make_unknown(const World& world, std::int64_t run, const Unknown& unknown, const std::string& word) {
  const std::vector<Run> runs = Journal::open(world.state(), Journal::Access::read)->runs(100).value();
  const auto known = std::ranges::find(runs, run, &Run::id);
  REQUIRE(known != runs.end());
  nlohmann::json plan = nlohmann::json::parse(known->resolved);
  unknown.change(plan, word);
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open((world.state() / "state.db").c_str(), &db) == SQLITE_OK);
  sqlite3_stmt* update = nullptr;
  sqlite3_prepare_v2(db, "UPDATE runs SET resolved=? WHERE id=?", -1, &update, nullptr);
  const std::string text = plan.dump();
  sqlite3_bind_text(update, 1, text.c_str(), -1, SQLITE_TRANSIENT);
  sqlite3_bind_int64(update, 2, run);
  CHECK(sqlite3_step(update) == SQLITE_DONE);
  CHECK(sqlite3_changes(db) == 1);
  sqlite3_finalize(update);
  sqlite3_close(db);
}

/// A way to a state, and the scope of its run.
struct State {
  const char* name;
  const std::string& plan;
  enum Kind { open, reverting, ended } kind;
  void (*reach)(World& world);
};

void is_in(const Result<Run>& run, RunState state) {
  INFO((run ? run->reason : run.error().text()));
  REQUIRE(run);
  REQUIRE(run->state == state);
}

void reboots(World& world) { is_in(world.apply(kPlan), RunState::rebooting); }
void rebooted(World& world) {
  reboots(world);
  world.boot();
}
void between_two_fixes(World& world) {
  world.fault("k", "cut");
  REQUIRE_THROWS_AS(world.apply(kPlan), PowerCut);
  world.fault("k", "");
}
void blocked(World& world) {
  world.write("live/c", "yes");
  is_in(world.apply(kBlocked), RunState::rebooting);
  world.remove("live/c");
  world.boot();
  is_in(world.go_on(), RunState::blocked);
}
void blocked_before(World& world) {
  blocked(world);
  world.boot();
}
void paused(World& world) {
  reboots(world);
  is_in(world.start([](Walk& walk) { return walk.request(Event::pause); }), RunState::paused);
}
void done(World& world) { is_in(world.settle(world.apply(kPlan)), RunState::idle); }
void reverting(World& world) {
  done(world);
  is_in(world.revert(), RunState::reverting);
}
void cancelling(World& world) {
  rebooted(world);
  is_in(world.start([](Walk& walk) { return walk.request(Event::cancel); }), RunState::reverting);
}
void ready(World& world) {
  world.write("live/p", "yes");
  is_in(world.apply(kProven), RunState::ready);
}

const State kStates[] = {
    {"between two fixes", kPlan, State::open, between_two_fixes},
    {"rebooting", kPlan, State::open, reboots},
    {"rebooted", kPlan, State::open, rebooted},
    {"blocked", kBlocked, State::open, blocked},
    {"blocked before this boot", kBlocked, State::open, blocked_before},
    {"paused", kPlan, State::open, paused},
    {"reverting", kPlan, State::reverting, reverting},
    {"rolling back", kPlan, State::reverting, cancelling},
    {"done", kPlan, State::ended, done},
    {"ready", kProven, State::ended, ready},
};

/// Files of the world, except for those of a proof: a revert leaves its report.
std::string files(const World& world) {
  std::istringstream lines(world.tree());
  std::string kept;
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && !line.ends_with(": ") && line.find("p2pd/") == line.npos) kept += line + "\n";
  return kept;
}

/// Checks each state with each unknown word: `test` gets the world, the state and the word.
void with_each(const std::function<void(World&, const State&, const std::string&)>& test) {
  for (const State& state : kStates)
    for (const Unknown& unknown : kUnknown) {
      World world;
      state.reach(world);
      const std::string word = random_word();
      INFO(state.name << ", unknown " << unknown.what << " \"" << word << "\"");
      make_unknown(world, 1, unknown, word);
      test(world, state, word);
    }
}

/// Checks that revert undoes all changes.
void reverts(World& world) {
  static const std::string kDelivered = files(World());
  const Result<Run> run = world.settle(world.revert());
  INFO((run ? run->reason : run.error().text()));
  REQUIRE(run);
  CHECK_FALSE(is_open(run->state));
  CHECK(world.undo_entries() == 0);
  world.remove("live/p");
  CHECK(files(world) == kDelivered);
}

std::string said(const Result<Run>& run) {
  return run ? fmt::format("{} {}: {}", to_string(run->state), run->result, run->reason) : run.error().text();
}

}  // namespace

TEST_CASE("unknown words: revert undoes all changes, from every state") {
  with_each([](World& world, const State&, const std::string&) { reverts(world); });
}

TEST_CASE("unknown words: a run is not continued, the error names run, word and next step, and nothing changes") {
  with_each([](World& world, const State& state, const std::string& word) {
    if (state.kind != State::open) return;
    const std::string before = files(world);
    const int events = world.count("fixing");
    const Result<Run> run = world.apply(state.plan);
    INFO(said(run));
    REQUIRE_FALSE(run);
    CHECK(run.error().message.find("run 1 of plan test") != std::string::npos);
    CHECK(run.error().text().find(word) != std::string::npos);
    CHECK(run.error().next.find("p2pctl") != std::string::npos);
    CHECK(files(world) == before);
    CHECK(world.count("fixing") == events);
    CHECK(world.reboots <= 1);
    reverts(world);
  });
}

TEST_CASE("unknown words: a start fails the run and undoes it, and a rollback goes on") {
  with_each([](World& world, const State& state, const std::string&) {
    const std::string before = files(world);
    const int reboots = world.reboots;
    if (state.kind == State::reverting) {
      const Result<Run> run = world.settle(world.go_on());
      INFO(said(run));
      REQUIRE(run);
      CHECK_FALSE(is_open(run->state));
      return reverts(world);
    }
    const Result<Run> run = world.settle(world.go_on());
    INFO(said(run));
    REQUIRE(run);
    const bool waits = state.reach == paused || state.reach == blocked;  // for a person, in this boot
    if (state.kind == State::open && !waits) {
      CHECK(run->state == RunState::failed);
      CHECK(run->reason.find("run 1 of plan test cannot be continued") != std::string::npos);
      CHECK(world.undo_entries() == 0);
    } else {
      CHECK(files(world) == before);
      CHECK(world.reboots == reboots);
    }
    reverts(world);
  });
}

TEST_CASE("unknown words: prove, reassert and a new kernel work, and leave the run as it is") {
  using Ask = Result<Run> (Walk::*)();
  struct Asked {
    const char* name;
    Ask ask;
  };
  for (const Asked& asked :
       {Asked{"prove", &Walk::prove_again}, {"reassert", &Walk::reassert}, {"new kernel", &Walk::add_kernel}})
    with_each([&](World& world, const State& state, const std::string&) {
      const std::string before = files(world);
      const Result<Run> run = world.start([&](Walk& walk) { return (walk.*asked.ask)(); });
      INFO(asked.name << ": " << said(run));
      // the kernel is prepared once no run is open
      const bool later = asked.ask == &Walk::add_kernel && state.kind != State::ended;
      if (!run) CHECK((later && run.error().code == ErrorCode::busy));
      CHECK(files(world) == before);
      reverts(world);
    });
}

TEST_CASE("unknown words: cancel undoes the changes of the run") {
  with_each([](World& world, const State& state, const std::string&) {
    if (state.kind == State::open) {
      const Result<Run> run = world.settle(world.start([](Walk& walk) { return walk.request(Event::cancel); }));
      INFO(said(run));
      REQUIRE(run);
      CHECK(run->result == "cancelled");
    } else {
      const Result<Run> run = world.settle(world.start([](Walk& walk) { return walk.cancel_accepted(); }));
      INFO(said(run));
      REQUIRE(run);
    }
    reverts(world);
  });
}

TEST_CASE("unknown words: retry of an open run is refused as apply is, and changes nothing") {
  with_each([](World& world, const State& state, const std::string& word) {
    if (state.reach != blocked && state.reach != blocked_before) return;
    const std::string before = files(world);
    const Result<Run> run = world.start([](Walk& walk) { return walk.request(Event::retry); });
    INFO(said(run));
    REQUIRE_FALSE(run);
    CHECK(run.error().text().find(word) != std::string::npos);
    CHECK(files(world) == before);
    reverts(world);
  });
}

TEST_CASE("unknown words: resume of a paused run is refused as apply is, and changes nothing") {
  with_each([](World& world, const State& state, const std::string& word) {
    if (state.reach != paused) return;
    const Result<Run> run = world.start([](Walk& walk) { return walk.request(Event::resume); });
    INFO(said(run));
    REQUIRE_FALSE(run);
    CHECK(run.error().text().find(word) != std::string::npos);
    reverts(world);
  });
}

TEST_CASE("unknown words: after a run that ended, apply begins a new one") {
  with_each([](World& world, const State& state, const std::string&) {
    if (state.kind != State::ended) return;
    const Result<Run> run = world.settle(world.apply(state.plan));
    INFO(said(run));
    REQUIRE(run);
    CHECK(run->id == 2);
    CHECK((run->result == "done" || run->result == "ready"));
    reverts(world);
  });
}

TEST_CASE("unknown words: in an earlier run that stays, they stop no request of a later one") {
  for (const Unknown& unknown : kUnknown) {
    World world;
    done(world);
    const std::string first = files(world);
    const std::string word = random_word();
    INFO("unknown " << unknown.what << " \"" << word << "\"");
    make_unknown(world, 1, unknown, word);
    std::string second = plan_of({"x:live", "y:boot"});
    second.replace(second.find("test"), 4, "second");
    is_in(world.apply(second), RunState::rebooting);
    for (const auto& ask : {&Walk::prove_again, &Walk::reassert}) {
      const Result<Run> run = world.start([&](Walk& walk) { return (walk.*ask)(); });
      INFO(said(run));
      CHECK(run);
    }
    is_in(world.settle(world.start([](Walk& walk) { return walk.request(Event::cancel); })), RunState::idle);
    CHECK(files(world) == first);
    for (const auto& ask : {&Walk::prove_again, &Walk::reassert, &Walk::add_kernel}) {
      const Result<Run> run = world.start([&](Walk& walk) { return (walk.*ask)(); });
      INFO(said(run));
      CHECK(run);
    }
    reverts(world);
  }
}
