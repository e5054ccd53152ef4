// SPDX-License-Identifier: MIT
#include "machine/modules/modprobe_d.hpp"

#include "catch.hpp"
#include "made_tree.hpp"

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

using Lines = std::vector<std::string>;

/// "module name=value line" of every option.
Lines parsed(const std::string& text) {
  Lines out;
  const auto options = parse_modprobe_d(text, "f").value();
  for (const ModuleOption& option : options)
    out.push_back(option.module + " " + option.name + "=" + option.value + " " + std::to_string(option.line));
  return out;
}

bool valid(const Parameters& parameters) { return validate_module_options(parameters).has_value(); }

struct Machine : test::MadeTree {
  /// "source value" of every option of the name.
  Lines values(const std::string& name) const {
    Lines out;
    const auto options = module_options(host).value();
    for (const ModuleOption& option : options)
      if (option.name == name) out.push_back(option.source() + " " + option.value);
    return out;
  }
};

}  // namespace

TEST_CASE("options lines are read as libkmod reads them", "[modprobe_d]") {
  CHECK(parsed("") == Lines{});
  CHECK(parsed("# options a b=1\nblacklist nouveau\nalias a b\ninstall a /bin/true\noptions\noptions a\n") == Lines{});
  CHECK(parsed("options nvidia-drm modeset=1\toptions=2\n") ==
        Lines{"nvidia_drm modeset=1 1", "nvidia_drm options=2 1"});
  CHECK(parsed("\n  options\ta x-y=1") == Lines{"a x_y=1 2"});
  CHECK(parsed("options a b=1 \\\n  c=2\noptions a d=3") == Lines{"a b=1 1", "a c=2 1", "a d=3 3"});
  CHECK_FALSE(parse_modprobe_d("options a b=\\\"x\n", "f"));  // removes the backslash, the quotation mark opens
  CHECK(parsed("options a b=c\\d\n") == Lines{"a b=cd 1"});   // any other backslash is removed
  CHECK(parsed("options a b=\"c d;e=1\" f\n") == Lines{"a b=c d;e=1 1", "a f= 1"});
  CHECK(parsed("options a \"b=c d\"\n") == Lines{"a b=c d 1"});
  CHECK(parsed("options a b=1 # c=2\n") == Lines{"a b=1 1", "a #= 1", "a c=2 1"});  // no comments inside a line
  CHECK(parsed("options a b='c d'\n") == Lines{"a b='c 1", "a d'= 1"});             // single quotes mean nothing
  const auto open = parse_modprobe_d("#\noptions nvidia NVreg_RegistryDwords=\"a=1\n", "/etc/modprobe.d/x.conf");
  REQUIRE_FALSE(open);
  CHECK(open.error().message.starts_with("/etc/modprobe.d/x.conf:2: a quotation mark"));
}

TEST_CASE("files come in modprobe's order", "[modprobe_d]") {
  const Machine machine;
  machine.put("etc/modprobe.d/b.conf", "options a x=etc-b\n");
  machine.put("usr/lib/modprobe.d/a.conf", "options a x=lib-a\n");
  machine.put("run/modprobe.d/c.conf", "options a x=run-c\n");
  machine.put("lib/modprobe.d/b.conf", "options a x=hidden by etc\n");
  machine.put("usr/local/lib/modprobe.d/c.conf", "options a x=hidden by run\n");
  machine.put("etc/modprobe.d/d.conf.bak", "options a x=no\n");
  machine.put("etc/modprobe.d/.e.conf", "options a x=no\n");
  machine.put("lib/modprobe.d/masked.conf", "options a x=no\n");
  fs::create_symlink("/dev/null", machine.directory / "etc/modprobe.d/masked.conf");
  fs::create_directories(machine.directory / "etc/modprobe.d/dir.conf");
  machine.put("proc/cmdline", "quiet a.x=boot b.x=no a.b.c\n");
  CHECK(machine.values("x") == Lines{"/usr/lib/modprobe.d/a.conf:1 lib-a", "/etc/modprobe.d/b.conf:1 etc-b",
                                     "/run/modprobe.d/c.conf:1 run-c", "/proc/cmdline boot", "/proc/cmdline no"});
  const auto replaced = module_options(machine.host, "options a x=new\n").value();
  CHECK(replaced.at(3).source() == "/etc/modprobe.d/zz-p2pd.conf:1");
}

