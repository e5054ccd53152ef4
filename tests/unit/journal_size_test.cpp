// SPDX-License-Identifier: MIT
// The journal of a machine that proves at each boot: old runs are pruned, and nothing that is still needed.
#include <fmt/format.h>

#include "catch.hpp"
#include "engine/journal.hpp"
#include "engine/status.hpp"
#include "temporary.hpp"

using namespace p2pd;
using p2pd::test::TemporaryDirectory;

namespace {

const nlohmann::json kFinding = {
    {"verdict", "pass"}, {"summary", "was so"}, {"next", ""}, {"facts", {{"x", 1}}}, {"evidence", {}}};

StepRecord step_of(const std::string& name, bool applied) {
  StepRecord step;
  step.step = name;
  step.applied = applied;
  step.finding = kFinding;
  return step;
}

/// Adds a run that has ended; returns its id.
std::int64_t add(Journal& journal, const std::string& plan, const std::string& result, const ChangedSteps& in_place) {
  Run run;
  run.plan = plan;
  run.resolved = "the plan";
  run.state = RunState::walking;
  run = journal.begin_run(run, in_place, {"t", "b", 0, "", "begun", ""}).value();
  run.state = RunState::idle;
  run.result = result;
  REQUIRE(journal.save(run, {step_of("s", false)}, in_place, {"t", "b", run.id, "", "ended", ""}));
  return run.id;
}

}  // namespace

TEST_CASE("journal: old runs keep their verdicts, the oldest go, and what is needed stays whole") {
  TemporaryDirectory state;
  auto journal = Journal::open(state.path(), Journal::Access::write).value();
  add(journal, "older", "ready", {});
  const std::int64_t reverted = add(journal, "older", "reverted", {});
  const std::int64_t ready = add(journal, "plan", "ready", {{3, "a"}});
  for (int boot = 0; boot < 540; ++boot) add(journal, "verify", "ready", {{ready, "a"}});
  Run open;
  open.plan = "open";
  open.state = RunState::walking;
  open = journal.begin_run(open, {{ready, "a"}}, {"t", "b", 0, "", "begun", ""}).value();
  StepRecord tried = step_of("c", true);
  tried.attempts = 2;
  tried.crashes = 1;
  REQUIRE(journal.save(open, {tried}, {{ready, "a"}}, {"t", "b", open.id, "c", "tried", ""}));
  REQUIRE(journal.add_boot(open, "b", {"t", "b", open.id, "", "boot", ""}));
  REQUIRE(journal.open_intent(open, {0, Intent::Kind::hazard, "c", "b"}, {"t", "b", open.id, "c", "trial", ""}));

  const auto runs = journal.runs(10'000).value();
  CHECK(runs.size() == 500 + 3);
  CHECK(runs.back().id == 1);  // the newest proof of its plan
  CHECK(runs[501].id == reverted);
  CHECK(runs[500].id == ready);
  CHECK(runs[500].resolved == "the plan");
  CHECK(runs[100].resolved.empty());
  CHECK(journal.steps(runs[100].id)->front().finding ==
        nlohmann::json{{"verdict", "pass"}, {"summary", "was so"}, {"next", ""}});
  CHECK(journal.steps(runs[20].id)->front().finding == kFinding);
  CHECK(journal.newest_proven("verify")->value().id == ready);
  CHECK(journal.runs_in_place()->front().id == open.id);
  CHECK(journal.stays(open)->front().steps == std::vector<std::string>{"a"});
  CHECK(journal.events(4, 43, 10'000)->empty());
  CHECK(journal.steps(open.id).value() == std::vector<StepRecord>{tried});
  CHECK(journal.knows_boot(open.id, "b").value());
  CHECK(journal.open_intents(open.id)->size() == 1);
}

TEST_CASE("journal: the changes of a run that is not on record stay on record") {
  TemporaryDirectory state;
  auto journal = Journal::open(state.path(), Journal::Access::write).value();
  Run run;
  run.id = 7;  // of the undo records
  run = journal.begin_run(run, {{7, "a"}, {7, "b"}}, {"t", "b", 0, "", "begun", ""}).value();
  CHECK(run.id == 8);
  REQUIRE(run.stays.size() == 1);
  CHECK(run.stays[0].run == 7);
  CHECK(run.stays[0].plan.empty());
  CHECK(run.stays[0].steps == std::vector<std::string>{"a", "b"});
  run.result = "reverted";
  REQUIRE(journal.save(run, {}, {}, {"t", "b", 8, "", "reverted", ""}));
  CHECK(journal.stays(run)->empty());
}

TEST_CASE("journal: a finding that is larger than any of p2p-bench is kept as its verdict, and read as none") {
  TemporaryDirectory state;
  auto journal = Journal::open(state.path(), Journal::Access::write).value();
  Run run = journal.begin_run({}, {}, {}).value();
  StepRecord step = step_of("s", false);
  step.finding["facts"]["x"] = std::string(kFindingLimit, 'x');
  REQUIRE(journal.save(run, {step}, {}, {}));
  CHECK(journal.steps(run.id)->front().finding == verdict_of(kFinding));
}

TEST_CASE("history: pages follow each other, with every run and event once") {
  TemporaryDirectory state;
  auto journal = Journal::open(state.path(), Journal::Access::write).value();
  for (int i = 0; i < 10; ++i) add(journal, "p", "done", {});
  std::vector<std::int64_t> runs, events;
  std::int64_t before = 0;
  do {
    const nlohmann::json page = history_in_journal(state.path(), 3, before).value();
    REQUIRE(page["runs"].size() <= 3);
    for (const auto& run : page["runs"]) runs.push_back(run["id"]);
    for (const auto& event : page["events"]) events.push_back(event["run"]);
    before = page["before"];
  } while (before != 0);
  CHECK(runs == std::vector<std::int64_t>{10, 9, 8, 7, 6, 5, 4, 3, 2, 1});
  CHECK(events.size() == 20);
  CHECK(history_in_journal(state.path(), 3, 1).value()["runs"].empty());
}
