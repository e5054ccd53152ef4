// SPDX-License-Identifier: MIT
#include "machine/driver/cuda_toolkit.hpp"

#include <algorithm>

#include "toolkit_machine.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;
using Machine = test::ToolkitMachine;

TEST_CASE("cuda-toolkit: only plain versions and compilers") {
  const auto valid = [](const Parameters& with) { return static_cast<bool>(validate_cuda_toolkit(with)); };
  CHECK(valid(kWith));
  CHECK(valid({{"version", "chosen"}, {"host_compiler", "chosen"}}));
  CHECK(valid({{"version", "11-0"}, {"host_compiler", "/usr/bin/g++-12"}}));
  for (const char* version : {"", "12", "12.8", "12-", "-8", "12-8-1", "12-8;x", "latest"})
    CHECK_FALSE(valid({{"version", version}}));
  for (const char* compiler : {"", "g++", "/usr/bin/g++ -m32", "/x;y", "/$HOME"})
    CHECK_FALSE(valid({{"version", "12-8"}, {"host_compiler", compiler}}));
}

TEST_CASE("cuda-toolkit: nvcc, the PATH, and the compiler that it calls") {
  Machine machine;
  CHECK(machine.look().summary == "/usr/local/cuda-12.8/bin/nvcc is not installed");
  machine.nvcc();
  CHECK(machine.look().verdict == Verdict::fail);
  REQUIRE(kCudaToolkitAction.apply(machine.host, kWith));  // a toolkit that p2pd did not install: only the PATH
  CHECK(machine.runner.ran.empty());
  CHECK(machine.look().verdict == Verdict::pass);
  Parameters with = {{"version", "12-8"}, {"host_compiler", "/usr/bin/g++-12"}};
  CHECK(machine.look(with).summary == "the compiler that nvcc is to call is not installed: /usr/bin/g++-12");
  CHECK_FALSE(kCudaToolkitAction.apply(machine.host, with));
  machine.put("usr/bin/g++-12", "");
  fs::permissions(machine.directory / "usr/bin/g++-12", fs::perms(0755));
  CHECK(machine.look(with).verdict == Verdict::fail);
  REQUIRE(kCudaToolkitAction.apply(machine.host, with));
  CHECK(machine.look(with).verdict == Verdict::pass);
  CHECK(machine.text("/etc/profile.d/p2pd-cuda.sh").ends_with("\nexport CUDAHOSTCXX=/usr/bin/g++-12\n"));
}

TEST_CASE("cuda-toolkit: the newest that the driver runs, of those that are there, then of those that apt offers") {
  Machine machine;
  const auto chosen = [&](const char* runs) { return toolkit_for(machine.host, runs).value(); };
  machine.runner.on("apt-cache pkgnames cuda-toolkit-", "", 100);
  CHECK(chosen("12.9") == "12-9");  // apt reports that it lacks it
  machine.runner.on("apt-cache pkgnames cuda-toolkit-",
                    "cuda-toolkit-12-8\ncuda-toolkit-13-0\ncuda-toolkit-12-8-config-common\ncuda-toolkit-12-10\n"
                    "cuda-toolkit-config-common\ncuda-toolkit-11-8\n");
  CHECK(chosen("12.9") == "12-8");
  CHECK(chosen("13.2") == "13-0");
  CHECK(chosen("12.10") == "12-10");  // a number, not a decimal
  CHECK(chosen("11.4") == "11-4");
  for (const char* folder : {"cuda-11.8", "cuda-12.6", "cuda-13.1", "cuda-12.7.old", "cuda-x.y"}) {
    machine.put(fmt::format("usr/local/{}/bin/nvcc", folder), "");
    fs::permissions(machine.directory / "usr/local" / folder / "bin/nvcc", fs::perms(0755));
  }
  machine.put("usr/local/cuda-12.8/bin/nvcc", "");  // not a program
  CHECK(chosen("12.9") == "12-6");
  CHECK_FALSE(toolkit_for(machine.host, ""));
}

TEST_CASE("cuda-toolkit: without a version that is known nothing is installed") {
  Machine machine;
  const Parameters with = {{"version", "chosen"}};
  CHECK(machine.look(with).summary == "the CUDA version that the driver supports is not known");
  CHECK(kCudaToolkitAction.describe(machine.host, with).error().next ==
        "Give the toolkit's version in the plan, like 12-8.");
  CHECK_FALSE(kCudaToolkitAction.apply(machine.host, with));
  CHECK(machine.runner.ran.empty());
}

