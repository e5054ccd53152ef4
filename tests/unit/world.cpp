// SPDX-License-Identifier: MIT
#include "world.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>

#include "catch.hpp"

namespace p2pd::test {
namespace {

namespace fs = std::filesystem;

std::string name_of(const Parameters& with) { return with.at("name").get<std::string>(); }
std::string fault_of(const Host& host, const std::string& name) {
  return host.files().read("/faults/" + name).value_or("");
}

Result<Finding> now(const Host& host, const Parameters& with) {
  const std::string name = name_of(with);
  if (fault_of(host, name) == "unreadable") return fail(ErrorCode::denied, "cannot read " + name);
  Finding finding;
  finding.verdict =
      host.files().exists("/now/" + name) || host.files().exists("/live/" + name) ? Verdict::pass : Verdict::fail;
  finding.summary = name + (finding.verdict == Verdict::pass ? " is so" : " is not so");
  if (fault_of(host, name) == "danger") finding.danger = name + " burns";
  finding.impossible = fault_of(host, name) == "impossible" && finding.verdict == Verdict::fail;
  return finding;
}

Result<Finding> proof(const Host& host, const Parameters& with) {
  if (fault_of(host, name_of(with)) == "cut") throw PowerCut();
  Finding finding = TRY(now(host, with));
  finding.fit_for = {"copies", "nccl", "custom-all-reduce"};
  const std::string fault = fault_of(host, name_of(with));
  if (fault == "limited" && finding.holds()) {
    finding.verdict = Verdict::limited;
    finding.summary = name_of(with) + " is so in part";
    finding.fit_for.pop_back();
    finding.unfit_for = {"custom-all-reduce"};
  }
  return finding;
}

Result<void> put(Host& host, const Parameters& with) {
  const std::string name = name_of(with);
  const std::string fault = fault_of(host, name);
  if (fault == "error") return fail(ErrorCode::command, "the fix broke", "fix it");
  if (fault == "void") return {};
  if (fault == "disturbed") {
    TRY(host.remove("/live/idle"));
    return fail(ErrorCode::busy, "dpkg is locked");
  }
  const std::string shared = host.files().read("/etc/shared").value_or("");
  if (shared.find(name + "\n") == std::string::npos) TRY(host.write("/etc/shared", shared + name + "\n"));
  if (fault == "cut") throw PowerCut();
  return {};
}

Result<void> live(Host& host, const Parameters& with) {
  TRY(put(host, with));
  const std::string fault = fault_of(host, name_of(with));
  if (fault.starts_with("breaks ")) TRY(host.remove("/live/" + fault.substr(7)));
  if (fault.starts_with("makes ")) TRY(host.write("/live/" + fault.substr(6), "yes"));
  return fault == "void" ? Result<void>() : host.write("/live/" + name_of(with), "yes");
}

Result<void> boot(Host& host, const Parameters& with) {
  TRY(put(host, with));
  const std::string fault = fault_of(host, name_of(with));
  if (fault.starts_with("breaks ")) TRY(host.remove("/live/" + fault.substr(7)));
  return host.write("/want/" + name_of(with), "wanted");
}

Result<void> trial(Host& host, const Parameters& with) {
  TRY(boot(host, with));
  return host.write("/tried/" + name_of(with), "yes");
}

Result<void> arm(Host& host, const Parameters& with) { return host.write("/armed/" + name_of(with), "yes"); }

Result<void> commit(Host& host, const Parameters& with) {
  if (fault_of(host, name_of(with)) == "commit") return fail(ErrorCode::io, "no space");
  if (fault_of(host, name_of(with)) == "busy commit") return fail(ErrorCode::busy, "dpkg is locked");
  if (fault_of(host, name_of(with)) == "cut commit") throw PowerCut();
  return host.write("/default/" + name_of(with), "yes");
}

Result<void> prepare_undo(Host& host, const Parameters& with) {
  const std::string fault = fault_of(host, name_of(with));
  if (fault == "no backup") return fail(ErrorCode::invalid, "its backup is damaged", "fetch it");
  return fault == "busy undo" ? fail(ErrorCode::busy, "dpkg is locked") : Result<void>();
}

Result<void> undo(Host& host, const Parameters& with) {
  return fault_of(host, name_of(with)) == "locked undo" ? fail(ErrorCode::busy, "dpkg is locked") : Result<void>();
}

/// If /faults/rests is "count", adds a line to /rests; "error" and "cut" are its faults.
Result<void> rests(Host& host) {
  const std::string fault = fault_of(host, "rests");
  if (fault == "cut") throw PowerCut();
  if (fault == "error") return fail(ErrorCode::command, "not started again: x.service");
  return fault == "count" ? host.write("/rests", host.files().read("/rests").value_or("") + "once\n") : Result<void>();
}

Result<Description> describe(const Host&, const Parameters& with) {
  return Description{"makes " + name_of(with) + " so", {}, {}, ""};
}

constexpr Parameter kName[] = {{"name", Parameter::Type::string, true, "of the thing"}};
constexpr Parameter kProof[] = {{"name", Parameter::Type::string, true, "of the thing"},
                                {"mode", Parameter::Type::string, false, "quick or not"}};
constexpr Probe kProbes[] = {
    {"now", "it is so", kName, nullptr, now},
    {.id = "idle", .asserts = "nobody uses it", .parameters = kName, .check = now, .transient = true},
    {.id = "danger", .asserts = "nothing is dangerous", .parameters = kName, .check = now, .tells_danger = true},
    {.id = "proof",
     .asserts = "it is proven",
     .parameters = kProof,
     .check = proof,
     .proves_p2p = true,
     .quick = R"({"mode": "quick"})"},
};
constexpr Action kActions[] = {
    {.id = "live",
     .does = "at once",
     .parameters = kName,
     .describe = describe,
     .apply = live,
     .prepare_undo = prepare_undo,
     .undo = undo},
    {.id = "each-boot",
     .does = "for this boot",
     .parameters = kName,
     .each_boot = true,
     .describe = describe,
     .apply = live},
    {.id = "each-kernel",
     .does = "for each kernel",
     .parameters = kName,
     .describe = describe,
     .apply = live,
     .new_kernel = live},
    {.id = "risky",
     .does = "at once, and may crash",
     .parameters = kName,
     .hazard = true,
     .describe = describe,
     .apply = live},
    {.id = "boot",
     .does = "at the next boot",
     .parameters = kName,
     .effect = Effect::reboot,
     .describe = describe,
     .apply = boot},
    {.id = "reboot",
     .does = "what a reboot does, too",
     .parameters = kName,
     .effect = Effect::reboot,
     .reboot_suffices = true,
     .describe = describe,
     .apply = boot,
     .run_rests = rests},
    {.id = "trial",
     .does = "on trial",
     .parameters = kName,
     .effect = Effect::reboot,
     .hazard = true,
     .describe = describe,
     .apply = trial,
     .before_reboot = arm,
     .commit = commit},
};

/// Runs run-parts on a directory of the world, and nothing else.
class Hooks : public CommandRunner {
 public:
  explicit Hooks(fs::path root) : root_(std::move(root)) {}
  Result<CommandResult> run(const Command& command) override {
    if (command.argv.front() != "run-parts") return fail(ErrorCode::not_found, command.text());
    Command parts = command;
    parts.argv.back() = root_.string() + parts.argv.back();
    parts.environment["WORLD"] = root_;
    return ProcessRunner().run(parts);
  }
  int stop_fd() const override { return -1; }

