// SPDX-License-Identifier: MIT
#include <fstream>

#include "actions/registry.hpp"
#include "catch.hpp"
#include "plan/config.hpp"
#include "probes/registry.hpp"
#include "temporary.hpp"
#include "world.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

std::string error_of(std::string_view yaml) {
  const auto plan = parse_plan(yaml, "p.yaml", World::registry());
  return plan ? "" : plan.error().message;
}

std::string with_step(const std::string& step) { return "name: n\ntitle: t\nsteps:\n  - " + step + "\n"; }

}  // namespace

TEST_CASE("a plan is read whole") {
  const auto plan = parse_plan(R"(
name: n
title: t
policy: {reboots: 3, attempts: 5, on_failure: keep, reboot: external}
gpus: {exclude: ["0000:65:00.0", "10de:1d01"]}
steps:
  - requires: space
    title: There is space
    check: now
    with: {name: space}
  - gate: a
    title: A is so
    why: because
    check: now
    fix: live
    with: {name: a}
    needs: [space]
  - gate: b
    title: B is so
    check: now
    with: {name: b}
    operator: do it
    after: [a]
)",
                               "p.yaml", World::registry());
  REQUIRE(plan);
  CHECK(plan->policy.reboots == 3);
  CHECK(plan->policy.on_failure == OnFailure::keep);
  CHECK(plan->gpus.left_out == std::vector<std::string>{"0000:65:00.0", "10de:1d01"});
  CHECK(plan->policy.reboot == RebootPolicy::external);
  CHECK(plan->steps[0].kind == StepKind::requires_);
  CHECK(plan->steps[1].needs == std::vector<std::string>{"space"});
  CHECK(plan->step("b")->operator_text == "do it");
  SECTION("and comes back out of the journal the same") {
    const std::string frozen = to_json(*plan).dump();
    const auto again = parse_plan(frozen, "journal", World::registry());
    REQUIRE(again);
    CHECK(to_json(*again).dump() == frozen);
  }
}

TEST_CASE("config: the libnccl of full proofs is that of every goal, unless the plan names one") {
  CHECK(parse_config("nccl: lib/libnccl.so.2\n", "p2pd.yaml").error().message ==
        "p2pd.yaml:1: nccl: expected an absolute path");
  const Config config = parse_config("nccl: /opt/libnccl.so.2\n", "p2pd.yaml").value();
  const test::TemporaryDirectory directory;
  const std::string file = directory / "p.yaml";
  const auto with = [&](const std::string& parameters) {
    std::ofstream(file) << "name: p\ntitle: t\nsteps:\n  - goal: g\n    title: t\n    check: p2p-bench\n" + parameters +
                               "  - gate: h\n    title: t\n    check: gpu-inventory\n    with: {at_least: 2}\n";
    const Plan plan = load_plan(config, file, {probes(), actions()}).value();
    CHECK_FALSE(plan.step("h")->with.contains("nccl"));
    return plan.step("g")->with.dump();
  };
  CHECK(with("") == R"({"nccl":"/opt/libnccl.so.2"})");
  CHECK(with("    with: {nccl: /own.so}\n") == R"({"nccl":"/own.so"})");
}

