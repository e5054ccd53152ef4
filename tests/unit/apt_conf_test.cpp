// SPDX-License-Identifier: MIT
#include "machine/packages/apt_conf.hpp"

#include "catch.hpp"
#include "fake_runner.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;

TEST_CASE("apt.conf: names, blocks, lists and comments") {
  const auto options = parse_apt_conf(
      "APT::Periodic::Unattended-Upgrade \"1\"; // daily\n# \"no\";\n/* Unattended-Upgrade::X \"y\"; */\n"
      "Unattended-Upgrade { Package-Blacklist { \"nvidia\"; \"libnvidia-\"; }; Automatic-Reboot true; };\n"
      "Unattended-Upgrade::Package-Blacklist:: \"linux-\";\nEmpty;\n",
      "f");
  CHECK(apt_value(options, "apt::periodic::unattended-upgrade") == "1");
  CHECK(apt_list(options, "unattended-upgrade::package-blacklist") ==
        std::vector<std::string>{"nvidia", "libnvidia-", "linux-"});
  CHECK(apt_value(options, "unattended-upgrade::automatic-reboot") == "true");
  CHECK(apt_value(options, "unattended-upgrade::x").empty());
  CHECK(options.size() == 5);
  CHECK(options.front().source == "f");
}

TEST_CASE("apt.conf: a brace ends a statement as a semicolon does") {
  const auto options = parse_apt_conf("Z { L { \"x\" }; M \"1\" }; Z::N \"named\" { O \"2\"; };", "f");
  CHECK(options == std::vector<AptOption>{
                       {"z::l::", "x", "f"}, {"z::m", "1", "f"}, {"z::n", "named", "f"}, {"z::n::o", "2", "f"}});
}

TEST_CASE("apt.conf: a long name does not multiply") {
  std::string text = std::string(100'000, 'a') + "{";
  for (int i = 0; i < 100'000; ++i) text += "\"\";";
  CHECK(parse_apt_conf(text, "f").empty());
  CHECK(parse_apt_conf(std::string(400, 'a') + "{" + std::string(400, 'b') + " 1; c 2;", "f").empty());
  CHECK(parse_apt_conf(std::string(400, 'a') + " 1;", "f").size() == 1);
}

TEST_CASE("apt.conf: what is broken ends") {
  CHECK(parse_apt_conf("A \"x", "f").empty());
  CHECK(parse_apt_conf("}}};;;", "f").empty());
  CHECK(parse_apt_conf("/* never", "f").empty());
  CHECK(parse_apt_conf("", "f").empty());
  CHECK(parse_apt_conf(std::string(100000, '{'), "f").empty());
}

TEST_CASE("apt.conf: files in apt's order, others left out, lists cleared") {
  const test::TemporaryDirectory directory;
  test::FakeRunner runner;
  const Host host(Root::open(directory.path()).value(), runner);
  CHECK(apt_options(host).value().empty());
  fs::create_directories(directory / "etc/apt/apt.conf.d");
  const auto put = [&](const std::string& name, std::string_view text) { directory.put("etc/apt/" + name, text); };
  put("apt.conf.d/20auto-upgrades", "A::B \"1\"; L { \"x\"; \"y\"; };");
  put("apt.conf.d/50site.conf", "a::b \"2\";");
  put("apt.conf.d/60old.bak", "A::B \"3\";");
  put("apt.conf.d/70edit~", "A::B \"4\";");
  CHECK(apt_value(apt_options(host).value(), "a::b") == "2");
  CHECK(apt_list(apt_options(host).value(), "l").size() == 2);
  put("apt.conf", "#clear L; L { \"z\"; }; A::B \"5\";");
  CHECK(apt_value(apt_options(host).value(), "a::b") == "5");
  CHECK(apt_list(apt_options(host).value(), "l") == std::vector<std::string>{"z"});
}
