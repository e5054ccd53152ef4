// SPDX-License-Identifier: MIT
#include "plan/resolve.hpp"

#include <algorithm>

#include "catch.hpp"
#include "machine/driver/machine.hpp"
#include "machine/driver/solver.hpp"
#include "machines.hpp"

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

const Catalogue& shipped() {
  static const Catalogue kShipped = parse_catalogue({shipped_catalogue()}).value();
  return kShipped;
}

Choice choice_on(const char* record) {
  const test::ChangedRecord machine(record);
  RecordedRunner runner(machine.root());
  return choose_driver(shipped(), machine_of(Host(machine.root(), runner), shipped()).value());
}

Plan resolved_on(const char* record, Plan plan) {
  const test::ChangedRecord machine(record);
  RecordedRunner runner(machine.root());
  return resolve(std::move(plan), {}, Host(machine.root(), runner));
}

}  // namespace

TEST_CASE("resolve: the entry is the solver's, none where P2P works already, and open where nothing fits") {
  const std::string best = choice_on("rtx4090-x2-am5").entry->id;
  for (const auto& [record, entry] : {std::pair<const char*, std::string>{"rtx4090-x2-am5", best},
                                      {"h200-x4-vm", "none"},
                                      {"rtxa6000-x2", "none"},
                                      {"rtx3090-x4-epyc", "chosen"},
                                      {"no-gpu", "chosen"}}) {
    CAPTURE(record);
    const Plan plan = resolved_on(record, plan_of({{{"entry", "chosen"}, {"by", "dkms"}}}));
    CHECK(plan.steps[0].with == Parameters{{"entry", entry}, {"by", "dkms"}});
  }
}

TEST_CASE("resolve: the CUDA toolkit is for the driver that is chosen, or for the one that stays") {
  const std::string runs = choice_on("rtx4090-x2-am5").entry->cuda;
  for (const auto& [record, version] :
       {std::pair<const char*, std::string>{"rtx4090-x2-am5", runs}, {"rtxa6000-x2", "13.0"}, {"no-gpu", "chosen"}}) {
    CAPTURE(record);
    std::string package = version;
    std::ranges::replace(package, '.', '-');
    const Plan plan = resolved_on(record, plan_of({{{"version", "chosen"}}, {{"version", "12-1"}}}));
    CHECK(plan.steps[0].with["version"] == package);
    CHECK(plan.steps[1].with["version"] == "12-1");
  }
}

TEST_CASE("resolve: what p2pd installed stays, as long as it fits") {
  const Choice choice = choice_on("rtx4090-x2-am5");
  const auto chosen = [](const std::string& release, const std::string& commit) {
    const test::ChangedRecord machine("rtx4090-x2-am5");
    machine.file("var/lib/dpkg/status", "");  // the runfile's driver: packages were purged
    machine.file("usr/src/p2pd-nvidia-" + release + "/dkms.conf",
                 "# Written by p2pd for x/y, commit " + commit + "; gone\n");
    RecordedRunner runner(machine.root());
    return resolve(plan_of({{{"entry", "chosen"}}}), {}, Host(machine.root(), runner)).steps[0].with["entry"];
  };
  const auto verdict = std::ranges::find_if(choice.table, [&](const EntryVerdict& row) {
    return row.entry != choice.entry && row.entry->has_runfile() && row.fit <= EntryVerdict::Fit::untried;
  });
  REQUIRE(verdict != choice.table.end());
  const CatalogueEntry& other = *verdict->entry;
  const std::string best = chosen("1.1", std::string(40, '1'));  // of no entry
  CHECK(best != other.id);
  CHECK(chosen(other.base_version, other.commit) == other.id);
  CHECK(chosen("1.1", other.commit) == best);
  CHECK(chosen(other.base_version, std::string(40, '1')) == best);
}