TEST_CASE("cuda-toolkit: the compiler that is chosen is one that the toolkit takes") {
  Machine machine;
  machine.nvcc();
  const Parameters with = {{"version", "12-8"}, {"host_compiler", "chosen"}};
  const auto chosen = [&] { return cuda_host_compiler(machine.host, with); };
  const auto program = [&](const std::string& name) {
    machine.put("usr/bin/" + name, "");
    fs::permissions(machine.directory / "usr/bin" / name, fs::perms(0755));
  };
  CHECK(chosen().value() == "");  // its limit is not known
  machine.put("usr/local/cuda-12.8/include/crt/host_config.h", "#if __GNUC__ > 14\n#error\n");
  CHECK(chosen().error().message == "the toolkit takes g++ up to 14, and none is installed");
  program("x86_64-linux-gnu-g++-15");
  fs::create_symlink("x86_64-linux-gnu-g++-15", machine.directory / "usr/bin/g++");
  CHECK(machine.look(with).summary == "the toolkit takes g++ up to 14, and 15 is installed");
  CHECK(machine.look(with).next == "Install g++-14, or one that is older.");
  program("g++-12");
  program("g++-13");
  CHECK(chosen().value() == "/usr/bin/g++-13");
  REQUIRE(kCudaToolkitAction.apply(machine.host, with));
  CHECK(machine.text("/etc/profile.d/p2pd-cuda.sh").ends_with("\nexport CUDAHOSTCXX=/usr/bin/g++-13\n"));
  CHECK(machine.look(with).verdict == Verdict::pass);
  machine.put("usr/local/cuda-12.8/include/crt/host_config.h", "#if __GNUC__ > 15\n");
  CHECK(chosen().value() == "");  // the default one is accepted
}

