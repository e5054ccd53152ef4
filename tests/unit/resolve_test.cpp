// SPDX-License-Identifier: MIT
#include "plan/resolve.hpp"

#include "catch.hpp"
#include "changed_record.hpp"

using namespace p2pd;

namespace {

Plan plan_of(const std::vector<Parameters>& parameters) {
  Plan plan;
  for (const Parameters& with : parameters) {
    plan.steps.emplace_back();
    plan.steps.back().with = with;
  }
  return plan;
}

Plan resolved_on(const char* record, Plan plan) {
  const test::ChangedRecord machine(record);
  RecordedRunner runner(machine.root());
  return resolve(std::move(plan), {}, Host(machine.root(), runner));
}

}  // namespace

TEST_CASE("resolve: the entry is the solver's, none where P2P works already, and open where nothing fits") {
  struct Case {
    const char* record;
    const char* entry;
  };
  for (const Case& one : {Case{"rtx4090-x2-am5", "aikitoria/570.86.16-p2p"}, Case{"h200-x4-vm", "none"},
                          Case{"rtxa6000-x2", "none"}, Case{"rtx5090-x2-genoa", "chosen"}, Case{"no-gpu", "chosen"}}) {
    CAPTURE(one.record);
    const Plan plan = resolved_on(one.record, plan_of({{{"entry", "chosen"}, {"by", "dkms"}}}));
    CHECK(plan.steps[0].with == Parameters{{"entry", one.entry}, {"by", "dkms"}});
  }
}

TEST_CASE("resolve: what p2pd installed stays, as long as it fits") {
  const test::ChangedRecord machine("rtx4090-x2-am5");
  const auto chosen = [&](const char* commit) {
    machine.file("usr/src/p2pd-nvidia-1/dkms.conf", "# Written by p2pd for x/y, commit " + std::string(commit) + "; gone\n");
    RecordedRunner runner(machine.root());
    return resolve(plan_of({{{"entry", "chosen"}}}), {}, Host(machine.root(), runner)).steps[0].with["entry"];
  };
  CHECK(chosen("9e39420bc4cb50cd7f8033ac6dd5c5583fd07567") == "tinygrad/565.57.01-p2p");
  CHECK(chosen("1111111111111111111111111111111111111111") == "aikitoria/570.86.16-p2p");  // of no entry
}

TEST_CASE("resolve: the ports that redirect, and no others") {
  for (const auto& [record, argument] :
       {std::pair{"rtx4090-x2-switch-acs", "pci=disable_acs_redir=0000:02:00.0;0000:02:04.0"},
        std::pair{"rtx4090-x2-healthy", "pci=disable_acs_redir=chosen"}}) {
    CAPTURE(record);
    const Plan plan = resolved_on(record, plan_of({{{"arguments", {"pci=realloc", "pci=disable_acs_redir=chosen"}}}}));
    CHECK(plan.steps[0].with["arguments"] == Parameters{"pci=realloc", argument});
  }
}

TEST_CASE("resolve: what the plan chose itself stays") {
  const std::vector<Parameters> given = {Parameters::object(), {{"entry", "test/main"}}, {{"entry", "none"}},
                                         {{"arguments", {"iommu=pt"}}}};
  const Plan plan = resolved_on("rtx4090-x2-am5", plan_of(given));
  for (std::size_t i = 0; i < given.size(); ++i) CHECK(plan.steps[i].with == given[i]);
}

TEST_CASE("resolve: of an image, what is about the machine is left to its first boot") {
  constexpr Probe kProbes[] = {{.id = "bus", .asserts = "", .of_the_machine = true}, {.id = "file", .asserts = ""}};
  const Vocabulary vocabulary{kProbes, {}};
  Plan plan;
  for (const auto& [id, check] : {std::pair{"gpus", "bus"}, {"quiet", "bus"}, {"driver", "file"}}) {
    plan.steps.emplace_back();
    plan.steps.back().id = id;
    plan.steps.back().check = check;
  }
  plan.steps.back().after = {"gpus"};
  plan.steps.back().needs = {"quiet"};
  const test::ChangedRecord tree;
  RecordedRunner runner(tree.root());
  const Host host(tree.root(), runner);
  const Plan left = resolve(plan, vocabulary, host);
  REQUIRE(left.steps.size() == 1);
  CHECK(left.steps[0].id == "driver");
  CHECK(left.steps[0].after.empty());
  CHECK(left.steps[0].needs.empty());
  tree.file("sys/bus/pci/devices/none", "");  // a machine's tree, looked at from elsewhere
  CHECK(resolve(plan, vocabulary, host).steps.size() == 3);
  CHECK(resolved_on("no-gpu", plan).steps.size() == 3);
}
