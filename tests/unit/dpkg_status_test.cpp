// SPDX-License-Identifier: MIT
#include "machine/packages/dpkg_status.hpp"

#include <fmt/format.h>

#include "catch.hpp"

using namespace p2pd;

TEST_CASE("dpkg status: packages with what dpkg says of them") {
  const auto packages = parse_dpkg_status(
      "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nConffiles:\n /etc/ld.so.conf 0\n"
      "Description: a\n Package: not one\n .\n\tStatus: neither\nVersion: 2.36-9\n\n\n"
      "package: nvidia-driver\nSTATUS: hold  reinstreq   half-installed\n");
  REQUIRE(packages);
  REQUIRE(packages->size() == 2);
  CHECK(packages->at(0).name == "libc6");
  CHECK(packages->at(0).version == "2.36-9");
  CHECK(packages->at(0).architecture == "amd64");
  CHECK(packages->at(0).installed());
  CHECK_FALSE(packages->at(0).interrupted());
  CHECK(packages->at(1).name == "nvidia-driver");
  CHECK(packages->at(1).held());
  CHECK(packages->at(1).flag == "reinstreq");
  CHECK(packages->at(1).interrupted());
}

TEST_CASE("dpkg status: each state") {
  for (const auto& [state, interrupted] : {std::pair{"installed", false},
                                           {"config-files", false},
                                           {"not-installed", false},
                                           {"unpacked", true},
                                           {"half-installed", true},
                                           {"half-configured", true},
                                           {"triggers-awaited", true},
                                           {"triggers-pending", true},
                                           {"new-word", true}}) {
    INFO(state);
    const auto packages = parse_dpkg_status(fmt::format("Package: a\nStatus: install ok {}\n", state));
    REQUIRE(packages);
    CHECK(packages->at(0).interrupted() == interrupted);
  }
}

TEST_CASE("dpkg status: what is broken or cut off is an error") {
  for (const char* text :
       {"Package: a\nStatus: install ok installed", "Package: a\n", "Package: a\nStatus: install ok\n",
        "Package: a\nStatus: install ok installed again\n", "Status: install ok installed\n", "Package: a\nnothing\n",
        "Package: a\nVersion: 1\n\nPackage: b\nStatus: install ok installed\n",
        "\x7f"
        "ELF\n"}) {
    INFO(text);
    const auto packages = parse_dpkg_status(text);
    REQUIRE_FALSE(packages);
    CHECK(packages.error().code == ErrorCode::invalid);
  }
  CHECK(parse_dpkg_status("").value().empty());
  CHECK(parse_dpkg_status("\n\n").value().empty());
}
