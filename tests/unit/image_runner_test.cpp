// SPDX-License-Identifier: MIT
#include "base/image_runner.hpp"

#include <filesystem>

#include "catch.hpp"
#include "temporary.hpp"

using namespace p2pd;
using test::TemporaryDirectory;

namespace {

/// A tree whose programs, in every folder of the PATH, leave a mark.
struct Tree {
  TemporaryDirectory directory;
  Tree() {
    for (const char* folder : {"usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"})
      for (const char* name : {"nvidia-smi", "p2p-bench", "modinfo", "dpkg-query", "lsinitramfs", "sh", "apt-get"}) {
        const std::string path = std::string(folder) + "/" + name;
        directory.put(path, "#!/bin/sh\n: > " + (directory / "mark").string() + "\n");
        std::filesystem::permissions(directory / path, std::filesystem::perms(0755));
      }
    directory.put("var/lib/dpkg/status",
                  "Package: libnvidia-x\nStatus: install ok installed\nArchitecture: amd64\nMaintainer: x "
                  "<x@example.com>\nVersion: 1\nDescription: x\n");
    directory.put("var/lib/dpkg/info/libnvidia-x.list", "/.\n/usr\n/usr/lib/x.so\n");
  }
  Result<CommandResult> ask(std::vector<std::string> argv) {
    ImageRunner runner(Root::open(directory.path()).value());
    Command command;
    command.argv = std::move(argv);
    return runner.run(command);
  }
  bool marked() const { return std::filesystem::exists(directory / "mark"); }
};

}  // namespace

TEST_CASE("looking at an image starts nothing of it", "[attack]") {
  Tree tree;
  for (const std::vector<std::string>& argv : {std::vector<std::string>{"nvidia-smi", "-q"},
                                               {"p2p-bench", "--driver-peers"},
                                               {"sh", "-c", "true"},
                                               {"apt-get", "--simulate", "install", "x"},
                                               {"/usr/bin/nvidia-smi"},
                                               {"../bin/sh"},
                                               {}}) {
    const auto asked = tree.ask(argv);
    REQUIRE_FALSE(asked);
    CHECK(is_not_run(asked.error()));
  }
  CHECK_FALSE(tree.marked());
}

TEST_CASE("of an image, this machine's own programs read the files and the database of dpkg", "[attack]") {
  Tree tree;
  const auto owner = tree.ask({"dpkg-query", "--search", "/usr/lib/x.so"});
  REQUIRE(owner);
  CHECK(owner->output == "libnvidia-x: /usr/lib/x.so\n");
  tree.directory.put("lib/modules/x.ko", "no module");
  const auto read = tree.ask({"modinfo", "/lib/modules/x.ko"});
  REQUIRE(read);
  CHECK(read->errors.find(tree.directory.path().string()) == std::string::npos);
  CHECK(tree.ask({"modinfo", "/lib/modules/none.ko"}).error().code == ErrorCode::not_found);
  std::filesystem::create_symlink("/etc/passwd", tree.directory / "lib/modules/outside.ko");
  CHECK_FALSE(tree.ask({"modinfo", "/lib/modules/outside.ko"}));  // a link does not lead out of the tree
  const auto outside =
      ImageRunner(Root::open(tree.directory.path()).value()).run({.argv = {"sh", "-c", "echo here"}, .outside = true});
  CHECK(outside->output == "here\n");
  CHECK_FALSE(tree.marked());
}