TEST_CASE("every error names file, line, key and what was expected") {
  const struct {
    std::string yaml;
    std::string error;
  } cases[] = {
      {"", "p.yaml:1: empty; expected a YAML map"},
      {"# nothing\n", "p.yaml:1: empty; expected a YAML map"},
      {"- a\n", "p.yaml:1: expected a map of names to values"},
      {"name: n\ntitel: t\n", "p.yaml:2: titel: unknown key; did you mean \"title\"?"},
      {"name: n\nname: m\n", "p.yaml:2: name: given twice"},
      {"name: N!\ntitle: t\nsteps: []\n", "p.yaml:1: name: expected a name of a-z, 0-9 and -, at most 64 characters"},
      {"name: n\ntitle: t\nsteps: []\n", "p.yaml:3: steps: empty; expected at least one step"},
      {"name: n\ntitle: t\npolicy: {reboots: 99}\nsteps: [1]\n",
       "p.yaml:3: policy.reboots: expected a whole number from 0 to 20, found \"99\""},
      {"name: n\ntitle: t\npolicy: {on_failure: explode}\nsteps: [1]\n",
       "p.yaml:3: policy.on_failure: expected one of revert, keep, found \"explode\""},
      {"name: n\ntitle: t\ngpus: {exclude: [\"65\"]}\nsteps: [1]\n",
       "p.yaml:3: gpus.exclude: \"65\" names no GPU: expected a PCI address (0000:65:00.0), a model (10de:1d01) or a "
       "UUID (GPU-...)"},
      {"name: [\n", "p.yaml:2: end of sequence flow not found"},
      {with_step("{gate: a, title: t, check: nwo, with: {name: a}}"),
       "p.yaml:4: steps[0].check: there is no check \"nwo\"; did you mean \"now\"?"},
      {with_step("{gate: a, title: t, check: now, fix: lvie, with: {name: a}}"),
       "p.yaml:4: steps[0].fix: there is no fix \"lvie\"; did you mean \"live\"?"},
      {with_step("{gate: a, title: t, check: now}"),
       "p.yaml:4: steps[0]: parameter \"name\" is missing (of the thing)"},
      {with_step("{gate: a, title: t, check: now, with: {nam: a}}"),
       "p.yaml:4: steps[0].with.nam: unknown key; did you mean \"name\"?"},
      {with_step("{gate: a, title: t, check: now, with: {name: [a]}}"), "p.yaml:4: steps[0].with.name: expected text"},
      {with_step("{gate: a, requires: a, title: t, check: now, with: {name: a}}"),
       "p.yaml:4: steps[0]: expected one of \"goal\", \"gate\", \"upkeep\", \"requires\" and \"alternative\", each "
       "with a name"},
      {with_step("{gate: a, title: t, check: now, with: {name: a}, after: [a]}"),
       "p.yaml:4: steps[0].after: \"a\" waits for itself"},
      {with_step("{gate: aa, title: t, check: now, with: {name: a}, after: [bb]}\n"
                 "  - {gate: bb, title: t, check: now, with: {name: a}, after: [aa]}"),
       "p.yaml:4: steps[0].after: \"bb\" comes later: a cycle or the wrong order"},
      {with_step("{gate: aa, title: t, check: now, with: {name: a}, after: [zz]}"),
       "p.yaml:4: steps[0].after: there is no gate step \"zz\""},
      {with_step(
           "{gate: a, title: t, check: now, with: {name: a}}\n  - {gate: a, title: t, check: now, with: {name: a}}"),
       "p.yaml:5: steps[1]: step \"a\" is there twice"},
      {"a: &x [*x]\n", "p.yaml:1: aliases (*name) are not allowed"},
      {"name: \xff\n", "p.yaml:1: not UTF-8 text"},
      {"name: n\n\ntitle: \xc3\n", "p.yaml:3: not UTF-8 text"},
      {std::string(2U << 20, 'a'), "p.yaml:1: 2097152 bytes; expected at most 1 MiB"},
      {std::string(5000, '['), "p.yaml:1: nested deeper than 32 levels"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.yaml.substr(0, 100));
    CHECK(error_of(c.yaml) == c.error);
  }
}

