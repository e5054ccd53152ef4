// SPDX-License-Identifier: MIT
// Every probe on every machine record, against tests/golden/PROBE.json: each finding, and the machines that have it.
// P2PD_GOLDEN_UPDATE=1 writes these files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include "../unit/catch.hpp"
#include "../unit/machines.hpp"
#include "base/recorded.hpp"
#include "probes/registry.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using nlohmann::json;

namespace {

using Findings = std::map<std::string, json>;  // by machine

const fs::path kGolden = fs::path(P2PD_SOURCE_DIR) / "tests/golden";
const fs::path kParameters = kGolden / "parameters.json";

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Parameters of a probe from parameters.json; none if it needs none.
Parameters parameters_of(std::string_view probe) {
  return json::parse(text_of(kParameters)).value(std::string(probe), json::object());
}

Findings look(const Probe& probe) {
  Findings findings;
  for (const std::string& machine : test::machine_names()) {
    const Root root = Root::open(test::machine_path(machine)).value();
    RecordedRunner runner(root);
    const Host host(root, runner);
    const auto found = probe.check(host, parameters_of(probe.id));
    findings[machine] = to_json(found ? *found : unknown(found.error()));
  }
  return findings;
}

/// The text of the file: {"machines": [NAME], "finding": {...}} for each finding, by the first of its machines.
std::string golden_text(const Findings& findings) {
  auto groups = nlohmann::ordered_json::array();
  for (const auto& [machine, finding] : findings) {
    const nlohmann::ordered_json same = finding;
    const auto group = std::ranges::find_if(groups, [&](const auto& one) { return one["finding"] == same; });
    if (group != groups.end())
      (*group)["machines"].push_back(machine);
    else
      groups.push_back({{"machines", nlohmann::ordered_json::array({machine})}, {"finding", same}});
  }
  return groups.dump(1) + "\n";
}

Findings findings_in(const std::string& text) {
  Findings findings;
  const json groups = json::parse(text, nullptr, false);
  if (groups.is_array())
    for (const json& group : groups)
      for (const json& machine : group.at("machines")) findings[machine] = group.at("finding");
  return findings;
}

/// A line for each value that is another: "/verdict: "pass" -> "fail"".
std::string difference(const json& before, const json& now) {
  std::string lines;
  for (const json& change : json::diff(before, now)) {
    const json::json_pointer at(change["path"].get<std::string>());
    const json was = before.contains(at) ? before[at] : json();
    lines += fmt::format("  {}: {} -> {}\n", at.to_string(), was.dump(), change.value("value", json()).dump());
  }
  return lines;
}

}  // namespace

TEST_CASE("golden: every probe on every machine record") {
  REQUIRE(test::machine_names().size() > 1);
  REQUIRE_FALSE(probes().empty());
  for (const Probe& probe : probes()) {
    const fs::path file = kGolden / (std::string(probe.id) + ".json");
    const Findings found = look(probe);
    if (std::getenv("P2PD_GOLDEN_UPDATE") != nullptr) std::ofstream(file, std::ios::binary) << golden_text(found);
    Findings expected = findings_in(text_of(file));
    std::map<std::string, std::vector<std::string>> differences;  // to the machines that have it
    for (const auto& [machine, finding] : found)
      if (expected[machine] != finding) differences[difference(expected[machine], finding)].push_back(machine);
    for (const auto& [lines, machines] : differences)
      FAIL_CHECK(fmt::format("{} on {}:\n{}", probe.id, fmt::join(machines, ", "), lines));
    INFO(file.string());
    CHECK((!differences.empty() || text_of(file) == golden_text(found)));  // no machine that is not there, sorted
  }
}

TEST_CASE("golden: no file without its probe") {
  for (const fs::directory_entry& file : fs::directory_iterator(kGolden)) {
    INFO(file.path().string());
    CHECK_FALSE(file.is_directory());
    if (file.path().extension() != ".json" || file.path() == kParameters) continue;
    const std::string id = file.path().stem();
    CHECK(std::ranges::find(probes(), id, &Probe::id) != probes().end());
  }
}
