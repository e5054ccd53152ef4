// SPDX-License-Identifier: MIT
#include "machine/driver/runfile_install.hpp"

#include <algorithm>

#include "base/sha256.hpp"
#include "staged.hpp"

namespace p2pd {
extern const Probe kDriverUserspace;
extern const Action kDriverUserspaceAction;
}  // namespace p2pd

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

namespace {

constexpr char kLog[] = "var/lib/nvidia/log";
constexpr char kHead[] = "9.9.9\nNVIDIA Accelerated Graphics Driver for Linux-x86_64\n";

/// Manifest of the installer of 9.9.9: a library, a link to it, two programs, and the files that it moved aside.
std::string manifest() {
  return std::string(kHead) +
         "1: /usr/lib/libcuda.so.9.9.9\n123\n0: /usr/lib/libcuda.so.1\nlibcuda.so.9.9.9\n1: /usr/bin/nvidia-smi\n4\n"
         "1: /usr/lib/libnvidia-ml.so.9.9.9\n5\n2: /usr/lib/libGL.so.1\nlibGL.so.0\n0777 0 0\n"
         "100: /usr/lib/libEGL.so\n77 644 0 0\n";
}

struct World : Staged {
  void installed() const {
    file(kLog, manifest());
    for (const char* path : {"usr/lib/libcuda.so.9.9.9", "usr/bin/nvidia-smi", "usr/lib/libnvidia-ml.so.9.9.9"})
      file(path, "x");
    fs::create_symlink("libcuda.so.9.9.9", directory / "usr/lib/libcuda.so.1");
  }
  /// A staged runfile that does `script`, with the sum that the catalogue has.
  void runfile(const std::string& script) {
    file("var/cache/p2pd/runfiles/NVIDIA-Linux-x86_64-9.9.9.run", script);
    release()["runfile"]["sha256"] = sha256_of(script);
    fs::create_directories(directory / "usr/lib");
  }
};

}  // namespace

TEST_CASE("runfile manifest: what was laid down and what was put aside are told apart") {
  const auto found = parse_runfile_manifest(manifest());
  REQUIRE(found);
  CHECK(found->version == "9.9.9");
  REQUIRE(found->installed.size() == 4);
  CHECK(found->installed[1].path == "/usr/lib/libcuda.so.1");
  CHECK(found->installed[1].target == "libcuda.so.9.9.9");
}

TEST_CASE("runfile manifest: a damaged one names its line") {
  struct Row {
    std::string text, message;
  };
  const Row rows[] = {
      {"", "line 1: not a driver version"},
      {"nvidia\nx\n", "line 1: not a driver version"},
      {std::string(kHead) + "1: relative\n1\n", "line 3: not \"NUMBER: /PATH\" and a line about it"},
      {std::string(kHead) + "1: /a\n", "line 3: not \"NUMBER: /PATH\" and a line about it"},
      {std::string(kHead) + "1: /a\n1\nx: /b\n2\n", "line 5: not \"NUMBER: /PATH\" and a line about it"},
      {std::string(kHead) + "2: /a\nb\n0 0 0\n/c\n2\n", "line 6: not \"NUMBER: /PATH\" and a line about it"},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    const auto found = parse_runfile_manifest(row.text);
    REQUIRE_FALSE(found);
    CHECK(found.error().message == row.message);
  }
}

TEST_CASE("installer: flags that a version has") {
  for (const char* version : {"550.54.15", "570.148.08", "595.45.04"}) {
    const auto flags = installer_arguments(version, "/l");
    CHECK(std::ranges::count(flags, "--skip-module-load") == 1);
    CHECK(std::ranges::count(flags, "--no-kernel-modules") == 1);
    CHECK(std::ranges::count(flags, "--log-file-name=/l") == 1);
  }
  for (const std::string& flag : installer_arguments("535.161.08", "/l"))
    CHECK(flag.find("skip-module-load") == flag.npos);
}

TEST_CASE("installer: its log as one cause") {
  struct Row {
    const char *log, *cause;
  };
  const Row rows[] = {
      {"", "its log does not say why"},
      {"-> The NVIDIA driver appears to have been installed previously using a different installer. (Answer: Abort "
       "installation)\nERROR: Installation has failed.  Please see the file.\n",
       "packages of another driver are still installed"},
      {"-> You appear to be running an X server. (Answer: Continue installation)\nERROR: Unable to install libx\n",
       "ERROR: Unable to install libx"},
      {"WARNING: x\n-> nvidia-installer is not able to do it while Nouveau is loaded. (Answer: Abort installation)\n",
       "nouveau drives a GPU"},
      {"cp: error writing 'x': No space left on device\nERROR: Unable to install x\n", "the disk is full"},
  };
  for (const Row& row : rows) CHECK(installer_failure(row.log).message == row.cause);
}

