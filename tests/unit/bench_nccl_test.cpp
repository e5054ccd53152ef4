// SPDX-License-Identifier: MIT
#include "probes/bench/collectives/nccl.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "catch.hpp"
#include "fake_runner.hpp"
#include "machines.hpp"
#include "temporary.hpp"

using namespace p2pd;
using namespace p2pd::bench;
namespace fs = std::filesystem;
using test::holds;
using Notes = std::vector<std::string>;

namespace {

constexpr char kNone[] = "no libnccl found; nccl: PATH in p2pd.yaml names one";

/// A system that has libraries below a directory of the test.
struct System {
  System() { ::unsetenv("LD_LIBRARY_PATH"); }
  ~System() { ::unsetenv("LD_LIBRARY_PATH"); }
  std::string put(const std::string& path) const {
    const fs::path file = directory / path / "libnccl.so.2";
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "no library";
    return fs::canonical(file).string();
  }
  std::string wheel(const std::string& environment) const { return put(environment + "/nvidia/nccl/lib"); }
  nccl::Library find(const std::string& configured = "", bool as_root = false) {
    return nccl::find_library(runner, configured, directory.path().string(), as_root);
  }

  test::TemporaryDirectory directory;
  test::FakeRunner runner;
};

}  // namespace

TEST_CASE("nccl library: none is found") {
  System system;
  system.runner.on("ldconfig -p", "1 libs found in cache\n\tlibc.so.6 (libc6,x86-64) => /lib/libc.so.6\n");
  system.wheel("home/user/venv/lib/python3.12/site-packages");  // a user's own environment is not searched
  system.wheel("root/venv/lib/python3.12/site-packages");
  const nccl::Library none = system.find();
  CHECK(none.path.empty());
  CHECK(none.why_not == kNone);
  CHECK(none.notes.empty());
}

TEST_CASE("nccl library: the dynamic linker's comes first, then wheels, and others are named") {
  System system;
  const std::string first = system.put("preset"), second = system.put("lib");
  const std::string third = system.wheel("usr/lib/python3/dist-packages");
  const std::string fourth = system.wheel("usr/local/lib/python3.12/site-packages");
  const std::string last = system.wheel("opt/torch/lib/python3.12/site-packages");
  const auto unused = [](const std::string& path) { return "also found, not used: " + path; };
  fs::create_symlink(third, system.directory / "link.so");
  system.runner.on("ldconfig -p",
                   fmt::format("\tlibnccl.so.2 (libc6,x86-64) => {}\n\tlibnccl.so.2 (libc6) => {}\n"
                               "\tlibnccl.so (libc6,x86-64) => /not/this\n\tlibnccl.so.2 (libc6) => /gone\n",
                               second, (system.directory / "link.so").string()));
  CHECK(system.find().path == second);
  CHECK(system.find().notes == Notes{unused(third), unused(fourth), unused(last)});
  ::setenv("LD_LIBRARY_PATH", ("/nonexistent::" + fs::path(first).parent_path().string()).c_str(), 1);
  CHECK(system.find().path == first);
  CHECK(system.find(fourth).path == fourth);  // a configured one alone
  CHECK(system.find(fourth).notes.empty());
}

TEST_CASE("nccl library: a configured one that is none is said, and no other takes its place") {
  System system;
  system.wheel("usr/lib/python3/dist-packages");
  const std::string missing = (system.directory / "none.so").string();
  CHECK(system.find(missing).path.empty());
  CHECK(system.find(missing).why_not == "not loaded: " + missing + ": No such file or directory");
  const std::string folder = system.directory.path().string();
  CHECK(system.find(folder).why_not == "not loaded: " + folder + ": not a file");
}

TEST_CASE("nccl library: root loads none that somebody else can replace") {
  System system;
  system.runner.on("ldconfig -p", "");
  const std::string file = system.wheel("usr/lib/python3/dist-packages");
  if (::geteuid() != 0) {
    CHECK(holds(system.find("", true).why_not, fmt::format("is owned by user {}, not by root", ::geteuid())));
    CHECK(system.find("", false).path == file);
    return;
  }
  CHECK(system.find("", true).path == file);
  SECTION("its owner") {
    REQUIRE(::chown(file.c_str(), 1000, 1000) == 0);
    CHECK(system.find("", true).why_not ==
          fmt::format("not loaded: {0}: {0} is owned by user 1000, not by root", file));
    CHECK(system.find("", false).path == file);
  }
  SECTION("who may write it") {
    REQUIRE(::chmod(file.c_str(), 0664) == 0);
    CHECK(holds(system.find("", true).why_not, file + " is writable by others than root"));
  }
  SECTION("a directory above it; the next one is used") {
    const std::string usr = fs::canonical(system.directory / "usr").string();
    const std::string next = system.wheel("opt/torch/lib/python3.12/site-packages");
    REQUIRE(::chmod(usr.c_str(), 0777) == 0);
    CHECK(system.find("", true).path == next);
    CHECK(system.find("", true).notes ==
          Notes{fmt::format("not loaded: {}: {} is writable by others than root", file, usr)});
    REQUIRE(::chmod(usr.c_str(), 01777) == 0);  // as /tmp
    CHECK(system.find("", true).path == file);
  }
  SECTION("a link of a user to it changes nothing once it is followed") {
    fs::create_directory(system.directory / "user");
    REQUIRE(::chown((system.directory / "user").c_str(), 1000, 1000) == 0);
    fs::create_symlink(file, system.directory / "user/link.so");
    CHECK(system.find((system.directory / "user/link.so").string(), true).path == file);
  }
}

TEST_CASE("nccl library: a file that is no NCCL is said") {
  const System system;
  const std::string file = system.put("lib");
  CHECK(holds(nccl::load(file).error().message, file + ": file too short"));
  CHECK(nccl::load("libc.so.6").error().message == "libc.so.6 has no ncclGetVersion");
}
