// SPDX-License-Identifier: MIT
// The runfile of a driver: its download, and its identification (machine/catalogue/runfile.hpp).
#include "base/sha256.hpp"
#include "machine/catalogue/runfile.hpp"
#include "staged.hpp"

namespace p2pd {
extern const Probe kDriverRunfile;
extern const Action kDriverRunfileAction;
}  // namespace p2pd

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

namespace {

constexpr char kName[] = "NVIDIA-Linux-x86_64-9.9.9.run";
constexpr char kCached[] = "var/cache/p2pd/runfiles/NVIDIA-Linux-x86_64-9.9.9.run";
const std::string kBytes = std::string(700, 'r') + '\0' + "un";

/// A host, and a mirror in it with the runfile in NVIDIA's layout.
struct World : Staged {
  World() {
    release()["runfile"]["sha256"] = sha256_of(kBytes);
    release()["runfile"]["bytes"] = kBytes.size();
    mirror("srv/mirror", kBytes);
    with["mirrors"] = {"file:///srv/mirror/"};
  }
  void mirror(const std::string& directory_of, const std::string& bytes) const {
    file(directory_of + "/XFree86/9.9.9/" + kName, bytes);
  }
};

}  // namespace

TEST_CASE("driver-runfile: fetched, there, not fetched again, and undone without a trace") {
  World world;
  world.host();
  const std::string before = world.picture();
  CHECK(world.check(kDriverRunfile)->verdict == Verdict::fail);
  REQUIRE(world.apply(kDriverRunfileAction));
  CHECK(world.check(kDriverRunfile)->verdict == Verdict::pass);
  const std::string after = world.picture();
  CHECK(after != before);
  fs::remove_all(world.directory / "srv");  // a second apply needs no source
  REQUIRE(world.apply(kDriverRunfileAction));
  world.mirror("srv/mirror", kBytes);
  CHECK(world.picture() == after);
  world.undo();
  CHECK(world.picture() == before);
}

TEST_CASE("driver-runfile: half a download is gone on with") {
  World world;
  world.file(std::string(kCached) + ".part", kBytes.substr(0, 300));
  REQUIRE(world.apply(kDriverRunfileAction));
  CHECK(world.check(kDriverRunfile)->verdict == Verdict::pass);
  CHECK_FALSE(fs::exists(world.directory / (std::string(kCached) + ".part")));
}

TEST_CASE("driver-runfile: the next source is asked where one has another file, half of it, or nothing") {
  World world;
  std::string other = kBytes;
  other[5] = 'x';
  world.mirror("srv/wrong", other);
  world.mirror("srv/half", kBytes.substr(0, 300));
  world.file(std::string("srv/flat/") + kName, kBytes);
  world.with["mirrors"] = {"file:///srv/none", "file:///srv/wrong", "file:///srv/half", "file:///srv/flat"};
  REQUIRE(world.apply(kDriverRunfileAction));
  CHECK(world.check(kDriverRunfile)->verdict == Verdict::pass);
}

TEST_CASE("driver-runfile: a wrong sum is thrown away, and expected, found and source are told") {
  World world;
  world.host();
  const std::string before = world.picture();
  const std::string other(kBytes.size(), 'x');
  world.mirror("srv/mirror", other);
  const auto applied = world.apply(kDriverRunfileAction);
  REQUIRE_FALSE(applied);
  INFO(applied.error().message);
  CHECK(applied.error().message.find(sha256_of(kBytes)) != std::string::npos);
  CHECK(applied.error().message.find(sha256_of(other)) != std::string::npos);
  CHECK(applied.error().message.find("file:///srv/mirror/XFree86/9.9.9/") != std::string::npos);
  CHECK_FALSE(applied.error().next.empty());
  CHECK(world.check(kDriverRunfile)->verdict == Verdict::fail);
  world.undo();
  world.mirror("srv/mirror", kBytes);
  CHECK(world.picture() == before);
}

TEST_CASE("driver-runfile: a damaged file in the cache is no pass, and is fetched anew") {
  World world;
  world.file(kCached, kBytes + "more");
  const auto finding = world.check(kDriverRunfile);
  CHECK(finding->verdict == Verdict::fail);
  CHECK(finding->summary.find("damaged") != std::string::npos);
  REQUIRE(world.apply(kDriverRunfileAction));
  CHECK(world.check(kDriverRunfile)->verdict == Verdict::pass);
}

TEST_CASE("driver-runfile: no network is an error with every source and the next step") {
  World world;
  world.with.erase("mirrors");
  world.drop_in["runfile_hosts"] = {"http://127.0.0.1:9"};  // nobody listens
  const auto applied = world.apply(kDriverRunfileAction);
  REQUIRE_FALSE(applied);
  CHECK(applied.error().message.find("http://127.0.0.1:9/XFree86/9.9.9/") != std::string::npos);
  CHECK(applied.error().next.find(std::string("/") + kCached) != std::string::npos);
}