TEST_CASE("driver-userspace: each file of the runfile's list must be there") {
  World world;
  CHECK(world.check(kDriverUserspace)->summary.find("no runfile has installed a driver") != std::string::npos);
  world.installed();
  CHECK(world.check(kDriverUserspace)->verdict == Verdict::pass);
  world.file("var/lib/p2pd/before-runfile/installing", "");
  CHECK(world.check(kDriverUserspace)->summary ==
        "the user space of 9.9.9 is not installed: its installer was stopped before its end");
  fs::remove(world.directory / "var/lib/p2pd/before-runfile/installing");
  fs::remove(world.directory / "usr/lib/libcuda.so.1");
  CHECK(world.check(kDriverUserspace)->summary ==
        "the user space of 9.9.9 is not installed: /usr/lib/libcuda.so.1 is not there");
  world.release("9.9.10") = world.release();
  world.release("9.9.10")["runfile"]["path"] = "/NVIDIA-Linux-x86_64-9.9.10.run";
  world.patch()["base"] = "9.9.10";
  CHECK(world.check(kDriverUserspace)->summary.find("a runfile has installed 9.9.9") != std::string::npos);
  world.file(kLog, "damaged\n");
  CHECK_FALSE(world.check(kDriverUserspace));
}

TEST_CASE("driver-userspace: only bytes with the catalogue's SHA-256 are run") {
  World world;
  world.runfile("echo ran > " + (world.directory / "ran").string() + "\n");
  world.file("var/cache/p2pd/runfiles/NVIDIA-Linux-x86_64-9.9.9.run",
             "echo ran > " + (world.directory / "ran").string() + "; other\n");
  const auto applied = world.apply(kDriverUserspaceAction);
  REQUIRE_FALSE(applied);
  CHECK(applied.error().message.find("is not run: its SHA-256 differs from the catalogue's") != std::string::npos);
  for (const std::string& command : world.runner.ran) CHECK(command.starts_with("cp "));
  CHECK_FALSE(fs::exists(world.directory / "ran"));
}

TEST_CASE("driver-userspace: a failed installer is told by its log") {
  World world;
  world.runfile(
      "for word; do case $word in --log-file-name=*) log=${word#*=} ;; esac; done\n"
      "echo 'ERROR: Unable to install usr/lib/libx' > \"$log\"\nexit 1\n");
  const auto applied = world.apply(kDriverUserspaceAction);
  REQUIRE_FALSE(applied);
  CHECK(applied.error().message == "NVIDIA's installer of 9.9.9 stopped: ERROR: Unable to install usr/lib/libx");
  CHECK(applied.error().next == "Full log: /var/log/p2pd/nvidia-installer-9.9.9.log.");
  CHECK_FALSE(fs::exists(world.directory / "var/cache/p2pd/installer"));
}

TEST_CASE("driver-userspace: files of a killed installer are recorded and removed, none where dpkg cannot answer") {
  struct Answers : CommandRunner {
    Result<CommandResult> run(const Command& command) override {
      return command.argv[0] == "find" ? CommandResult{0, "/usr/bin/nvidia-smi\n/usr/share/nvidia-smi\n", ""} : dpkg;
    }
    int stop_fd() const override { return -1; }
    CommandResult dpkg;
  } answers;
  struct : ChangeRecorder {
    Result<void> before_change(std::string_view path, Restore) override {
      paths.emplace_back(path);
      return {};
    }
    std::vector<std::string> paths;
  } recorder;
  const World world;
  for (const char* path : {"usr/bin/nvidia-smi", "usr/share/nvidia-smi", "unpacked/nvidia-smi"}) world.file(path, "x");
  world.file("unpacked/.manifest", "nvidia-smi 0755 UTILITY_BINARY NATIVE\n");
  Host host(Root::open(world.directory.path()).value(), answers, &recorder);
  answers.dpkg = {2, "", "dpkg-query: error: parsing file '/var/lib/dpkg/status' near line 0\n"};
  const auto unknown = clear_unnoted_files(host, "/unpacked");
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().message.find("parsing file") != std::string::npos);
  CHECK(host.files().exists("/usr/bin/nvidia-smi"));
  CHECK(recorder.paths.empty());
  answers.dpkg = {1, "others: /usr/share/nvidia-smi\n", "dpkg-query: no path found matching pattern\n"};
  REQUIRE(clear_unnoted_files(host, "/unpacked"));
  CHECK_FALSE(host.files().exists("/usr/bin/nvidia-smi"));
  CHECK(host.files().exists("/usr/share/nvidia-smi"));
  CHECK(recorder.paths == std::vector<std::string>{"/usr/bin/nvidia-smi"});
}
