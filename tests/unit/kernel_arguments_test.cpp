// SPDX-License-Identifier: MIT
#include "machine/boot/kernel_arguments.hpp"

#include "catch.hpp"

using namespace p2pd;

namespace {

bool in_force(const std::string& wanted, const std::string& line) {
  return argument_state(kernel_argument(wanted), parse_kernel_line(line)).in_force;
}

bool valid(const std::string& argument) { return validate_kernel_arguments({{"arguments", {argument}}}).has_value(); }

}  // namespace

TEST_CASE("a kernel line is split as the kernel splits it", "[kernel_arguments]") {
  using List = std::vector<KernelArgument>;
  CHECK(parse_kernel_line("").empty());
  CHECK(parse_kernel_line("  \t\n").empty());
  CHECK(parse_kernel_line("a b=c  d=e=f") == List{{"a", {}}, {"b", "c"}, {"d", "e=f"}});
  CHECK(parse_kernel_line("a=\"b c\" d") == List{{"a", "b c"}, {"d", {}}});
  CHECK(parse_kernel_line("\"a=b c\" d") == List{{"a", "b c"}, {"d", {}}});
  CHECK(parse_kernel_line("dyndbg=\"file a.c +p; file b.c +p\"") == List{{"dyndbg", "file a.c +p; file b.c +p"}});
  CHECK(parse_kernel_line("a=\"never closed x") == List{{"a", "never closed x"}});
  CHECK(parse_kernel_line("a= b=\"\" \"\" =c") == List{{"a", ""}, {"b", ""}, {"", {}}, {"=c", {}}});
  CHECK(parse_kernel_line("quiet -- iommu=pt") == List{{"quiet", {}}});
  CHECK(parse_kernel_line("quiet --- iommu=pt").size() == 3);
}

TEST_CASE("whether an argument is in force is decided by its key", "[kernel_arguments]") {
  CHECK(in_force("quiet", "ro quiet"));
  CHECK_FALSE(in_force("quiet", "ro quiet=1"));
  CHECK(in_force("nvidia-drm.modeset=1", "nvidia_drm.modeset=1"));
  CHECK_FALSE(in_force("nvidia-drm.modeset=1", "nvidia_drm.modeset=1 nvidia-drm.modeset=0"));
  SECTION("iommu: the last one has it") {
    CHECK(in_force("iommu=pt", "iommu=pt"));
    CHECK(in_force("iommu=pt", "iommu=1 amd_iommu=on iommu=pt"));
    CHECK(in_force("iommu=pt", "iommu=memaper=3,pt"));
    CHECK_FALSE(in_force("iommu=pt", "iommu=pt iommu=off"));
    CHECK_FALSE(in_force("iommu=pt", "iommu=ptx"));
    CHECK_FALSE(in_force("iommu=pt", "iommu"));
    CHECK(in_force("intel_iommu=on", "intel_iommu=on,sm_on"));
    CHECK_FALSE(in_force("intel_iommu=off", "intel_iommu=on"));
  }
  SECTION("pci: occurrences add up, of one option the last counts") {
    const std::string acs = "pci=disable_acs_redir=0000:00:01.0;0000:00:02.0";
    CHECK(in_force(acs, "pci=noats " + acs + " pci=nommconf,realloc"));
    CHECK(in_force(acs, "pci=realloc,disable_acs_redir=0000:00:01.0;0000:00:02.0"));
    CHECK_FALSE(in_force(acs, acs + " pci=disable_acs_redir=0000:00:01.0"));
    CHECK(in_force("pci=noats,realloc", "pci=realloc pci=noats"));
    CHECK_FALSE(in_force("pci=noats,realloc", "pci=realloc"));
  }
  SECTION("console: any") {
    CHECK(in_force("console=tty0", "console=tty0 console=ttyS0"));
    CHECK_FALSE(in_force("console=tty1", "console=tty0 console=ttyS0"));
  }
  const ArgumentState state = argument_state(kernel_argument("iommu=pt"), parse_kernel_line("iommu=on iommu=off"));
  CHECK(state.running == "iommu=off");
  CHECK(argument_state(kernel_argument("iommu=pt"), {}).running.empty());
}

TEST_CASE("arguments that sh or GRUB would take apart are refused", "[kernel_arguments]") {
  for (const char* good :
       {"iommu=pt", "nomodeset", "pci=disable_acs_redir=0000:00:01.0;0000:00:02.0", "a={b}|c&<d>*?#"})
    CHECK(valid(good));
  for (const char* bad : {"", " ", "a b", "a\tb", "a\nb", "a\x7f", "\xc3\xa4=1", "a\"b", "a'b", "a\\b", "a$b", "a`b",
                          "--", "=a", "p2pd.trial=1", "p2pd.x"})
    CHECK_FALSE(valid(bad));
  CHECK_FALSE(validate_kernel_arguments(Parameters::object()));
  CHECK_FALSE(validate_kernel_arguments({{"arguments", nlohmann::json::array()}}));
  CHECK(validate_kernel_arguments({{"arguments", {"console=tty0", "console=ttyS0"}}}));
}

TEST_CASE("merging keeps both lists, the second wins", "[kernel_arguments]") {
  using List = std::vector<std::string>;
  CHECK(merged_arguments({}, {"a", "b", "a"}) == List{"a", "b"});
  CHECK(merged_arguments({"iommu=pt"}, {"pci=noats"}) == List{"iommu=pt", "pci=noats"});
  CHECK(merged_arguments({"iommu=pt", "pci=noats"}, {"iommu=off"}) == List{"pci=noats", "iommu=off"});
  CHECK(merged_arguments({"console=tty0"}, {"console=tty1"}) == List{"console=tty0", "console=tty1"});
  const List once = merged_arguments({"iommu=pt"}, {"pci=noats", "quiet"});
  CHECK(merged_arguments(once, {"pci=noats", "quiet"}) == once);
}
