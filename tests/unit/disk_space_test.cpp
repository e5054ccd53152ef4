// SPDX-License-Identifier: MIT
#include "base/mounts.hpp"
#include "catch.hpp"
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
  CHECK((finding.verdict == Verdict::pass) == (free >= (6400ULL << 20)));  // all on one file system
  fs::remove_all(tree.directory / "var");
  CHECK(kDiskSpace.check(tree.host, {})->verdict != Verdict::pass);
  CHECK(kDiskSpace.check(tree.host, {})->facts["free_bytes"]["/var"].is_null());
  tree.put("machine.json", "{}");  // the disk of whoever looks at a record tells nothing
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
  CHECK(says(gib8, gib8, "268435456").verdict == Verdict::pass);
  CHECK(says(gib8, gib8, "268435456").facts["free_bytes"]["/boot"] == 268435456);
  CHECK(says(gib8, gib8, "268435455").summary ==
        "/boot has 255 MiB free, and 256 are needed");
  CHECK(says(gib3, gib3, gib8).summary ==  // either would fit, both do not
        "/usr, /var has 3072 MiB free, and 6144 are needed");
  for (const char* broken : {"-1", "\"many\"", "1.5", "null", "{}"})
    CHECK(says(gib8, broken, gib8).summary == "free space is not known: /var");
  for (const char* broken : {"", "[]", R"({"free_bytes": 1})", R"({"free_bytes": {"/usr": 1})"}) {
    tree.put("machine.json", broken);
    CHECK(check()->verdict == Verdict::unknown);
  }
}