TEST_CASE("plan: based on another one: its steps, a step of the same name in its place, others behind it") {
  const PlanSource source = [](const std::string& name) -> Result<Plan> {
    if (name != "base") return fail(ErrorCode::not_found, "no plan \"" + name + "\"");
    return parse_plan(
        "name: base\ntitle: t\npolicy: {reboots: 7}\nsteps:\n"
        "  - {requires: space, title: t, check: now, with: {name: space}}\n"
        "  - {gate: a, title: t, check: now, fix: live, with: {name: a}, needs: [space]}\n"
        "  - {gate: b, title: t, check: now, with: {name: b}, after: [a]}\n",
        "base.yaml", World::registry());
  };
  const auto read = [&](const std::string& rest) {
    return parse_plan("name: mine\ntitle: m\nbased_on: base\n" + rest, "p.yaml", World::registry(), source);
  };
  const Plan plan = read(
                        "steps:\n  - {gate: c, title: t, check: now, with: {name: c}, after: [b]}\n"
                        "  - {gate: b, title: mine, check: now, with: {name: x}, after: [a]}\n")
                        .value();
  CHECK(plan.name == "mine");
  CHECK(plan.policy.reboots == 7);
  REQUIRE(plan.steps.size() == 4);
  CHECK(plan.steps[2].title == "mine");
  CHECK(plan.steps[3].id == "c");
  const Plan checks = read("fixes: none\n").value();
  REQUIRE(checks.steps.size() == 2);
  CHECK_FALSE(checks.steps[0].is_fixable());
  CHECK(parse_plan(to_json(checks).dump(), "journal", World::registry()));
  CHECK(parse_plan(to_json(plan).dump(), "journal", World::registry()));
  const PlanSource escalates = [](const std::string&) {
    return parse_plan(
        "name: base\ntitle: t\nsteps:\n"
        "  - {gate: a, title: t, check: now, with: {name: a}}\n"
        "  - {alternative: x, title: t, check: now, fix: live, with: {name: x}}\n"
        "  - {goal: g, title: t, check: proof, with: {name: g}, after: [a]}\n",
        "base.yaml", World::registry());
  };
  const Plan more = parse_plan(
                        "name: mine\ntitle: m\nbased_on: base\nsteps:\n"
                        "  - {alternative: y, title: t, check: now, fix: live, with: {name: y}}\n"
                        "  - {alternative: z, title: t, check: now, fix: live, with: {name: z}}\n",
                        "p.yaml", World::registry(), escalates)
                        .value();
  std::string order;
  for (const Step& step : more.steps) order += step.id;
  CHECK(order == "ayzxg");
  const auto told = [&](const std::string& rest) { return read(rest).error().message; };
  CHECK(told("steps:\n  - {requires: a, title: t, check: now, with: {name: a}}\n") ==
        "p.yaml:1: based_on: step \"b\": after: there is no gate step \"a\"");
  CHECK(told("steps: []\n").find("p.yaml:4: steps: empty") == 0);
  CHECK(parse_plan("name: m\ntitle: m\nbased_on: other\n", "p.yaml", World::registry(), source).error().message ==
        "p.yaml:3: based_on: no plan \"other\"");
  CHECK(parse_plan("name: m\ntitle: m\nbased_on: base\n", "p.yaml", World::registry()).error().message ==
        "p.yaml:3: based_on: no other plan can be read here");
}

TEST_CASE("plan: each fix of the registry that lasts for one boot is made again early in the next") {
  const Registry registry{probes(), actions()};
  int count = 0;
  for (const Action& action : registry.actions) {
    if (!action.each_boot) continue;
    CAPTURE(action.id);
    ++count;
    CHECK(action.effect == Effect::live);  // a boot-time effect would need another boot
    for (const StepKind kind : kStepKinds) {
      Step step;
      step.kind = kind;
      step.fix = action.id;
      CHECK(each_boot_of({.name = "p", .title = "t", .policy = {}, .steps = {step}}, registry).steps.size() == 1);
    }
  }
  CHECK(count > 0);
  const auto has = [](const char* file, const std::string& line) {
    std::ifstream in(std::string(P2PD_SOURCE_DIR "/units/") + file);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    return text.find("\n" + line + "\n") != std::string::npos;
  };
  CHECK(has("p2pd.preset", "enable p2pd-reassert.service"));
  for (const char* line : {"ExecStart=/usr/libexec/p2pd/p2pd-worker reassert", "Before=sysinit.target shutdown.target",
                           "WantedBy=sysinit.target"})
    CHECK(has("p2pd-reassert.service", line));
}
