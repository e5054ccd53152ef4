// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "catch.hpp"
#include "engine/journal.hpp"
#include "temporary.hpp"

using namespace p2pd;
using p2pd::test::TemporaryDirectory;

namespace {

Run begin(Journal& journal) {
  Run run;
  run.plan = "p";
  run.state = RunState::walking;
  return journal.begin_run(run, {}, {"t", "b", 0, "", "begun", ""}).value();
}

/// Runs SQL on state.db in `directory`.
void execute(const std::filesystem::path& directory, const std::string& sql) {
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open((directory / "state.db").c_str(), &db) == SQLITE_OK);
  const int code = sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
  INFO(sqlite3_errmsg(db));
  CHECK(code == SQLITE_OK);
  sqlite3_close(db);
}

/// Makes the state database of schema 1 that an earlier version wrote.
void make_schema_1(const std::filesystem::path& directory) {
  std::ifstream file(P2PD_SOURCE_DIR "/tests/cli/state-1.sql");
  std::ostringstream sql;
  sql << file.rdbuf();
  execute(directory, sql.str());
}

/// Checks the run of state-1.sql.
void check_schema_1(const Journal& journal) {
  const Run run = journal.last_run().value().value();
  CHECK(run.state == RunState::rebooting);
  CHECK(run.rollback == Rollback::own);
  CHECK(run.reboots == 1);
  CHECK(run.started == "2026-11-27T01:49:24Z");
  const auto steps = journal.steps(run.id).value();
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].status == StepStatus::pending_reboot);
  CHECK(steps[1].status == StepStatus::fixed);
  CHECK((steps[0].applied && steps[1].applied));
  CHECK(steps[1].finding["verdict"] == "pass");
  REQUIRE(journal.open_intents(run.id)->size() == 1);
  CHECK(journal.open_intents(run.id)->front().kind == Intent::Kind::hazard);
  CHECK(journal.runs_in_place()->size() == 1);
  CHECK(journal.events(0, run.id, 100)->size() == 8);
}

/// Runs `body` in a child with a private mount table, which exits with 0, or with 77 if `needs` is missing.
void in_child(const char* needs, const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(77);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77)
    WARN("SKIP: needs root to " << needs);
  else
    CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace

TEST_CASE("what is saved is there for the next process") {
  TemporaryDirectory state;
  std::int64_t intent = 0;
  StepRecord step;
  step.step = "s";
  step.status = StepStatus::pending_reboot;
  step.attempts = 2;
  step.applied = true;
  step.applied_boot = "b";
  step.finding = {{"x", 1}};
  {
    auto journal = Journal::open(state.path(), Journal::Access::write);
    REQUIRE(journal);
    Run run = begin(*journal);
    CHECK(run.id == 1);
    run.reboots = 2;
    run.reboot_from = "b";
    REQUIRE(journal->save(run, {step}, {}, {"t", "b", run.id, "s", "kept", "text"}));
    REQUIRE(journal->add_boot(run, "b", {"t", "b", run.id, "", "boot", ""}));
    intent =
        journal->open_intent(run, {0, Intent::Kind::hazard, "s", "b"}, {"t", "b", run.id, "s", "trial", ""}).value();
  }
  auto journal = Journal::open(state.path(), Journal::Access::write);
  const Run run = journal->last_run().value().value();
  CHECK(run.reboots == 2);
  CHECK(run.reboot_from == "b");
  CHECK(run.state == RunState::walking);
  CHECK(journal->steps(run.id).value() == std::vector<StepRecord>{step});
  CHECK(journal->knows_boot(run.id, "b").value());
  CHECK_FALSE(journal->knows_boot(run.id, "c").value());
  REQUIRE(journal->open_intents(run.id)->size() == 1);
  REQUIRE(journal->close_intent(intent, run, step, {"t", "b", run.id, "s", "held", ""}));
  CHECK(journal->open_intents(run.id)->empty());
  CHECK(journal->events(0, run.id, 100)->size() == 5);
  CHECK(journal->events(0, run.id, 2)->back().type == "held");
}