TEST_CASE("resolve: packages stay where they are of the entry's version") {
  const auto resolved = [](const test::ChangedRecord& machine, const std::string& entry) {
    RecordedRunner runner(machine.root());
    return resolve(plan_of({{{"entry", entry}, {"userspace", "chosen"}}}), {}, Host(machine.root(), runner))
        .steps[0]
        .with;
  };
  const std::string patched = "guru1987/580.105.08-p2p-on-580.178.04";
  const test::ChangedRecord ubuntu("ubuntu26-rtx4090-x2"), debian("debian13-backports-rtx4090-x2");
  CHECK(resolved(ubuntu, "chosen") == Parameters{{"entry", patched}, {"userspace", "keep"}});
  CHECK(resolved(ubuntu, "aikitoria/570.86.16-p2p")["userspace"] == "runfile");  // a plan's own choice
  CHECK(resolved(debian, "chosen") == Parameters{{"entry", "aikitoria/595.58.03-p2p"},
                                                 {"userspace", "runfile"}});  // its 550.163.01 does not build for 7.3
  ubuntu.file(
      "lib/modules/7.0.0-34-generic/updates/p2pd/build.json",
      R"({"made_of": {"release": "570.211.01", "commit": "0e943687150e438f265b6fe2b0f6b8bae66050fe"}, "modules": {"nvidia": {}}})");
  CHECK(resolved(ubuntu, "chosen") ==
        Parameters{{"entry", patched}, {"userspace", "keep"}});  // the packages were upgraded since
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
  const std::vector<Parameters> given = {
      Parameters::object(), {{"entry", "test/main"}}, {{"entry", "none"}}, {{"arguments", {"iommu=pt"}}}};
  const Plan plan = resolved_on("rtx4090-x2-am5", plan_of(given));
  for (std::size_t i = 0; i < given.size(); ++i) CHECK(plan.steps[i].with == given[i]);
}

TEST_CASE("resolve: of an image, what is about the machine is left to its first boot") {
  constexpr Probe kProbes[] = {{.id = "bus", .asserts = "", .skip_on_image = true}, {.id = "file", .asserts = ""}};
  const Registry registry{kProbes, {}};
  Plan plan;
  for (const auto& [id, check] : {std::pair{"gpus", "bus"}, {"quiet", "bus"}, {"kept", "file"}, {"driver", "file"}}) {
    plan.steps.emplace_back();
    plan.steps.back().id = id;
    plan.steps.back().check = check;
  }
  plan.steps.back().after = {"gpus"};
  plan.steps.back().needs = {"quiet"};
  plan.steps[2].where = {"quiet"};  // nobody knows whether p2pd keeps it
  const test::ChangedRecord tree;
  RecordedRunner runner(tree.root());
  const Host host(tree.root(), runner);
  const Plan left = resolve(plan, registry, host);
  REQUIRE(left.steps.size() == 1);
  CHECK(left.steps[0].id == "driver");
  CHECK(left.steps[0].after.empty());
  CHECK(left.steps[0].needs.empty());
  tree.file("sys/bus/pci/devices/.none", "");  // a machine's tree, inspected from another machine
  CHECK(resolve(plan, registry, host).steps.size() == 4);
  CHECK(resolved_on("no-gpu", plan).steps.size() == 4);
}

TEST_CASE("resolve: modules that a person built where p2pd replaces no driver get the options of their build") {
  const test::ChangedRecord machine("fedora43-rtx4090-x2");
  RecordedRunner runner(machine.root());
  const auto entry = [&] {
    return resolve(plan_of({{{"entry", "chosen"}}}), {}, Host(machine.root(), runner)).steps[0].with["entry"];
  };
  CHECK(entry() == "chosen");
  machine.file("lib/modules/6.17.7-300.fc43.x86_64/modules.dep", "updates/by-hand/nvidia.ko:\n");
  const Choice choice = choose_driver(shipped(), machine_of(Host(machine.root(), runner), shipped()).value());
  CHECK(choice.entry == nullptr);
  REQUIRE(choice.by_hand != nullptr);
  CHECK(choice.by_hand->base_version == "580.105.08");
  CHECK(entry() == choice.by_hand->id);
}
