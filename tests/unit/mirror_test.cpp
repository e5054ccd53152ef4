// SPDX-License-Identifier: MIT
// Builds that are taken from a mirror, and each reason for which they are refused; what is refused is built here.
#include "base/sha256.hpp"
#include "buildable.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

namespace {

/// Spoils the signature or the key in one way; returns the expected reason.
std::string spoil_signature(Mirrored& world) {
  const std::string key = fs::canonical(world.directory / "etc/p2pd/mirror.pub").string();
  std::string expected;
  SECTION("another key") {
    world.sign(world.manifest(), MadeKey());
    expected = "it is not signed by a trusted key (/etc/p2pd/mirror.pub)";
  }
  SECTION("one byte of the list") {
    std::fstream file(world.served("manifest"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(200);
    file.put('x');
    expected = "it is not signed by a trusted key";
  }
  SECTION("no signature") {
    world.file("srv/mirror/manifest", "{}\n");
    expected = "its manifest does not begin with p2pd.mirror/1 and a signature";
  }
  SECTION("half a signature") {
    world.file("srv/mirror/manifest", "p2pd.mirror/1 AAAA\n{}\n");
    expected = "it is not signed by a trusted key";
  }
  SECTION("an expired certificate") {
    world.file("etc/p2pd/mirror.pub", world.key.certificate(-200'000, -100'000));
    expected = "it is signed by /etc/p2pd/mirror.pub, which expired on 20";
  }
  SECTION("a certificate of the future") {
    world.file("etc/p2pd/mirror.pub", world.key.certificate(100'000, 200'000));
    expected = "it is signed by /etc/p2pd/mirror.pub, which is valid from 20";
  }
  SECTION("a key file without a key") {
    world.file("etc/p2pd/mirror.pub", "no key\n");
    expected = "/etc/p2pd/mirror.pub holds no public Ed25519 key";
  }
  SECTION("a key file that is not there") {
    fs::remove(world.directory / "etc/p2pd/mirror.pub");
    expected = "trusted_keys: ";
  }
  SECTION("a key file that its group can write") {
    fs::permissions(key, fs::perms(0664));
    expected = fmt::format("trusted_keys: {0} is writable by others than root; next: sudo chmod go-w {0}", key);
  }
  SECTION("a directory where others can replace the key file") {
    fs::permissions(fs::path(key).parent_path(), fs::perms(0777));
    expected = "/etc/p2pd is writable by others than root";
  }
  SECTION("a link that others can turn to another key") {
    fs::create_directory(world.directory / "srv/keys");
    fs::create_symlink("/etc/p2pd/mirror.pub", world.directory / "srv/keys/mirror.pub");
    fs::permissions(world.directory / "srv/keys", fs::perms(0777));
    world.with["trusted_keys"] = {"/srv/keys/mirror.pub"};
    expected = "/srv/keys is writable by others than root";
  }
  if (::geteuid() == 0) SECTION("a key file of somebody else") {
      REQUIRE(::chown(key.c_str(), 1000, 1000) == 0);
      expected = fmt::format("trusted_keys: {0} is owned by user 1000, not by root; next: sudo chown root {0}", key);
    }
  return expected;
}

/// Spoils the list in one way, validly signed; returns the expected reason.
std::string spoil_list(Mirrored& world) {
  std::string expected;
  const auto resigned = [&](const std::function<void(MirrorManifest&)>& change) {
    MirrorManifest manifest = world.manifest();
    change(manifest);
    world.sign(manifest);
  };
  using std::chrono::hours;
  SECTION("stale") {
    resigned([](MirrorManifest& its) { its.valid_until = its.made - hours(1); });
    expected = "its manifest was valid until 20";
  }
  SECTION("of the future") {
    resigned([](MirrorManifest& its) { its.made += hours(48); });
    expected = "and here it is 20";
  }
  SECTION("too large") {
    world.file("srv/mirror/manifest", std::string(5 << 20, ' '));
    expected = "/manifest has more than 4194304 bytes";
  }
  for (const char* path :
       {"../x", "/etc/x", "builds/../../x", "builds//x", "builds/.x", "builds/a b", "builds/a\\b", ""})
    SECTION(fmt::format("a path that leaves it: '{}'", path)) {
      resigned([&](MirrorManifest& its) { its.files[path] = {1, std::string(64, '0')}; });
      expected = "its manifest names a path that leaves the mirror";
    }
  SECTION("no size") {
    resigned([&](MirrorManifest& its) { its.files.begin()->second.bytes = 0; });
    expected = "its manifest gives 0 bytes as the size of ";
  }
  SECTION("no sum") {
    resigned([&](MirrorManifest& its) { its.files.begin()->second.sha256 = "x"; });
    expected = "its manifest gives no size or SHA-256 of ";
  }
  return expected;
}

/// Spoils the first module in one way; returns the expected reason.
std::string spoil_module(Mirrored& world) {
  const std::string module = world.folder() + "/nvidia.ko";
  MirrorManifest manifest = world.manifest();
  std::string expected;
  SECTION("a changed byte") {
    std::fstream file(world.served(module), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.put('x');
    expected = "its SHA-256 is ";
  }
  SECTION("longer") {
    std::ofstream(world.served(module), std::ios::app) << "x";
    expected = "nvidia.ko has more than ";
  }
  SECTION("shorter") {
    fs::resize_file(world.served(module), 100);
    expected = "its SHA-256 is ";
  }
  SECTION("another size in the list") {
    ++manifest.files[module].bytes;
    world.sign(manifest);
    expected = "bytes, and its manifest says ";
  }
  SECTION("a file that is not there") {
    fs::remove(world.served(module));
    expected = "nvidia.ko";
  }
  SECTION("a link to a file of this machine") {
    fs::remove(world.served(module));
    world.file("etc/secret", "x");
    fs::create_symlink("/etc/secret", world.served(module));
    expected = "its SHA-256 is ";
  }
  SECTION("four modules") {
    manifest.files.erase(module);
    world.sign(manifest);
    expected = fmt::format("it has no {}", module);
  }
  return expected;
}

/// Makes it the mirror of another build, validly signed; returns the expected reason.
std::string spoil_build(Mirrored& world) {
  const std::string module = world.folder() + "/nvidia.ko", record = world.folder() + "/build.json";
  MirrorManifest manifest = world.manifest();
  const auto lists = [&](const std::string& path) {
    std::ifstream in(world.served(path), std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    manifest.files[path] = {text.size(), sha256_of(text)};
    world.sign(manifest);
  };
  const auto rewrite = [&](const std::function<void(nlohmann::json&)>& change) {
    std::ifstream in(world.served(record));
    nlohmann::json json = nlohmann::json::parse(in);
    change(json);
    world.file("srv/mirror/" + record, json.dump());
    lists(record);
  };
  std::string expected;
  SECTION("made of another tree") {
    rewrite([](nlohmann::json& json) { json["made_of"]["commit"] = std::string(40, '9'); });
    expected = "build.json is not the record of this build";
  }
  SECTION("made by another compiler") {
    rewrite([](nlohmann::json& json) { json["made_of"]["compiler"] = "gcc-1"; });
    expected = "build.json is not the record of this build";
  }
  SECTION("a record of other modules") {
    rewrite([](nlohmann::json& json) { json["modules"]["nvidia"]["sha256"] = std::string(64, '1'); });
    expected = "is not the one that was built";
  }
  SECTION("a module of another kernel, well signed") {
    world.source("kernel-open/other.c", Buildable::code("\"5.10.0-1-amd64\""));
    REQUIRE(world.plain.run(
        {{"gcc", "-r", "-nostdlib", "-o", world.served(module), world.directory / "srv/source/kernel-open/other.c"}}));
    lists(module);
    expected = "is for kernel '5.10.0-1-amd64 SMP mod_unload', not 6.1.0-1-amd64";
  }
  return expected;
}

}  // namespace

TEST_CASE("mirror: a build is taken, nothing is compiled, and undo removes it") {
  Mirrored world;
  fs::remove(world.directory / ("usr/bin/gcc-" + world.gcc));  // not needed
  const std::string before = world.picture();
  CHECK(world.refused().empty());
  CHECK(world.builds()[0].directory.ends_with(world.folder().substr(7)));
  const std::string after = world.picture();
  REQUIRE(world.apply(kDriverBuildAction));
  CHECK(world.picture() == after);
  world.undo();
  CHECK(world.picture() == before);
}

TEST_CASE("mirror: a manifest that is not to be trusted is refused") {
  Mirrored world;
  const std::string expected = spoil_signature(world) + spoil_list(world);  // sections of one case: one runs, in either
  CHECK(says(world.refused(), expected));
}

TEST_CASE("mirror: a valid certificate, and a second key, are trusted") {
  Mirrored world;
  world.file("etc/p2pd/mirror.pub", world.key.certificate(-100, 100'000));
  world.file("etc/p2pd/other.pub", MadeKey().public_pem());
  world.with["trusted_keys"] = {"/etc/p2pd/other.pub", "/etc/p2pd/mirror.pub"};
  CHECK(world.refused().empty());
}

TEST_CASE("mirror: files that are not what the manifest says, or of another build, are refused") {
  Mirrored world;
  const std::string expected = spoil_module(world) + spoil_build(world);  // sections of one case: one runs, in either
  CHECK(says(world.refused(), expected));
}

TEST_CASE("mirror: a manifest older than one that was used is refused, until a newer one comes") {
  Mirrored world;
  const MirrorManifest old = world.manifest();
  MirrorManifest newer = old;
  newer.made += std::chrono::seconds(5);
  world.sign(newer);
  CHECK(world.refused().empty());
  world.forget_build();
  world.sign(old);
  CHECK(says(world.refused(), "older than one of 20"));
  world.forget_build();
  world.sign(newer);
  CHECK(world.refused().empty());
}

TEST_CASE("mirror: a server that lacks it, is in trouble, or stalls") {
  Mirrored world;
  SECTION("404") {
    const OneAnswer server("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    world.with["mirror"] = server.url;
    CHECK(says(world.refused(), "/manifest: the server answers 404"));
  }
  SECTION("500") {
    const OneAnswer server("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n");
    world.with["mirror"] = server.url;
    CHECK(says(world.refused(), "/manifest: the server answers 500"));
  }
  SECTION("nobody") {
    world.with["mirror"] = "http://127.0.0.1:9";
    CHECK(says(world.refused(), "http://127.0.0.1:9/manifest"));
  }
  SECTION("silence") {
    const OneAnswer server("");
    world.with["mirror"] = server.url;
    const auto begin = std::chrono::steady_clock::now();
    const auto opened = Mirror::open(std::as_const(static_cast<const Host&>(world.host())), mirror_of(world.with),
                                     std::chrono::seconds(1));
    REQUIRE_FALSE(opened);
    CHECK(says(opened.error().message, server.url));
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
  }
}