TEST_CASE("no password of a URL is kept") {
  TemporaryDirectory state;
  {
    Journal journal = Journal::open(state.path(), Journal::Access::write).value();
    Run run = begin(journal);
    run.resolved = R"({"mirrors": ["https://me:s3ntinel@host/x"]})";
    run.reason = "Unsupported proxy scheme for 'http://me:s3ntinel@proxy:1'";
    StepRecord step;
    step.step = "s";
    step.finding = {{"summary", run.reason}};
    REQUIRE(journal.save(run, {step}, {}, {"t", "b", run.id, "s", "fix-failed", run.reason}));
    CHECK(journal.last_run().value()->reason == "Unsupported proxy scheme for 'http://proxy:1'");
  }
  for (const auto& entry : std::filesystem::directory_iterator(state.path())) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    CHECK(bytes.find("s3ntinel") == std::string::npos);
  }
}

TEST_CASE("a corrupt or newer database is set aside, and stays so until told") {
  TemporaryDirectory state;
  const bool newer = GENERATE(false, true);
  REQUIRE(Journal::open(state.path(), Journal::Access::write));
  if (newer) {
    // user_version is the big-endian word at offset 60 of the database header
    std::fstream file(state.path() / "state.db", std::ios::in | std::ios::out | std::ios::binary);
    REQUIRE(::system(("rm -f " + (state.path() / "state.db-wal").string()).c_str()) == 0);
    file.seekp(60);
    file.write("\0\0\0\x63", 4);
  } else {
    std::ofstream(state.path() / "state.db", std::ios::trunc) << std::string(8192, 'x');
    std::filesystem::remove(state.path() / "state.db-wal");
  }
  for (int start = 0; start < 2; ++start) {
    const auto journal = Journal::open(state.path(), Journal::Access::write);
    REQUIRE_FALSE(journal);
    CHECK(journal.error().code == ErrorCode::database_quarantined);
    CHECK(journal.error().next.find("--accept-state-loss") != std::string::npos);
  }
  CHECK(std::filesystem::exists(state.path() / "state.db.set-aside"));
  REQUIRE(Database::accept_loss(state.path()));
  CHECK(Journal::open(state.path(), Journal::Access::write));
  CHECK(std::filesystem::exists(state.path() / "state.db.lost-1"));
}

TEST_CASE("a database that is a directory is named") {
  TemporaryDirectory state;
  std::filesystem::create_directory(state.path() / "state.db");
  const auto journal = Journal::open(state.path(), Journal::Access::write);
  REQUIRE_FALSE(journal);
  CHECK(journal.error().message.find("is a directory") != std::string::npos);
}

TEST_CASE("a journal that nobody wrote is not there to read") {
  TemporaryDirectory state;
  const auto journal = Journal::open(state.path(), Journal::Access::read);
  REQUIRE_FALSE(journal);
  CHECK(journal.error().code == ErrorCode::not_found);
}

