// SPDX-License-Identifier: MIT
// What needs no server: files, sums, and the texts that `catalogue add` reads. download_test.py has the servers.
#include "machine/fetch/download.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <fstream>

#include "base/descriptor.hpp"
#include "base/sha256.hpp"
#include "base/url.hpp"
#include "catch.hpp"
#include "machine/catalogue/runfile.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";  // FIPS 180-4, example

struct Place {
  Place() { put("source", "abc"); }
  void put(const std::string& name, const std::string& content) const { std::ofstream(directory / name) << content; }
  std::string text(const std::string& name) const {
    std::ifstream in(directory / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Download source() const { return {.url = "file://" + (directory / "source").string(), .sha256 = {}}; }
  test::TemporaryDirectory directory;
};

}  // namespace

TEST_CASE("sha256: piece by piece and at once", "[download]") {
  Sha256 sum;
  sum.feed("a");
  const std::string before = sum.hex();
  sum.feed("bc");
  CHECK(sum.hex() == kAbc);
  CHECK(sum.hex() == kAbc);
  CHECK(before == sha256_of("a"));
  sum.restart();
  CHECK(sum.hex() == sha256_of(""));
}

TEST_CASE("download: a file comes whole, with its sum", "[download]") {
  const Place place;
  Download what = place.source();
  std::uint64_t told = 0;
  what.progress = [&](std::uint64_t done, std::uint64_t) { told = done; };
  const auto done = fetch_file(what, place.directory / "target", -1);
  REQUIRE(done);
  CHECK(done->sha256 == kAbc);
  CHECK(done->bytes == 3);
  CHECK(told == 3);
  CHECK(place.text("target") == "abc");
  CHECK_FALSE(fs::exists(place.directory / "target.part"));
  CHECK(fetch_text(what, -1).value() == "abc");
  CHECK(remote_bytes(what, -1).value() == 3);
}

TEST_CASE("download: another sum leaves nothing, and what was there stays", "[download]") {
  const Place place;
  place.put("target", "old");
  Download what = place.source();
  what.sha256 = sha256_of("abd");
  const auto done = fetch_file(what, place.directory / "target", -1);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == ErrorCode::invalid);
  CHECK(done.error().message.find(kAbc) != std::string::npos);
  CHECK(place.text("target") == "old");
  CHECK_FALSE(fs::exists(place.directory / "target.part"));
}

TEST_CASE("download: what an earlier call left is used only where a sum tells", "[download]") {
  const Place place;
  Download what = place.source();
  place.put("target.part", "abX");
  CHECK(fetch_file(what, place.directory / "target", -1)->sha256 == kAbc);
  place.put("target.part", "abc");  // whole: the source is not needed
  what.sha256 = kAbc;
  what.url += ".gone";
  CHECK(fetch_file(what, place.directory / "target", -1).value().bytes == 3);
}

TEST_CASE("download: bounds and bad addresses", "[download]") {
  const Place place;
  Download what = place.source();
  const auto code = [&] {
    const auto text = fetch_text(what, -1);
    const auto file = fetch_file(what, place.directory / "target", -1);
    REQUIRE_FALSE(text);
    REQUIRE_FALSE(file);
    CHECK(text.error().code == file.error().code);
    return text.error().code;
  };
  what.limit_bytes = 2;
  CHECK(code() == ErrorCode::invalid);
  what = place.source();
  what.deadline = std::chrono::milliseconds(0);
  CHECK(code() == ErrorCode::timeout);
  what = place.source();
  what.url += ".gone";
  CHECK(code() == ErrorCode::not_found);
  for (const char* url : {"ftp://127.0.0.1/x", "gopher://x", "/etc/passwd", "", "https:/x", "file://"}) {
    INFO(url);
    what.url = url;
    CHECK_FALSE(fetch_text(what, -1));
  }
  const std::string pipe = place.directory / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  what.url = "file://" + pipe;
  CHECK(code() == ErrorCode::invalid);
  what.url = "file://" + place.directory.path().string();
  CHECK(code() == ErrorCode::invalid);
}

TEST_CASE("download: a part that is no file, or in use, is left alone", "[download]") {
  const Place place;
  place.put("other", "theirs");
  fs::create_symlink(place.directory / "other", place.directory / "target.part");
  CHECK_FALSE(fetch_file(place.source(), place.directory / "target", -1));
  CHECK(place.text("other") == "theirs");
  fs::remove(place.directory / "target.part");
  place.put("target.part", "half");
  const Descriptor user(::open((place.directory / "target.part").c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::flock(user.get(), LOCK_EX) == 0);
  const auto done = fetch_file(place.source(), place.directory / "target", -1);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == ErrorCode::busy);
  CHECK(place.text("target.part") == "half");
}

TEST_CASE("download: no password in what is printed", "[download]") {
  CHECK(without_user_info("https://me:pw@host/a@b") == "https://host/a@b");
  CHECK(without_user_info("https://me:p@w@host?x@y") == "https://host?x@y");
  CHECK(without_user_info("https://host/a@b") == "https://host/a@b");
  CHECK(without_user_info("host@x") == "host@x");
  CHECK(without_user_info("https://") == "https://");
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
  const std::string sum = kAbc, other = sha256_of("x");
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