 private:
  fs::path root_;
};

}  // namespace

World::World() { write("etc/shared", "user\n"); }

Registry World::registry() { return {kProbes, kActions}; }

void World::write(const std::string& path, const std::string& text) const { root_.put(path, text); }

void World::hook(const std::string& path, const std::string& script) const {
  write("sys/bus/pci/devices/.none", "");  // no image, and no device
  write("etc/p2pd/hooks/" + path, "#!/bin/sh\n" + script + "\n");
  fs::permissions(root_.path() / "etc/p2pd/hooks" / path, fs::perms(0755));
}

std::string World::read(const std::string& path) const {
  std::ifstream file(root_.path() / path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string World::tree() const {
  std::set<std::string> lines;
  for (const auto& entry : fs::recursive_directory_iterator(root_.path())) {
    const std::string path = fs::relative(entry.path(), root_.path());
    if (path.starts_with("now") || path.starts_with("faults") || path == "boot-id") continue;
    std::ostringstream content;
    if (entry.is_regular_file()) content << std::ifstream(entry.path()).rdbuf();
    lines.insert(path + ": " + content.str());
  }
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

Result<Run> World::start(const std::function<Result<Run>(Walk&)>& work) {
  Hooks commands(root_.path());
  const Root root = TRY(Root::open(root_.path()));
  UndoStore undo = TRY(UndoStore::open(TRY(Root::open(state_.path())), root));
  Journal journal = TRY(Journal::open(state_.path(), Journal::Access::write));
  Host host(root, commands, &undo);
  FakeClock clock(on_wait);
  FakeRebooter rebooter(reboots, calls_off, in_the_way);
  const Poll poll = [&] { return quiet_polls-- > 0 ? std::nullopt : std::exchange(asked, std::nullopt); };
  FakeObserver observer(waited_for);
  const Registry words = registry();
  Walk walk({host, words, journal, undo, clock, rebooter, observer, poll}, "boot-" + std::to_string(boot_));
  Result<Run> run = work(walk);
  applied_anything = undo.changed();
  return run;
}

Result<Run> World::apply(const std::string& yaml) {
  const Plan plan = TRY(parse_plan(yaml, "test.yaml", registry()));
  return start([&](Walk& walk) { return walk.apply(plan); });
}

void World::boot() {
  ++boot_;
  std::vector<std::string> names;
  if (has("want")) {
    for (const auto& entry : fs::directory_iterator(root_.path() / "want")) names.push_back(entry.path().filename());
  }
  const bool hangs = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    std::ifstream file(root_.path() / "faults" / name);
    std::string kind;
    file >> kind;
    return kind == "hang";
  });
  fs::remove_all(root_.path() / "now");
  for (const std::string& name : names) {
    const bool chosen = !has("tried/" + name) || has("armed/" + name);
    if ((chosen && !hangs) || has("default/" + name)) write("now/" + name, "yes");
    if (has("armed/" + name)) remove("armed/" + name);
  }
}

Result<Run> World::settle(Result<Run> run) {
  for (int boots = 0; run && boots < 10; ++boots) {
    const bool waits = run->state == RunState::rebooting || run->state == RunState::reverting;
    if (!waits) break;
    boot();
    run = go_on();
  }
  return run;
}

void World::lose_journal() const {
  for (const char* name : {"state.db", "state.db-wal", "state.db-shm"}) fs::remove(state_.path() / name);
}

void World::damage(const std::string& path, const std::function<std::string(std::string)>& change) const {
  std::ifstream file(state_.path() / path);
  state_.put(path, change({std::istreambuf_iterator<char>(file), {}}));
}

void World::sql(const std::string& statement) const {
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open((state_.path() / "state.db").c_str(), &db) == SQLITE_OK);
  CHECK(sqlite3_exec(db, statement.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(db);
}

int World::undo_entries() const {
  const auto records = fs::directory_iterator(state_.path() / "undo");
  return static_cast<int>(
      std::count_if(begin(records), end(records), [](const auto& file) { return file.path().extension() == ".json"; }));
}

std::vector<JournalEvent> World::events() const {
  const auto journal = Journal::open(state_.path(), Journal::Access::read);
  return journal
             ? journal->events(0, std::numeric_limits<std::int64_t>::max(), 1000).value_or(std::vector<JournalEvent>())
             : std::vector<JournalEvent>();
}

int World::count(std::string_view type) const {
  const auto all = events();
  return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const JournalEvent& e) { return e.type == type; }));
}

std::string plan_of(const std::vector<std::string>& steps, const std::string& policy) {
  std::string yaml = "name: test\ntitle: a test\npolicy: " + policy + "\nsteps:\n";
  for (const std::string& step : steps) {
    const auto space = step.find(' ');
    const std::string head = step.substr(0, space);
    const auto colon = head.find(':');
    const std::string name = head.substr(0, colon);
    const std::string fix = colon == std::string::npos ? "" : head.substr(colon + 1);
    yaml += fmt::format("  - {{{}: {}, title: t, check: {}", fix == "proof" ? "goal" : "gate", name,
                        fix == "proof" ? "proof" : "now");
    if (!fix.empty() && fix != "proof") yaml += ", fix: " + fix;
    yaml += ", with: {name: " + name + "}";
    if (space != std::string::npos) yaml += ", after: [" + step.substr(space + 7) + "]";
    yaml += "}\n";
  }
  return yaml;
}

}  // namespace p2pd::test
