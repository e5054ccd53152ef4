// SPDX-License-Identifier: MIT
// States that released versions left (states/make): every request works on each, and revert ends as delivered.
#include <fmt/format.h>
#include <sqlite3.h>

#include "actions/registry.hpp"
#include "engine/open_state.hpp"
#include "machines.hpp"
#include "probes/registry.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFolder = P2PD_SOURCE_DIR "/tests/unit/states";
constexpr const char* kBootId = "proc/sys/kernel/random/boot_id";
constexpr const char* kCommandLine = "proc/cmdline";

json states_of(const fs::path& version) { return json::parse(std::ifstream(version)); }

/// Names of the states, "0.1.0.json open".
std::vector<std::string> states() {
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(kFolder)) {
    if (file.path().extension() != ".json") continue;
    const json all = states_of(file.path());
    for (const auto& [name, state] : all.items()) names.push_back(file.path().filename().string() + " " + name);
  }
  std::ranges::sort(names);
  return names;
}

class NoReboot : public Rebooter {
 public:
  Result<Outcome> reboot(RebootPolicy, std::string_view, bool) override { return Outcome::under_way; }
};

/// A copy of a machine record, as a released version left it.
class Upgraded {
 public:
  explicit Upgraded(const std::string& state)
      : left_(states_of(fs::path(kFolder) / state.substr(0, state.find(' '))).at(state.substr(state.find(' ') + 1))),
        record_(left_["machine"].get<std::string>()) {
    delivered_ = tree();
    for (const auto& [path, file] : left_["tree"].items()) {
      record_.file(path, file["content"].get<std::string>());
      fs::permissions(record_.path(path), fs::perms(file["mode"].get<unsigned>()));
    }
    record_.file(kCommandLine, left_["command_line"].get<std::string>());
    record_.file(kBootId, left_["boot_id"].get<std::string>());
    for (const auto& [path, content] : left_["state"].items()) state_.put(path, content.get<std::string>());
    sqlite3* db = nullptr;
    REQUIRE(sqlite3_open((state_ / "state.db").c_str(), &db) == SQLITE_OK);
    for (const json& line : left_["sql"]) {
      INFO(line);
      REQUIRE(sqlite3_exec(db, line.get_ref<const std::string&>().c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
    }
    sqlite3_close(db);
  }

  Result<Run> ask(const std::function<Result<Run>(Walk&)>& request) {
    RecordedRunner runner(record_.root());
    Observer observer;
    NoReboot rebooter;
    const auto opened = TRY(OpenState::open({.root = record_.path(""), .state = state_.path(), .holder = "test"},
                                            kRegistry, {runner, observer, [] { return std::nullopt; }, rebooter}));
    return request(opened->walk());
  }

  /// Boots with the arguments that the drop-in carries.
  void boot() {
    record_.file(kBootId, fmt::format("{:08}-0000-0000-0000-000000000000\n", ++boots_));
    std::string line = "root=/dev/vda ro";
    std::ifstream drop_in(record_.path("etc/default/grub.d/zz-p2pd.cfg"));
    constexpr std::string_view kNote = "# arguments:";
    for (std::string text; std::getline(drop_in, text);)
      if (text.starts_with(kNote)) line += text.substr(kNote.size());
    record_.file(kCommandLine, line + "\n");
  }
  /// Boots and continues as long as the run waits for a reboot.
  Result<Run> settle(Result<Run> run) {
    for (int boots = 0; run && boots < 5; ++boots) {
      if (run->state != RunState::rebooting && run->state != RunState::reverting) break;
      boot();
      run = ask([](Walk& walk) { return walk.go_on(); });
    }
    return run;
  }

  Plan plan() const { return parse_plan(left_["plan"].get<std::string>(), "test.yaml", kRegistry).value(); }

  /// Mode and content of every file, except for those of a boot.
  std::string tree() const {
    std::string all;
    std::vector<fs::path> paths;
    for (const auto& entry : fs::recursive_directory_iterator(record_.path(""))) paths.push_back(entry.path());
    std::ranges::sort(paths);
    for (const fs::path& path : paths) {
      const std::string name = fs::relative(path, record_.path(""));
      if (name == kBootId || name == kCommandLine) continue;
      std::string content;
      if (fs::is_symlink(path))
        content = fs::read_symlink(path);
      else if (fs::is_regular_file(path))
        content = std::string(std::istreambuf_iterator<char>(std::ifstream(path).rdbuf()), {});
      all += fmt::format("{} {:o} {}\n", name, static_cast<unsigned>(fs::symlink_status(path).permissions()), content);
    }
    return all;
  }

  bool is_delivered() const { return tree() == delivered_; }
  /// Checks that revert undoes all changes.
  void reverts() {
    const Result<Run> run = settle(ask([](Walk& walk) { return walk.revert(); }));
    INFO("revert: " << (run ? run->reason : run.error().text()));
    REQUIRE(run);
    CHECK_FALSE(is_open(run->state));
    CHECK(is_delivered());
    CHECK((!fs::exists(state_ / "undo") || fs::is_empty(state_ / "undo")));
  }

 private:
  inline static const Registry kRegistry{probes(), actions()};
  json left_;
  ChangedRecord record_;
  TemporaryDirectory state_;
  std::string delivered_;
  int boots_ = 0;
};

/// A request, and what the run is after it, by the end of the state's name: "state result", or that a run in this state
/// has no such request.
struct Row {
  const char* request;
  std::function<Result<Run>(Walk&, const Plan&)> ask;
  const char *open, *finished, *blocked, *reverting;
  std::string_view wanted(std::string_view state) const {
    return state.ends_with(" open")       ? open
           : state.ends_with(" finished") ? finished
           : state.ends_with(" blocked")  ? blocked
                                          : reverting;
  }
};

const std::vector<Row>& rows() {
  static const auto request = [](Event event) {
    return [event](Walk& walk, const Plan&) { return walk.request(event); };
  };
  static const std::vector<Row> kRows = {
      {"apply", [](Walk& walk, const Plan& plan) { return walk.apply(plan); }, "idle done", "idle done", "blocked ",
       "refused"},
      {"go_on", [](Walk& walk, const Plan&) { return walk.go_on(); }, "idle done", "idle done", "blocked ",
       "idle reverted"},
      {"revert", [](Walk& walk, const Plan&) { return walk.revert(); }, "idle reverted", "idle reverted",
       "idle reverted", "idle reverted"},
      {"cancel", request(Event::cancel), "idle cancelled", "refused", "idle cancelled", "refused"},
      {"cancel_accepted", [](Walk& walk, const Plan&) { return walk.cancel_accepted(); }, "idle cancelled",
       "idle cancelled", "idle cancelled", "reverting "},
      {"retry", request(Event::retry), "refused", "refused", "blocked ", "refused"},
      {"pause", request(Event::pause), "paused ", "refused", "paused ", "refused"},
      {"prove", [](Walk& walk, const Plan&) { return walk.prove_again(); }, "rebooting ", "idle done", "blocked ",
       "reverting "},
      {"reassert", [](Walk& walk, const Plan&) { return walk.reassert(); }, "rebooting ", "idle done", "blocked ",
       "reverting "},
      {"new kernel", [](Walk& walk, const Plan&) { return walk.add_kernel(); }, "refused", "idle done", "refused",
       "refused"},
  };
  return kRows;
}

}  // namespace

TEST_CASE("old states: every request works on what a released version left, and revert ends as delivered") {
  for (const std::string& state : states())
    for (const Row& row : rows()) {
      Upgraded machine(state);
      machine.boot();
      const Plan plan = machine.plan();
      Result<Run> run = machine.ask([&](Walk& walk) { return row.ask(walk, plan); });
      if (run && std::string_view(row.wanted(state)).starts_with("idle")) run = machine.settle(std::move(run));
      const bool refused = !run && (run.error().code == ErrorCode::state || run.error().code == ErrorCode::busy);
      const std::string found = run       ? fmt::format("{} {}", to_string(run->state), run->result)
                                : refused ? "refused"
                                          : "error: " + run.error().text();
      INFO(state << ": " << row.request << ": " << found << ": " << (run ? run->reason : run.error().text()));
      CHECK(found.starts_with(row.wanted(state)));
      machine.reverts();
    }
}

TEST_CASE("old states: a run that the upgrade continues is the same run") {
  for (const std::string& state : states()) {
    if (!state.ends_with(" open")) continue;
    Upgraded machine(state);
    machine.boot();
    const Plan plan = machine.plan();
    const Result<Run> run = machine.ask([&](Walk& walk) { return walk.apply(plan); });
    INFO(state << ": " << (run ? run->reason : run.error().text()));
    REQUIRE(run);
    CHECK(run->id == 1);
    machine.reverts();
  }
}
