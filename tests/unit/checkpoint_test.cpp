// SPDX-License-Identifier: MIT
// Files that GRUB reads from a file system whose journal it does not replay, tested with GRUB's own code (grub-fstest).
#include "base/checkpoint.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <thread>

#include "base/root.hpp"
#include "catch.hpp"
#include "temporary.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

/// A new file system in a file, mounted; no loop device stays behind.
class Disk {
 public:
  explicit Disk(const std::string& make) {
    image_ = directory_ / "image";
    mount_ = directory_ / "mount";
    std::filesystem::create_directories(mount_);
    std::ofstream(image_).close();
    std::filesystem::resize_file(image_, 320U << 20);
    if (::geteuid() != 0)
      why_ = "not root";
    else if (!runs(make + " " + image_))
      why_ = make + " does not run here";
    else if (!runs("grub-fstest --version"))
      why_ = "grub-fstest (grub-common) is not here";
    else
      mount();
  }
  ~Disk() { unmount(); }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  void mount() {
    mounted_ = runs("mount -o loop " + image_ + " " + mount_);
    if (!mounted_) why_ = "it cannot be mounted here";
  }
  void unmount() {
    if (std::exchange(mounted_, false)) CHECK(::umount2(mount_.c_str(), 0) == 0);  // frees its loop device, too
  }
  const std::string& why() const { return why_; }
  const std::string& path() const { return mount_; }
  std::string as_grub_sees(const std::string& path) const {
    std::FILE* pipe = ::popen(("grub-fstest " + image_ + " cat '(loop0)" + path + "' 2>&1").c_str(), "r");
    std::string text;
    for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
    ::pclose(pipe);
    return text;
  }

 private:
  static bool runs(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

  TemporaryDirectory directory_;
  std::string image_, mount_, why_;
  bool mounted_ = false;
};

FileState file_of(const std::string& text) {
  FileState state;
  state.kind = FileState::Kind::regular;
  state.mode = 0644;
  state.content = text;
  return state;
}

void put_and_read_as_grub(const std::string& make, bool journal) {
  Disk disk(make);
  if (!disk.why().empty()) {
    WARN(make + ": not tested: " + disk.why());
    return;
  }
  REQUIRE(Root::open(disk.path()).value().put("/grub.cfg", file_of("old\n")));
  disk.unmount();
  disk.mount();
  REQUIRE(disk.why().empty());
  std::optional<Root> live = live_root(disk.path());
  REQUIRE(live);
  REQUIRE(live->put("/grub.cfg", file_of("new\n")));  // durable, but only in the journal:
  if (journal) CHECK(disk.as_grub_sees("/grub.cfg") == "old\n");
  REQUIRE(live->checkpoint("/"));
  CHECK(disk.as_grub_sees("/grub.cfg") == "new\n");
  REQUIRE(live->put("/after.cfg", file_of("x")));  // the file system is thawed
}

}  // namespace

TEST_CASE("checkpoint: GRUB reads what was just written, on XFS") { put_and_read_as_grub("mkfs.xfs -q -f", true); }
TEST_CASE("checkpoint: GRUB reads what was just written, on ext4") { put_and_read_as_grub("mkfs.ext4 -q -F", true); }
TEST_CASE("checkpoint: GRUB reads what was just written, on btrfs") { put_and_read_as_grub("mkfs.btrfs -q -f", true); }
TEST_CASE("checkpoint: GRUB reads what was just written, on ext2") { put_and_read_as_grub("mkfs.ext2 -q -F", false); }

TEST_CASE("checkpoint: a file system is never left frozen, whoever is killed in between") {
  Disk disk("mkfs.xfs -q -f");
  if (!disk.why().empty()) {
    WARN("not tested: " + disk.why());
    return;
  }
  Root files = Root::open(disk.path()).value();
  const Descriptor directory(::open(disk.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  int ended = 0, killed = 0;
  for (int round = 0; round < 60; ++round) {
    std::atomic<bool> done = false;
    REQUIRE(files.put("/round", file_of(std::to_string(round))));
    Result<void> result;
    const pid_t self = ::getpid();
    std::thread walker([&] {
      result = checkpoint_file_system(directory, disk.path());
      done = true;
    });
    for (int look = 0; !done && look < 100'000; ++look) {
      pid_t child = 0;
      const std::string tasks = "/proc/" + std::to_string(self) + "/task";
      for (const auto& task : std::filesystem::directory_iterator(tasks)) {
        std::ifstream children(task.path() / "children");
        for (pid_t one; children >> one;) child = std::max(child, one);
      }
      if (child == 0) continue;
      ::usleep(static_cast<useconds_t>(round * 100));  // from before the freeze to after the thaw
      if (!done) ::kill(child, SIGKILL);
      break;
    }
    walker.join();
    result ? ++ended : ++killed;
    const int frozen = ::ioctl(directory.get(), FIFREEZE, 0) == 0 ? 0 : errno;  // EBUSY: it is frozen already
    ::ioctl(directory.get(), FITHAW, 0);
    REQUIRE(frozen == 0);
  }
  INFO(ended << " ended, " << killed << " were killed");
  CHECK(ended > 0);
  CHECK(killed > 0);
}