TEST_CASE("a full disk is an error, and what was saved before stays") {
  TemporaryDirectory state;
  in_child("mount a small file system", [&] {
    if (::mount("tmpfs", state.path().c_str(), "tmpfs", 0, "size=256k") != 0) return 77;
    {
      auto journal = Journal::open(state.path(), Journal::Access::write);
      if (!journal) return 2;
      Run run = begin(*journal);
      run.reason = std::string(20'000, 'x');
      Result<void> saved;
      for (int i = 0; i < 100 && saved; ++i) saved = journal->save(run, {"t", "b", run.id, "", "e", run.reason});
      if (saved || saved.error().next.find("free space") == std::string::npos) return 3;
    }
    const auto reader = Journal::open(state.path(), Journal::Access::read);
    if (!reader || reader->last_run()->value().id != 1) return 4;
    return 0;
  });
}

TEST_CASE("a read-only state directory can be read and not be written") {
  TemporaryDirectory state;
  {
    auto journal = Journal::open(state.path(), Journal::Access::write);
    begin(*journal);
  }
  in_child("mount", [&] {
    const char* path = state.path().c_str();
    if (::mount(path, path, nullptr, MS_BIND, nullptr) != 0) return 77;
    if (::mount(nullptr, path, nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0) return 77;
    auto writer = Journal::open(state.path(), Journal::Access::write);
    if (writer && writer->begin_run(Run{}, {}, {})) return 2;
    const auto reader = Journal::open(state.path(), Journal::Access::read);
    return reader && reader->last_run()->value().id == 1 ? 0 : 3;
  });
}

TEST_CASE("an unprivileged reader reads beside a killed writer") {
  TemporaryDirectory state;
  ::chmod(state.path().c_str(), 0755);
  in_child("become another user", [&] {
    const pid_t writer = ::fork();
    if (writer == 0) {
      auto journal = Journal::open(state.path(), Journal::Access::write);
      begin(*journal);
      ::raise(SIGKILL);
    }
    ::waitpid(writer, nullptr, 0);
    if (::setuid(65534) != 0) return 77;
    const auto reader = Journal::open(state.path(), Journal::Access::read);
    return reader && reader->last_run()->value().id == 1 ? 0 : 3;
  });
}

TEST_CASE("an unprivileged reader reads what another program of root has opened and closed") {
  const char* const sql = GENERATE("SELECT * FROM runs", "PRAGMA journal_mode=DELETE", "PRAGMA journal_mode=PERSIST",
                                   "PRAGMA wal_checkpoint(TRUNCATE)", "UPDATE runs SET plan='q'");
  INFO(sql);
  TemporaryDirectory state;
  ::chmod(state.path().c_str(), 0755);
  {
    auto journal = Journal::open(state.path(), Journal::Access::write);
    begin(*journal);
  }
  execute(state.path(), sql);  // the last to close a database in WAL mode removes the WAL and its index
  in_child("become another user", [&] {
    if (::setuid(65534) != 0) return 77;
    const auto reader = Journal::open(state.path(), Journal::Access::read);
    if (!reader) std::fprintf(stderr, "%s\n", reader.error().text().c_str());
    return reader && reader->last_run()->value().id == 1 ? 0 : 3;
  });
  auto writer = Journal::open(state.path(), Journal::Access::write);
  CHECK(begin(*writer).id == 2);
  in_child("become another user", [&] {
    if (::setuid(65534) != 0) return 77;
    const auto reader = Journal::open(state.path(), Journal::Access::read);  // beside the writer
    return reader && reader->last_run()->value().id == 2 ? 0 : 3;
  });
}

TEST_CASE("a reader does not ignore a WAL or a rollback journal that it cannot use") {
  TemporaryDirectory state;
  ::chmod(state.path().c_str(), 0755);
  auto writer = Journal::open(state.path(), Journal::Access::write);
  begin(*writer);
  const std::string name = GENERATE(as<std::string>(), "state.db-wal", "state.db-journal");
  if (name == "state.db-journal") {
    writer = Failure(Error{});
    execute(state.path(), "SELECT * FROM runs");
    std::ofstream(state.path() / name) << "not empty";
  }
  ::chmod((state.path() / name).c_str(), 0600);
  std::filesystem::remove(state.path() / "state.db-shm");
  in_child("become another user", [&] {
    if (::setuid(65534) != 0) return 77;
    const auto reader = Journal::open(state.path(), Journal::Access::read);
    if (reader) return 3;
    std::fprintf(stderr, "%s\n", reader.error().text().c_str());
    const bool told = reader.error().message.find(name) != std::string::npos &&
                      reader.error().next.find("systemd-tmpfiles --create p2pd.conf") != std::string::npos;
    return reader.error().code == ErrorCode::denied && told ? 0 : 4;
  });
}

TEST_CASE("journal: schema 1 is read as it is, and rewritten by the first writer") {
  TemporaryDirectory state;
  make_schema_1(state.path());
  check_schema_1(Journal::open(state.path(), Journal::Access::read).value());
  check_schema_1(Journal::open(state.path(), Journal::Access::write).value());
  check_schema_1(Journal::open(state.path(), Journal::Access::read).value());
  auto journal = Journal::open(state.path(), Journal::Access::write).value();
  Run run = journal.last_run().value().value();
  run.rollback = Rollback::failed;
  REQUIRE(journal.save(run, {"t", "b", run.id, "", "e", ""}));
  CHECK(journal.last_run()->value().rollback == Rollback::failed);
}

TEST_CASE("journal: each number of schema 1 becomes the name it had") {
  TemporaryDirectory state;
  make_schema_1(state.path());
  execute(state.path(), "DELETE FROM steps; DELETE FROM intents; DELETE FROM runs");
  for (int i = 0; i < 3; ++i)
    execute(state.path(), fmt::format("INSERT INTO runs VALUES({},'p','','failed',{},0,'',0,'','','','')", i + 1, i));
  for (int i = 0; i < 7; ++i)
    execute(state.path(), fmt::format("INSERT INTO steps VALUES(1,'{0}',{0},0,0,0,0,'','{{}}')", i));
  for (int i = 0; i < 5; ++i)
    execute(state.path(), fmt::format("INSERT INTO intents(run,kind,step,boot_id) VALUES(1,{},'','')", i));
  const auto access = GENERATE(Journal::Access::read, Journal::Access::write);
  const auto journal = Journal::open(state.path(), access).value();
  const auto runs = journal.runs(10).value();
  const auto steps = journal.steps(1).value();
  const auto intents = journal.open_intents(1).value();
  CHECK((runs.size() == 3 && steps.size() == 7 && intents.size() == 5));
  for (const Run& run : runs) CHECK(static_cast<std::int64_t>(run.rollback) == run.id - 1);
  for (const StepRecord& step : steps) CHECK(std::to_string(static_cast<int>(step.status)) == step.step);
  for (const Intent& intent : intents) CHECK(static_cast<std::int64_t>(intent.kind) == intent.id - 1);
}

TEST_CASE("journal: a rewrite that fails changes nothing") {
  TemporaryDirectory state;
  make_schema_1(state.path());
  execute(state.path(), "CREATE TABLE intents_1(x)");  // fails the last of the renames
  CHECK_FALSE(Journal::open(state.path(), Journal::Access::write));
  check_schema_1(Journal::open(state.path(), Journal::Access::read).value());
  execute(state.path(), "DROP TABLE intents_1");
  check_schema_1(Journal::open(state.path(), Journal::Access::write).value());
}

TEST_CASE("journal: a database that an older p2pd set aside is taken back, unless it is damaged") {
  TemporaryDirectory state;
  Run run;
  run.plan = "test";
  REQUIRE(Journal::open(state.path(), Journal::Access::write)->begin_run(run, {}, {}));
  const auto file = state.path() / "state.db", aside = state.path() / "state.db.set-aside";
  for (const char* suffix : {"", "-wal"}) std::filesystem::rename(file.string() + suffix, aside.string() + suffix);
  const bool damaged = GENERATE(false, true);
  if (damaged) state.put("state.db.set-aside-wal", "");  // it has all pages
  if (damaged) state.put("state.db.set-aside", "no database");
  const auto journal = Journal::open(state.path(), Journal::Access::write);
  REQUIRE(journal.has_value() != damaged);
  if (!damaged) CHECK(journal->last_run().value()->plan == "test");
  if (damaged) CHECK(journal.error().code == ErrorCode::database_quarantined);
}

TEST_CASE("journal: a name or number that is none of its column is an error of readers, and sets the database aside") {
  TemporaryDirectory state;
  const bool older = GENERATE(false, true);
  make_schema_1(state.path());
  if (!older) REQUIRE(Journal::open(state.path(), Journal::Access::write));
  execute(state.path(),
          older ? "UPDATE steps SET status=7; UPDATE intents SET kind=-1; UPDATE runs SET failing=3"
                : "UPDATE steps SET status='broken'; UPDATE intents SET kind=''; UPDATE runs SET rollback='0'");
  const auto journal = Journal::open(state.path(), Journal::Access::read).value();
  CHECK(journal.last_run().error().code == ErrorCode::invalid);
  CHECK(journal.open_intents(1).error().code == ErrorCode::invalid);
  const auto steps = journal.steps(1);
  REQUIRE_FALSE(steps);
  CHECK(steps.error().message ==
        fmt::format("state database: \"{}\" is not a value of its column", older ? "7" : "broken"));
  execute(state.path(), older ? "UPDATE runs SET failing=0, state='x'" : "UPDATE runs SET rollback='own', state=''");
  CHECK(journal.last_run().error().code == ErrorCode::invalid);
  const auto written = Journal::open(state.path(), Journal::Access::write);
  REQUIRE_FALSE(written);
  CHECK(written.error().code == ErrorCode::database_quarantined);
  CHECK(written.error().message.find(older ? "\"x\" is not a state of its runs" : "\"\" is not a state") !=
        std::string::npos);
}
