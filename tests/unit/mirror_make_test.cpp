// SPDX-License-Identifier: MIT
// Makes a mirror; tests its preview in a plan, and its configuration.
#include "actions/registry.hpp"
#include "base/sha256.hpp"
#include "buildable.hpp"
#include "plan/config.hpp"
#include "probes/registry.hpp"

namespace p2pd {
extern const Action kDriverSourceAction;
}

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::test;

TEST_CASE("mirror: plan says what is taken, and what is refused") {
  Mirrored world;
  Description told = kDriverBuildAction.describe(world.host(), world.with).value();
  CHECK(told.summary == fmt::format("take modules for {} from the mirror", kRelease));
  CHECK(told.time.count() == 0);
  world.sign(world.manifest(), MadeKey());
  told = kDriverBuildAction.describe(world.host(), world.with).value();
  CHECK(told.summary == fmt::format("build modules for {}", kRelease));
  CHECK(told.time.count() > 0);
  CHECK(says(told.notes.at(0), "mirror refused: it is not signed by a trusted key"));
}

TEST_CASE("mirror: the source is taken, of the pinned tree alone") {
  Mirrored world;
  const CatalogueEntry entry = world.entry();
  fs::remove_all(world.directory / "var/cache/p2pd/sources");
  REQUIRE(world.apply(kDriverSourceAction));
  CHECK(check_source(world.host(), entry));
  CHECK(fs::exists(world.directory / source_patch_of(entry)));
  fs::remove_all(world.directory / "var/cache/p2pd/sources");
  world.patch()["tree"] = std::string(40, '7');
  const auto applied = world.apply(kDriverSourceAction);
  REQUIRE_FALSE(applied);  // refused, and there is no repository to make it from
  CHECK(says(applied.error().message, "could not be fetched"));
  CHECK_FALSE(fs::exists(world.directory / source_of(entry)));
}

TEST_CASE("mirror: made again it writes nothing but its manifest, and keeps what it had") {
  Mirrored world;
  std::ofstream(world.served("manifest"), std::ios::app).close();
  REQUIRE(world.refused().empty());  // others can take a build that was taken
  MirrorManifest more = world.manifest();
  more.files["builds/other/x"] = {1, sha256_of("x")};
  more.files["builds/other/gone"] = {1, sha256_of("y")};
  world.file("srv/mirror/builds/other/x", "x");
  world.sign(more);
  const auto again = world.make();
  REQUIRE(again);
  CHECK(again->written.empty());
  CHECK(again->skipped.empty());
  more.files.erase("builds/other/gone");
  CHECK(world.manifest().files == more.files);
  world.forget_build();
  CHECK(world.refused().empty());
}

TEST_CASE("mirror: what is not sound in the cache is left out, and named") {
  Mirrored world;
  REQUIRE(world.refused().empty());
  const std::string build = world.builds()[0].directory;
  std::ofstream(world.directory / (build + "/nvidia.ko"), std::ios::app) << "x";
  std::ofstream(world.directory / (source_of(world.entry()) + "/Makefile"), std::ios::app) << "x";
  world.file("var/cache/p2pd/builds/none/build.json", "{}");
  fs::remove_all(world.directory / "srv/mirror");
  const auto nothing = world.make();
  REQUIRE_FALSE(nothing);
  CHECK(nothing.error().message == "/var/cache/p2pd has no sound build, source or runfile");
  CHECK_FALSE(fs::exists(world.served("manifest")));
  world.forget_build();
  world.with.erase("mirror");
  fs::remove_all(world.directory / "var/cache/p2pd/sources");
  world.pin();
  world.file(source_patch_of(world.entry()), "a patch\n");
  world.file("var/cache/p2pd/builds/none/build.json", "{}");
  const auto made = world.make();
  REQUIRE(made);
  REQUIRE(made->skipped.size() == 1);
  CHECK(made->skipped[0] ==
        "/var/cache/p2pd/builds/none: /var/cache/p2pd/builds/none/build.json is not the record of a build");
}

TEST_CASE("mirror: a directory of others, or a key that is none, is refused before anything is written") {
  Mirrored world;
  Host here(Root::open("/").value(), world.plain);
  const Host machine = world.host();
  const Catalogue all = catalogue(machine).value();
  const std::string there = world.directory / "srv/new";
  const auto bad = make_mirror(machine, all, here, {there, {"no.key", world.key.public_pem()}, std::chrono::days(1)});
  REQUIRE_FALSE(bad);
  CHECK(says(bad.error().message, "no.key holds no private Ed25519 key"));
  CHECK_FALSE(fs::exists(there));
  fs::create_directory(there);
  fs::permissions(there, fs::perms(0777));
  const auto open = make_mirror(machine, all, here, {there, {"a.key", world.key.pem()}, std::chrono::days(1)});
  REQUIRE_FALSE(open);
  CHECK(says(open.error().message, "is not a directory that you alone can write to"));
  CHECK(fs::is_empty(there));
}

TEST_CASE("config: the mirror is that of every fix that takes one, and of downloads that are pinned") {
  const auto error_of = [](const std::string& text) { return parse_config(text, "p2pd.yaml").error().message; };
  CHECK(error_of("mirror: https://m\n") == "p2pd.yaml:1: mirror: without trusted_keys nothing of it would be used");
  CHECK(says(error_of("mirror: ftp://m\ntrusted_keys: [/k]\n"), "no file:///, http:// or https:// URL"));
  CHECK(says(error_of("mirror: https://me:x@m\ntrusted_keys: [/k]\n"), "has a user name"));
  CHECK(says(error_of("mirror: https://m\ntrusted_keys: [k]\n"), "'k' is not an absolute path"));
  const Config config = parse_config("mirror: https://m/\ntrusted_keys: [/k]\n", "p2pd.yaml").value();
  const TemporaryDirectory directory;
  const auto step = [&](const std::string& name, const std::string& more = "") {
    directory.put("p.yaml",
                  fmt::format("name: p\ntitle: t\nsteps:\n  - gate: g\n    title: t\n    check: {}\n    fix: {}\n"
                              "    with: {{entry: chosen{}}}\n",
                              name, name, more));
    return load_plan(config, directory / "p.yaml", {probes(), actions()}).value().step("g")->with.dump();
  };
  CHECK(step("driver-build") == R"({"entry":"chosen","mirror":"https://m","trusted_keys":["/k"]})");
  CHECK(step("driver-source") == R"({"entry":"chosen","mirror":"https://m","trusted_keys":["/k"]})");
  CHECK(step("driver-runfile") == R"({"entry":"chosen","mirrors":["https://m"]})");
  CHECK(step("driver-runfile", ", mirrors: [https://own]") ==
        R"({"entry":"chosen","mirrors":["https://own","https://m"]})");
  CHECK(step("driver-build", ", mirror: https://own, trusted_keys: [/own]") ==
        R"({"entry":"chosen","mirror":"https://own","trusted_keys":["/own"]})");
  CHECK(step("driver-pins") == R"({"entry":"chosen"})");
}
