// SPDX-License-Identifier: MIT
// Disk and memory faults of the state database: one call fails, and an intact database is never discarded.
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "catch.hpp"
#include "engine/journal.hpp"
#include "temporary.hpp"

using namespace p2pd;
using p2pd::test::TemporaryDirectory;

namespace {

/// The file system of this machine with a disk that fails: read number `fails_at` and, if `stays`, each one after it.
struct FailingDisk {
  int reads = 0;
  int fails_at = -1;
  bool stays = false;

  FailingDisk() {
    real = sqlite3_vfs_find(nullptr);
    current = this;
    vfs = *real;
    vfs.zName = "failing";
    vfs.xOpen = open;
    sqlite3_vfs_register(&vfs, 1);
  }
  ~FailingDisk() { sqlite3_vfs_unregister(&vfs); }
  FailingDisk(const FailingDisk&) = delete;
  FailingDisk& operator=(const FailingDisk&) = delete;

  static int open(sqlite3_vfs*, sqlite3_filename name, sqlite3_file* file, int flags, int* out) {
    const int code = real->xOpen(real, name, file, flags, out);
    if (code != SQLITE_OK || file->pMethods == nullptr) return code;
    read = file->pMethods->xRead;
    methods[file->pMethods] = *file->pMethods;  // a copy for each kind of file
    sqlite3_io_methods& changed = methods[file->pMethods];
    changed.xRead = failing_read;
    file->pMethods = &changed;
    return code;
  }
  static int failing_read(sqlite3_file* file, void* to, int amount, sqlite3_int64 at) {
    const int number = current->reads++;
    const bool fails =
        current->fails_at >= 0 && (current->stays ? number >= current->fails_at : number == current->fails_at);
    return fails ? SQLITE_IOERR_READ : read(file, to, amount, at);
  }

  static inline sqlite3_vfs* real;
  static inline FailingDisk* current;
  static inline int (*read)(sqlite3_file*, void*, int, sqlite3_int64);
  static inline std::map<const sqlite3_io_methods*, sqlite3_io_methods> methods;
  sqlite3_vfs vfs;
};

/// A database of a few dozen pages, all of them in the file itself.
void make_journal(const std::filesystem::path& directory) {
  auto journal = Journal::open(directory, Journal::Access::write).value();
  Run run;
  run.plan = "p";
  run.state = RunState::walking;
  for (int i = 0; i < 20; ++i) {
    run.resolved = std::string(9000, 'x');
    REQUIRE(journal.begin_run(run, {}, {"t", "b", 0, "", "begun", std::string(3000, 'y')}));
  }
}

bool is_set_aside(const TemporaryDirectory& state) {
  return std::filesystem::exists(state.path() / "state.db.set-aside");
}

}  // namespace

TEST_CASE("journal: a read that fails is an error of that call, and the database stays where it is") {
  TemporaryDirectory state;
  make_journal(state.path());
  const auto access = GENERATE(Journal::Access::write, Journal::Access::read);
  const bool stays = GENERATE(false, true);
  int failed = 0, at = 0;
  for (;; ++at) {
    FailingDisk disk;
    disk.fails_at = at;
    disk.stays = stays;
    const auto journal = Journal::open(state.path(), access);
    REQUIRE_FALSE(is_set_aside(state));
    if (disk.reads <= at) break;  // it makes no more reads
    if (journal) continue;
    ++failed;
    CAPTURE(at, journal.error().text());
    CHECK(journal.error().code == ErrorCode::io);
    CHECK(journal.error().message.find("disk I/O error") != std::string::npos);
    CHECK_FALSE(journal.error().next.empty());
  }
  CHECK(failed > 20);
  const auto journal = Journal::open(state.path(), Journal::Access::write);
  REQUIRE(journal);
  CHECK(journal->last_run()->value().id == 20);
}

TEST_CASE("journal: what memory is too small for is an error of that call") {
  TemporaryDirectory state;
  make_journal(state.path());
  const pid_t child = ::fork();  // the limit is for the whole process, and permanent
  if (child == 0) {
    int failed = 0;
    for (sqlite3_int64 limit = 1 << 12; limit < 1 << 20; limit += 1 << 12) {
      sqlite3_hard_heap_limit64(limit);
      const auto journal = Journal::open(state.path(), Journal::Access::write);
      if (is_set_aside(state)) ::_exit(2);
      if (journal) break;
      if (journal.error().code == ErrorCode::database_quarantined || journal.error().next.empty()) ::_exit(3);
      ++failed;
    }
    ::_exit(failed > 2 ? 0 : 4);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("journal: a database that somebody else holds is busy, and says so") {
  TemporaryDirectory state;
  make_journal(state.path());
  sqlite3* other = nullptr;
  REQUIRE(sqlite3_open((state.path() / "state.db").c_str(), &other) == SQLITE_OK);
  REQUIRE(sqlite3_exec(other, "PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE", nullptr, nullptr, nullptr) ==
          SQLITE_OK);
  const auto journal = Journal::open(state.path(), Journal::Access::write);
  REQUIRE_FALSE(journal);
  CHECK(journal.error().code == ErrorCode::busy);
  CHECK_FALSE(journal.error().next.empty());
  CHECK_FALSE(is_set_aside(state));
  sqlite3_close(other);
  CHECK(Journal::open(state.path(), Journal::Access::write));
}

TEST_CASE("journal: a page that is damaged on a disk that reads sets it aside") {
  TemporaryDirectory state;
  make_journal(state.path());
  std::filesystem::remove(state.path() / "state.db-wal");  // it has the same pages
  std::fstream file(state.path() / "state.db", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096);
  file << std::string(4096, '\x55');
  file.close();
  const auto journal = Journal::open(state.path(), Journal::Access::write);
  REQUIRE_FALSE(journal);
  CHECK(journal.error().code == ErrorCode::database_quarantined);
}