TEST_CASE("cuda-toolkit: installed by its list, and exactly that is taken away") {
  Machine machine;
  CHECK(kCudaToolkitAction.describe(machine.host, kWith)->commands.size() == 1);
  REQUIRE(kCudaToolkitAction.apply(machine.host, kWith));
  CHECK(machine.look().verdict == Verdict::pass);
  CHECK(machine.text("/var/lib/p2pd/cuda-toolkit-12-8.d/0/packages") ==
        "remove cuda-config\npurge cuda-nvcc-12-8\npurge cuda-toolkit-12-8\npurge zlib\n");
  const std::size_t ran = machine.runner.ran.size();
  REQUIRE(kCudaToolkitAction.apply(machine.host, kWith));
  CHECK(machine.runner.ran.size() == ran);
  const std::vector<std::string> remove = {
      "--allow-change-held-packages", "--no-install-recommends", "remove",    "cuda-config",
      "cuda-nvcc-12-8:amd64",         "cuda-toolkit-12-8:amd64", "zlib:amd64"};
  const std::vector<std::string> purge = {"--allow-change-held-packages", "--no-install-recommends", "purge",
                                          "cuda-nvcc-12-8:amd64"};
  SECTION("others would go with it") {
    machine.apt(remove, "Remv cuda-config\nRemv cuda-nvcc-12-8\nRemv cuda-toolkit-12-8\nRemv zlib\nRemv blender\n",
                [] {});
    CHECK(kCudaToolkitAction.undo(machine.host, kWith).error().message.find("also remove blender") !=
          std::string::npos);
    CHECK(machine.host.files().exists("/var/lib/p2pd/cuda-toolkit-12-8.d/0/packages"));
  }
  SECTION("it goes, and what another run brought stays") {
    machine.put("var/lib/p2pd/cuda-toolkit-12-8.d/7-cuda/packages", "purge libc6\n");
    machine.apt(remove, "Remv cuda-config\nRemv cuda-nvcc-12-8\nRemv cuda-toolkit-12-8\nRemv zlib\n",
                [&] { machine.status(kBefore + package("cuda-nvcc-12-8", "amd64", "deinstall ok config-files")); });
    machine.apt(purge, "Purg cuda-nvcc-12-8\n", [&] { machine.status(kBefore); });
    REQUIRE(kCudaToolkitAction.undo(machine.host, kWith));
    CHECK(machine.text("/var/lib/dpkg/status") == kBefore);
    CHECK_FALSE(machine.host.files().exists("/var/lib/p2pd/cuda-toolkit-12-8.d/0/packages"));
    REQUIRE(kCudaToolkitAction.undo(machine.host, kWith));  // as after a kill
    const fs::path place = machine.directory / "var/lib/p2pd/cuda-toolkit-12-8.d";
    REQUIRE(fs::remove(place / "0"));
    REQUIRE(kCudaToolkitAction.undo(machine.host, kWith));
    CHECK(fs::exists(place / "7-cuda/packages"));
    REQUIRE(fs::remove(place / "7-cuda/packages"));
    REQUIRE(kCudaToolkitAction.undo(machine.host, kWith));
    CHECK_FALSE(fs::exists(place));
  }
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("cuda-toolkit: apt's lists are fetched where they are stale, or where apt blames them") {
  Machine machine;
  const std::vector<std::string> install = {"--no-install-recommends", "install", "cuda-toolkit-12-8"};
  const std::string update = update_command().text(), fetch = command(install, "--download-only").text();
  const auto tries = [&](const std::string& text) { return std::ranges::count(machine.runner.ran, text); };
  SECTION("recent") {
    REQUIRE(kCudaToolkitAction.apply(machine.host, kWith));
    CHECK(tries(update) == 0);
  }
  SECTION("none, and a source that does not answer") {
    fs::remove(machine.directory / kLists);
    CHECK(kCudaToolkitAction.describe(machine.host, kWith)->commands.front() == update);
    machine.runner.on(update, "", 100, "E: Failed to fetch http://broken/InRelease");
    REQUIRE(kCudaToolkitAction.apply(machine.host, kWith));
    CHECK(tries(update) == 1);
  }
  SECTION("old") {
    const auto then = fs::file_time_type::clock::now() - std::chrono::hours(25);
    fs::last_write_time(machine.directory / "var/lib/apt/lists", then);
    machine.runner.on(update);
    REQUIRE(kCudaToolkitAction.apply(machine.host, kWith));
    CHECK(tries(update) == 1);
  }
  SECTION("a source that hangs does not hold a run for hours") {
    for (const char* bound : {"-oAcquire::http::Timeout=20", "-oAcquire::https::Timeout=20", "-oAcquire::Retries=1"})
      CHECK(std::ranges::count(update_command().argv, bound) == 1);
    CHECK(update_command().deadline == std::chrono::minutes(10));
  }
  SECTION("404: once, then it is told") {
    machine.runner.on(update);
    machine.runner.on(fetch, "", 100,  // what apt prints with --download-only
                      "E: Failed to fetch http://mirror/./cuda_1.deb  404  Not Found [IP: 127.0.0.1 80]\n"
                      "E: Some files failed to download");
    CHECK(kCudaToolkitAction.apply(machine.host, kWith).error().message.find("404  Not Found") != std::string::npos);
    CHECK(tries(update) == 1);
    CHECK(tries(fetch) == 2);
    CHECK(tries(command(install).text()) == 0);
  }
  SECTION("a stop ends the download, and nothing that dpkg does") {
    machine.runner.on(fetch, [](const Command& asked) -> Result<CommandResult> {
      CHECK_FALSE(asked.own_unit);
      return fail(ErrorCode::interrupted, "stopped");
    });
    machine.runner.on(command(install).text(), [&](const Command& asked) {
      CHECK(asked.own_unit);
      machine.install();
      return Result<CommandResult>(CommandResult{});
    });
    CHECK(kCudaToolkitAction.apply(machine.host, kWith).error().code == ErrorCode::interrupted);
    CHECK_FALSE(machine.host.files().exists("/var/lib/p2pd/cuda-toolkit-12-8.d/0/packages"));
    machine.runner.on(fetch);
    CHECK(kCudaToolkitAction.apply(machine.host, kWith));
  }
  SECTION("what a script of a package does wrong is no fault of theirs") {
    machine.runner.on(command(install).text(), "", 100, "dpkg: error processing package zlib");
    CHECK_FALSE(kCudaToolkitAction.apply(machine.host, kWith));
    CHECK(tries(update) == 0);
  }
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("cuda-toolkit: what does not fit is not downloaded") {
  Machine machine;
  machine.runner.on("apt-cache show cuda-config=12.8 cuda-nvcc-12-8=12.8 cuda-toolkit-12-8=12.8 zlib=1",
                    "Package: cuda-nvcc-12-8\nInstalled-Size: 1024\nDescription: Installed-Size: 7\n\n"
                    "Package: cuda-toolkit-12-8\nInstalled-Size: 1099511627776\n");
  const Error error = kCudaToolkitAction.apply(machine.host, kWith).error();
  CHECK(error.message.ends_with(" MiB free, and 1073741825 are needed"));
  CHECK(error.message.starts_with("/usr has "));
  CHECK(std::ranges::none_of(machine.runner.ran, [](const std::string& text) {
    return text.find("--download-only") != std::string::npos || text.find("update") != std::string::npos;
  }));
}

TEST_CASE("cuda-toolkit: an upgrade within the release is made, shown before, and left by undo") {
  Machine machine;
  machine.apt({"--no-install-recommends", "install", "cuda-toolkit-12-8"},
              "Inst dpkg [1.21] (1.22 Debian:12.9/stable, Debian-Security:12/stable-security [amd64])\n"
              "Inst cuda-toolkit-12-8 (12.8 NVIDIA:x [amd64])\n",
              [&] { machine.install(); });
  CHECK(kCudaToolkitAction.describe(machine.host, kWith)->summary.ends_with("; upgrade dpkg from 1.21 to 1.22"));
  REQUIRE(kCudaToolkitAction.apply(machine.host, kWith));
  CHECK(machine.text("/var/lib/p2pd/cuda-toolkit-12-8.d/0/packages") == "purge cuda-toolkit-12-8\nupgraded dpkg\n");
  machine.apt({"--allow-change-held-packages", "--no-install-recommends", "remove", "cuda-toolkit-12-8:amd64"},
              "Remv cuda-toolkit-12-8\n", [&] { machine.status(kBefore); });
  REQUIRE(kCudaToolkitAction.undo(machine.host, kWith));
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("cuda-toolkit: all that is in the way is told at once") {
  Machine machine;
  machine.apt({"--no-install-recommends", "install", "cuda-toolkit-12-8"},
              "Remv blender [1]\nInst cuda-drivers (570 NVIDIA:x [amd64])\n"
              "Inst dpkg [1.21] (1.22 Debian Backports:stable-backports [amd64])\n",
              [] { FAIL("it was installed"); });
  const std::string all =
      "cuda-toolkit-12-8 not installed: apt would also remove blender; install cuda-drivers, which "
      "belongs to a driver; change dpkg from 1.21 to 1.22, which this release does not have";
  CHECK(kCudaToolkitAction.apply(machine.host, kWith).error().message == all);
  CHECK(kCudaToolkitAction.describe(machine.host, kWith).error().message == all);
}

TEST_CASE(
    "cuda-toolkit: a driver, a removal or a foreign upgrade is refused, and an installation that was killed goes on") {
  Machine machine;
  const std::vector<std::string> install = {"--no-install-recommends", "install", "cuda-toolkit-12-8"};
  SECTION("refused") {
    for (const auto& [said, why] :
         {std::pair{"Inst cuda-drivers (570 x)\n", "install cuda-drivers, which belongs to a driver"},
          {"Inst libcuda1:i386 (570 x)\n", "install libcuda1:i386, which belongs to a driver"},
          {"Remv blender [1]\nInst cuda-toolkit-12-8 (12.8 x)\n", "remove blender"},
          {"Inst dpkg [1.21] (1.22 x)\n", "change dpkg from 1.21 to 1.22"}}) {
      machine.apt(install, said, [] { FAIL("it was installed"); });
      const auto done = kCudaToolkitAction.apply(machine.host, kWith);
      REQUIRE_FALSE(done);
      INFO(done.error().message);
      CHECK(done.error().message.find(why) != std::string::npos);
      CHECK_FALSE(machine.host.files().exists("/var/lib/p2pd/cuda-toolkit-12-8.d/0/packages"));
      CHECK_FALSE(machine.host.files().exists("/etc/profile.d/p2pd-cuda.sh"));
    }
    machine.runner.on(update_command().text());
    machine.runner.on(command(install, "--simulate").text(), "", 100, "E: Unable to locate package cuda-toolkit-12-8");
    CHECK(kCudaToolkitAction.apply(machine.host, kWith).error().next.find("apt-get update") != std::string::npos);
  }
  SECTION("killed") {
    machine.nvcc();
    machine.status(kBefore + package("cuda-nvcc-12-8", "amd64"));
    machine.put("var/lib/p2pd/cuda-toolkit-12-8.d/0/packages", "remove cuda-toolkit-12-8\npurge cuda-nvcc-12-8\n");
    machine.apt(install, "Inst cuda-toolkit-12-8 (12.8 x)\n", [&] { machine.install(); });
    REQUIRE(kCudaToolkitAction.apply(machine.host, kWith));
    CHECK(machine.text("/var/lib/p2pd/cuda-toolkit-12-8.d/0/packages") ==
          "purge cuda-nvcc-12-8\nremove cuda-toolkit-12-8\n");
    CHECK(machine.look().verdict == Verdict::pass);
  }
}
