// SPDX-License-Identifier: MIT
// Every probe on every machine record, against tests/golden/<record>/<probe>.json; P2PD_GOLDEN_UPDATE=1 writes them.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "../unit/catch.hpp"
#include "base/record/recorded.hpp"
#include "probes/registry.hpp"

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

const fs::path kTests = fs::path(P2PD_SOURCE_DIR) / "tests";

std::vector<fs::path> records() {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(kTests / "machines")) {
    if (fs::exists(entry.path() / "machine.json")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What tests/golden/parameters.json gives a probe that needs parameters; else none.
Parameters parameters_of(std::string_view probe) {
  const auto all = nlohmann::json::parse(text_of(kTests / "golden/parameters.json"));
  return all.value(std::string(probe), nlohmann::json::object());
}

std::string look(const Probe& probe, const fs::path& record) {
  const Root root = Root::open(record).value();
  RecordedRunner runner(root);
  const Host host(root, runner);
  const auto found = probe.check(host, parameters_of(probe.id));
  return to_json(found ? *found : unknown(found.error())).dump(2) + "\n";
}

}  // namespace

TEST_CASE("golden: every probe on every machine record") {
  const bool update = std::getenv("P2PD_GOLDEN_UPDATE") != nullptr;
  REQUIRE_FALSE(records().empty());
  REQUIRE_FALSE(probes().empty());
  for (const fs::path& record : records()) {
    for (const Probe& probe : probes()) {
      const fs::path golden = kTests / "golden" / record.filename() / (std::string(probe.id) + ".json");
      INFO(golden.string());
      const std::string found = look(probe, record);
      if (update) {
        fs::create_directories(golden.parent_path());
        std::ofstream(golden, std::ios::binary) << found;
      }
      CHECK(fs::exists(golden));
      CHECK(found == text_of(golden));
    }
  }
}

TEST_CASE("golden: no file without its record and probe") {
  for (const fs::directory_entry& directory : fs::directory_iterator(kTests / "golden")) {
    if (!directory.is_directory()) continue;
    INFO(directory.path().string());
    CHECK(fs::exists(kTests / "machines" / directory.path().filename() / "machine.json"));
    for (const fs::directory_entry& file : fs::directory_iterator(directory)) {
      INFO(file.path().string());
      const std::string id = file.path().stem().string();
      const auto all = probes();
      CHECK(std::any_of(all.begin(), all.end(), [&](const Probe& probe) { return probe.id == id; }));
    }
  }
}
