// SPDX-License-Identifier: MIT
#include "machine/modules/loaded_modules.hpp"

#include <random>

#include "catch.hpp"

using namespace p2pd;

TEST_CASE("loaded modules: references, users, and what is beyond them") {
  const auto modules = parse_loaded_modules(
      "nvidia_uvm 4956160 0 - Live 0xffffffffc1000000 (OE)\n"
      "nvidia_drm 131072 5 - Live 0x0000000000000000 (OE)\n"
      "nvidia_modeset 1724416 3 nvidia_drm, Live 0x0000000000000000 (OE)\n"
      "nvidia 11575296 2 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (OE)\n"
      "firm 4096 1 [permanent], Live 0x0\n"
      "stuck 4096 - - Live 0x0\n");
  REQUIRE(modules.size() == 6);
  CHECK(modules[0].other_references() == 0);
  CHECK(modules[1].other_references() == 5);
  CHECK(modules[2].other_references() == 2);
  CHECK(modules[3].users == std::vector<std::string>{"nvidia_uvm", "nvidia_modeset"});
  CHECK(modules[3].other_references() == 0);
  CHECK(modules[4].users.empty());
  CHECK(modules[4].other_references() == 1);
  CHECK_FALSE(modules[5].references);
  CHECK_FALSE(modules[5].other_references());
}

TEST_CASE("loaded modules: lines that are none are left out") {
  CHECK(parse_loaded_modules("").empty());
  CHECK(parse_loaded_modules(
            "nvidia 1 many - Live\nnvidia 1 -3 - Live\nnvidia 1 99999999999999999999 - Live\nnvidia 1\n\n")
            .empty());
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string noise(random() % 300, '\0');
    for (char& c : noise) c = "nv 0-,[]\n\xff"[random() % 10];
    for (const LoadedModule& module : parse_loaded_modules(noise)) CHECK(module.other_references().value_or(0) >= 0);
  }
}