TEST_CASE("registry keys are split and put together", "[modprobe_d]") {
  CHECK(parse_dwords(kRegistryDwords, "").empty());
  CHECK(parse_dwords(kRegistryDwords, "a=1; b=0x2 ;;c") == Dwords{{"a", "1"}, {"b", "0x2"}, {"c", ""}});
  CHECK(parse_dwords(kRegistryDwords, "\"PeerMappingOverride=1;\"") == Dwords{{"PeerMappingOverride", "1"}});
  CHECK(dwords_text(kRegistryDwords, parse_dwords(kRegistryDwords, "a=1;b=2;a=3;")) == "a=3;b=2");
  const Dwords of_gpus = parse_dwords(kDeviceDwords, "a=0;pci=0000:01:00.0;a=1;=2;pci=0000:02:00.0;a=3;b;a=4");
  CHECK(of_gpus == Dwords{{"0000:01:00.0/a", "1"}, {"0000:02:00.0/a", "4"}, {"0000:02:00.0/b", ""}});
  CHECK(dwords_text(kDeviceDwords, of_gpus) == "pci=0000:01:00.0;a=1;pci=0000:02:00.0;a=4;b=");
}

TEST_CASE("values are compared as the kernel means them", "[modprobe_d]") {
  CHECK(same_value("1", "0x1"));
  CHECK(same_value("Y", "1"));
  CHECK(same_value("N", "0"));
  CHECK(same_value("on", "on"));
  CHECK(same_value("0660", "432"));
  CHECK(same_value("-1", "4294967295"));
  CHECK(same_value("y", "Y"));
  CHECK(same_value("off", "N"));
  CHECK_FALSE(same_value("2", "Y"));
  CHECK_FALSE(same_value("08", "8"));
  CHECK_FALSE(same_value("4294967296", "0"));
  CHECK_FALSE(same_value("on", "1"));
  CHECK_FALSE(same_value("", "0"));
  CHECK_FALSE(same_value("0x", "0"));
  CHECK_FALSE(same_value("1x", "1"));
}

TEST_CASE("what cannot go into an options line is refused", "[modprobe_d]") {
  const auto options = [](nlohmann::json value) {
    return Parameters{{"module", "nvidia"}, {"options", std::move(value)}};
  };
  CHECK(valid(options({{"NVreg_EnableResizableBar", 1}, {"x-y", "a b,c;d=#"}, {"n", -1}, {"empty", ""}})));
  for (const char* value : {"a\"b", "a\nb", "a\\b", "\xc3\xa4", "\x7f"}) CHECK_FALSE(valid(options({{"x", value}})));
  CHECK_FALSE(valid(options({{"x", 1.5}})));
  CHECK_FALSE(valid(options({{"x", true}})));
  for (const char* name : {"", "a b", "a=b", "a.b", "NVreg_RegistryDwords"}) CHECK_FALSE(valid(options({{name, 1}})));
  CHECK_FALSE(valid(options(nlohmann::json::object())));
  CHECK_FALSE(valid({{"module", ""}, {"options", {{"x", 1}}}}));
  CHECK_FALSE(valid({{"module", "a b"}, {"options", {{"x", 1}}}}));
  const auto dwords = [](const char* module, nlohmann::json value) {
    return Parameters{{"module", module}, {"options", nlohmann::json::object()}, {"registry_dwords", std::move(value)}};
  };
  CHECK(valid(dwords("nvidia", {{"ForceP2P", 0x11}, {"Max", 4294967295U}, {"Zero", 0}})));
  for (const nlohmann::json& value :
       {nlohmann::json(4294967296), nlohmann::json(-1), nlohmann::json("1"), nlohmann::json(1.0)})
    CHECK_FALSE(valid(dwords("nvidia", {{"a", value}})));
  CHECK_FALSE(valid(dwords("nvidia", {{"a;b", 1}})));
  CHECK_FALSE(valid(dwords("nvidia_uvm", {{"a", 1}})));
}
