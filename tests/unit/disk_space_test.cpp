// SPDX-License-Identifier: MIT
#include "catch.hpp"
#include "machine/boot/mounts.hpp"
#include "made_tree.hpp"

namespace p2pd {
extern const Probe kDiskSpace;
}

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

TEST_CASE("disk-space: of a running system, what its file systems have") {
  MadeTree tree;
  tree.gpu("84 26");
  for (const char* directory : {"usr", "var", "boot"}) fs::create_directories(tree.directory / directory);
  const Finding finding = kDiskSpace.check(tree.host, {}).value();
  const std::uint64_t free = finding.facts["free_bytes"]["/usr"];
  CHECK((finding.verdict == Verdict::pass) == (free >= (6208ULL << 20)));  // all on one file system
  fs::remove_all(tree.directory / "var");
  CHECK(kDiskSpace.check(tree.host, {})->verdict != Verdict::pass);
  CHECK(kDiskSpace.check(tree.host, {})->facts["free_bytes"]["/var"].is_null());
  tree.put("machine.json", "{}");  // a record: the reader's disk is irrelevant
  CHECK(kDiskSpace.check(tree.host, {})->summary == "free space is not known: /usr, /var, /boot");
}

TEST_CASE("disk-space: of a record is what its machine.json says, per file system") {
  MadeTree tree;
  tree.gpu("84 26");
  const auto check = [&] { return kDiskSpace.check(tree.host, {}); };
  const auto says = [&](const std::string& usr, const std::string& var, const std::string& boot) {
    tree.put("machine.json",
             R"({"free_bytes": {"/usr": )" + usr + R"(, "/var": )" + var + R"(, "/boot": )" + boot + "}}");
    return check().value();
  };
  const std::string gib8 = "8589934592", gib3 = "3221225472";
  tree.put("proc/self/mountinfo",
           "25 1 259:2 / / rw - ext4 /dev/sda2 rw\n26 25 259:3 / /boot rw - ext4 /dev/sda3 rw\n");
  CHECK(says(gib8, gib8, "67108864").verdict == Verdict::pass);
  CHECK(says(gib8, gib8, "67108864").facts["free_bytes"]["/boot"] == 67108864);
  CHECK(says(gib8, gib8, "67108863").summary == "/boot has 63 MiB free, and 64 are needed");
  CHECK(says(gib3, gib3, gib8).summary ==  // each fits alone, both do not
        "/usr, /var has 3072 MiB free, and 6144 are needed");
  for (const char* broken : {"-1", "\"many\"", "1.5", "null", "{}"})
    CHECK(says(gib8, broken, gib8).summary == "free space is not known: /var");
  for (const char* broken : {"", "[]", R"({"free_bytes": 1})", R"({"free_bytes": {"/usr": 1})"}) {
    tree.put("machine.json", broken);
    CHECK(check()->verdict == Verdict::unknown);
  }
}

TEST_CASE("disk-space: /boot needs what this machine's largest initramfs takes once more, and /var a copy of each") {
  MadeTree tree;
  tree.gpu("84 26");
  tree.put("proc/self/mountinfo",
           "25 1 259:2 / / rw - ext4 /dev/sda2 rw\n26 25 259:3 / /boot rw - ext4 /dev/sda3 rw\n"
           "27 25 259:4 / /var rw - ext4 /dev/sda4 rw\n");
  const auto kernel = [&](const std::string& version, std::uintmax_t mib) {
    tree.put("boot/vmlinuz-" + version, "");
    tree.put("boot/initrd.img-" + version, "");
    fs::resize_file(tree.directory / ("boot/initrd.img-" + version), mib << 20);  // sparse
  };
  const auto lacks = [&](int var, int boot) {
    tree.put("machine.json", R"({"free_bytes": {"/usr": 8589934592, "/var": )" +
                                 std::to_string(std::uint64_t(var) << 20) + R"(, "/boot": )" +
                                 std::to_string(std::uint64_t(boot) << 20) + "}}");
    return kDiskSpace.check(tree.host, {})->summary;
  };
  const std::string enough = "there is room for a driver and its build";
  kernel("6.1.0-1-amd64", 40);
  CHECK(lacks(4136, 104) == enough);  // fits a usual /boot of half a GB
  CHECK(lacks(4136, 103) == "/boot has 103 MiB free, and 104 are needed");
  for (const char* version : {"6.1.0-2-amd64", "6.1.0-3-amd64"}) kernel(version, 300);  // one at a time is made
  CHECK(lacks(4736, 364) == enough);
  CHECK(lacks(4736, 256) == "/boot has 256 MiB free, and 364 are needed");
  CHECK(lacks(4735, 364) == "/var has 4735 MiB free, and 4736 are needed");
  kernel("6.1.0-3-amd64", 0);  // a stand-in
  CHECK(lacks(4564, 364) == enough);
  CHECK(lacks(4563, 364) == "/var has 4563 MiB free, and 4564 are needed");
}
