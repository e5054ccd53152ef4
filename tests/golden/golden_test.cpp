// SPDX-License-Identifier: MIT
// Every probe on every machine record, against tests/golden/PROBE.txt: what it says, on which machines, and one whole
// finding. P2PD_GOLDEN_UPDATE=1 writes these files.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "../unit/catch.hpp"
#include "../unit/machines.hpp"
#include "base/recorded.hpp"
#include "probes/registry.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using nlohmann::json;

namespace {

using Findings = std::map<std::string, Finding>;  // by machine

constexpr std::size_t kWidth = 120;
constexpr char kOthers[] = "all others";

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
    findings[machine] = found ? *found : unknown(found.error());
  }
  return findings;
}

/// "fail: SUMMARY" and lines below it for what else a person reads.
std::string row_of(const Finding& finding) {
  std::string row = fmt::format("{}: {}\n", to_string(finding.verdict), finding.summary);
  const auto add = [&](std::string_view name, std::string_view value) {
    if (!value.empty()) row += fmt::format("  {}: {}\n", name, value);
  };
  add("next", finding.next);
  add("danger", finding.danger);
  add("impossible", finding.impossible ? "yes" : "");
  for (const auto& [gpu, reason] : finding.in_the_way) add(gpu + " is in the way", reason);
  return row;
}

/// Names in lines of at most kWidth, indented.
std::string wrapped(const std::vector<std::string>& names) {
  std::string text = " ";
  std::size_t width = 1;
  for (const std::string& name : names) {
    if (width + 1 + name.size() > kWidth) text += "\n ", width = 1;
    text += " " + name;
    width += 1 + name.size();
  }
  return text + "\n";
}

/// A row for each text, by the first of its machines; the most frequent one has "all others". The example is the
/// first machine of the most frequent failure, or of the first row.
std::string golden_text(const Findings& findings) {
  std::vector<std::pair<std::string, std::vector<std::string>>> rows;
  for (const auto& [machine, finding] : findings) {
    const std::string text = row_of(finding);
    const auto row = std::ranges::find(rows, text, &decltype(rows)::value_type::first);
    (row == rows.end() ? rows.emplace_back(text, std::vector<std::string>()) : *row).second.push_back(machine);
  }
  const auto machines = [](const auto& row) { return row.second.size(); };
  const auto failures = [](const auto& row) { return row.first.starts_with("fail") ? row.second.size() : 0; };
  const std::string example = std::ranges::max_element(rows, {}, failures)->second.front();
  std::ranges::max_element(rows, {}, machines)->second = {kOthers};
  std::string text;
  for (const auto& [row, names] : rows) text += row + wrapped(names);
  return text + fmt::format("\nThe whole finding of {}:\n{}\n", example, to_json(findings.at(example)).dump(1));
}

/// The lines that only one of two texts has, "- " of the first and "+ " of the second.
std::string difference(const std::string& before, const std::string& now) {
  const auto lines = [](const std::string& text) {
    std::multiset<std::string> all;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) all.insert(line);
    return all;
  };
  const auto only = [](const std::multiset<std::string>& these, const std::multiset<std::string>& others) {
    std::vector<std::string> left;
    std::ranges::set_difference(these, others, std::back_inserter(left));
    return left;
  };
  std::string text;
  for (const std::string& line : only(lines(before), lines(now))) text += "- " + line + "\n";
  for (const std::string& line : only(lines(now), lines(before))) text += "+ " + line + "\n";
  return text;
}

}  // namespace

TEST_CASE("golden: every probe on every machine record") {
  REQUIRE(test::machine_names().size() > 1);
  REQUIRE_FALSE(probes().empty());
  for (const Probe& probe : probes()) {
    const fs::path file = kGolden / (std::string(probe.id) + ".txt");
    const std::string found = golden_text(look(probe));
    if (std::getenv("P2PD_GOLDEN_UPDATE") != nullptr) std::ofstream(file, std::ios::binary) << found;
    const std::string expected = text_of(file);
    INFO(file.string());
    if (found != expected) FAIL_CHECK(difference(expected, found));
  }
}

TEST_CASE("golden: a probe that asks the loaded driver on a healthy machine says so") {
  const Root root = Root::open(test::machine_path("rtx4090-x2-healthy")).value();
  RecordedRunner runner(root);
  for (const Probe& probe : probes()) {
    Host host(root, runner);
    bool asked = false;
    host.set_driver([&] {
      asked = true;
      return runner.run({{"p2p-bench", "--driver-peers"}});
    });
    (void)probe.check(host, parameters_of(probe.id));
    INFO(probe.id);
    CHECK(asked == probe.asks_driver);
  }
}

TEST_CASE("golden: no file without its probe") {
  for (const fs::directory_entry& file : fs::directory_iterator(kGolden)) {
    INFO(file.path().string());
    CHECK_FALSE(file.is_directory());
    if (file.path().extension() != ".txt") continue;
    const std::string id = file.path().stem();
    CHECK(std::ranges::find(probes(), id, &Probe::id) != probes().end());
  }
}