TEST_CASE("driver-runfile: no room and a read-only disk end before or without a change") {
  World world;
  {
    const SmallDisk disk(world.directory / "var", "size=1m");
    if (!disk) return;  // mounting takes root
    const auto full = world.apply(kDriverRunfileAction);
    REQUIRE_FALSE(full);
    CHECK(full.error().message.find("/var has 1 MiB free") == 0);
    CHECK(full.error().next.find("Make room") == 0);
    CHECK(fs::is_empty(world.directory / "var"));
  }
  const SmallDisk disk(world.directory / "var", "size=100m", true);
  const auto refused = world.apply(kDriverRunfileAction);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("Read-only file system") != std::string::npos);
  CHECK(refused.error().next.find("remount,rw") != std::string::npos);
  CHECK(
      Root::open(world.directory.path()).value().remove("/var/none"));  // undo: removing an absent file needs no write
}

TEST_CASE("driver-runfile: a cache that is no file, and one that cannot be read, are no pass") {
  World world;
  fs::create_directories(world.directory / kCached);
  CHECK_FALSE(world.check(kDriverRunfile));
  REQUIRE(world.apply(kDriverRunfileAction));
  CHECK(world.check(kDriverRunfile)->verdict == Verdict::pass);
}

TEST_CASE("staging: only entries that may be used, and plain URLs, are taken") {
  World world;
  CHECK(validate_staging(world.with));
  for (const char* mirror : {"", "ftp://x", "file://relative", "--upload-pack=x", "https://a b", "ssh://x/y", "/srv"})
    CHECK_FALSE(validate_staging({{"entry", "a/b"}, {"mirrors", {mirror}}}));
  for (const char* entry : {"", "a", "/", "a/", "/b", "a/b/c"}) CHECK_FALSE(validate_staging({{"entry", entry}}));
  world.with["entry"] = "test/other";
  CHECK(world.check(kDriverRunfile).error().code == ErrorCode::not_found);
  world.with["entry"] = "test/main";
  world.patch()["known"] = "single-source";
  Error error = world.check(kDriverRunfile).error();
  CHECK(error.message ==
        "test/main (/etc/p2pd/catalogue.d/test.yaml) may not be used yet: its hashes are confirmed by one source only");
  CHECK(error.next == "\"sudo p2pctl catalogue allow test/main\" shows what is known of it, and asks.");
  world.release()["runfile"].erase("sha256");
  CHECK(world.check(kDriverRunfile)
            .error()
            .message.ends_with("may not be used yet: the SHA-256 of its runfile is not known"));
}

TEST_CASE("runfile: the version that version.mk names", "[download]") {
  CHECK(version_of_modules("NVIDIA_VERSION = 565.57.01\n\n# x\nX := $(y)\n").value() == "565.57.01");
  CHECK(version_of_modules("  NVIDIA_VERSION:=565.77").value() == "565.77");
  CHECK(version_of_modules("NVIDIA_VERSION=565.77\r\n").value() == "565.77");
  for (const char* text : {"", "=", ":=", "VERSION = 1.2", "NVIDIA_VERSION", "NVIDIA_VERSION =", "NVIDIA_VERSION = 565",
                           "NVIDIA_VERSION = a.b", "NVIDIA_VERSION = 1.2.3.4", "NVIDIA_VERSION = 565.77 565.78",
                           "NVIDIA_VERSION = 565.77/../x", "NVIDIA_VERSION = 565.77\nNVIDIA_VERSION = 565.78\n",
                           "OLD NVIDIA_VERSION = 1.2", "\xff\xfe=\xff"}) {
    INFO(text);
    CHECK_FALSE(version_of_modules(text));
  }
}

TEST_CASE("runfile: the sum that is published", "[download]") {
  const std::string sum = sha256_of("abc"), other = sha256_of("x");
  CHECK(published_sum(sum + "  a.run\n", "a.run").value() == sum);
  CHECK(published_sum(other + "  b.run\n" + sum + " *a.run\n", "a.run").value() == sum);
  CHECK(published_sum(sum + "  ./dir/a.run", "a.run").value() == sum);
  for (const std::string& text :
       {std::string(), sum, sum + "  b.run", sum.substr(1) + "  a.run", "x" + sum + "  a.run", sum + "  xa.run",
        sum + "  a.run\n" + other + "  a.run\n", std::string("<html>404</html>")}) {
    INFO(text);
    CHECK_FALSE(published_sum(text, "a.run"));
  }
}
