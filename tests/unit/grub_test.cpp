// SPDX-License-Identifier: MIT
#include "machine/boot/grub.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>

#include "catch.hpp"
#include "grub_machine.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using test::kDebianGrub;
using test::with;

namespace {

using Arguments = std::vector<std::string>;
const Arguments kAcs{"iommu=pt", "pci=disable_acs_redir=0000:00:01.0;0000:00:02.0"};

/// Title of the default entry of `config`; "error: ..." if it has none.
std::string booted(const std::string& config, const std::map<std::string, std::string>& environment = {}) {
  const auto menu = parse_grub(config);
  if (!menu) return "error: " + menu.error().message;
  const auto entry = default_grub_entry(*menu, environment);
  return entry ? (*entry)->title : "error: " + entry.error().message;
}

std::string with_default(const std::string& value) {
  return with(kDebianGrub, "set default=\"0\"", "set default=\"" + value + "\"");
}

/// Standard output of a shell script, which must succeed.
std::string shell(const std::string& script) {
  FILE* pipe = ::popen(("exec 2>&1\n" + script).c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string out;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  if (::pclose(pipe) != 0) out = "failed: " + out;
  return out;
}

void check_by_grub(const std::string& config) {
  if (std::system("command -v grub-script-check >/dev/null") != 0) {
    WARN("grub-script-check is not installed: GRUB's own word on this was not asked");
    return;
  }
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "grub.cfg") << config;
  CHECK(shell("grub-script-check " + (directory / "grub.cfg").string()).empty());
}

}  // namespace

TEST_CASE("the menu of a stock Debian 12 is read", "[grub]") {
  const GrubMenu menu = parse_grub(kDebianGrub).value();
  REQUIRE(menu.entries.size() == 3);
  CHECK(menu.default_entry == "0");
  CHECK(menu.one_time);
  CHECK(menu.reads_custom);
  const GrubEntry& first = menu.entries[0];
  CHECK(first.title == "Debian GNU/Linux");
  CHECK(first.id == "gnulinux-simple-2503");
  CHECK(first.options == " --class debian --class gnu-linux --class gnu --class os");
  REQUIRE(first.loads.size() == 2);
  CHECK(first.loads[0].kernel);
  CHECK(first.loads[0].words.front() == "/boot/vmlinuz-6.1.0-50-amd64");
  CHECK(first.loads[1].words == Arguments{"/boot/initrd.img-6.1.0-50-amd64"});
  CHECK(menu.entries[1].submenu);
  CHECK(menu.entries[1].children.size() == 3);
  CHECK(menu.entries[2].conditional);
  CHECK_FALSE(menu.entries[0].conditional);
  CHECK(grub_entry_has(first, {"quiet", "console=ttyS0,115200"}));
  CHECK_FALSE(grub_entry_has(first, {"iommu=pt"}));
}

TEST_CASE("the default entry is found by GRUB's rules", "[grub]") {
  const std::string plain = "Debian GNU/Linux", newest = "Debian GNU/Linux, with Linux 6.1.0-50-amd64",
                    older = "Debian GNU/Linux, with Linux 6.1.0-49-amd64", recovery = newest + " (recovery mode)";
  CHECK(booted(kDebianGrub) == plain);
  CHECK(booted(with_default("")) == plain);
  CHECK(booted(with_default("1>2")) == older);
  CHECK(booted(with_default("1")) == newest);
  CHECK(booted(with_default("1>7")) == newest);
  CHECK(booted(with_default("9")) == plain);
  CHECK(booted(with_default("gone")) == plain);
  CHECK(booted(with_default("gnulinux-advanced-2503>gnulinux-6.1.0-49-amd64-advanced-2503")) == older);
  CHECK(booted(with_default("Advanced options for Debian GNU/Linux>" + recovery)) == recovery);
  CHECK(booted(with_default("Advanced options for Debian GNU/Linux>1")) == recovery);
  CHECK(booted(with_default("gnulinux-advanced-2503>gone")) == newest);
  CHECK(booted(with_default("uefi-firmware")) == "UEFI Firmware Settings");
  CHECK(booted(with_default("2")).starts_with("error: "));  // UEFI only; then it is the first entry
  CHECK(booted(with_default("$mine")).starts_with("error: "));
  const std::string saved = with_default("${saved_entry}");
  CHECK(booted(saved) == plain);
  CHECK(booted(saved, {{"saved_entry", "1>2"}}) == older);
  CHECK(booted(saved, {{"saved_entry", "gnulinux-advanced-2503>gnulinux-6.1.0-49-amd64-advanced-2503"}}) == older);
  CHECK(booted("menuentry 'a>b' { linux /k\n}\nmenuentry c { linux /k\n}\nset default='a>>b'") == "a>b");
  CHECK(booted("set default=0\n").starts_with("error: "));
}

TEST_CASE("what overrides grub-reboot is seen", "[grub]") {
  CHECK_FALSE(parse_grub(kDebianGrub + "set default=2\n").value().one_time);
  CHECK(parse_grub(kDebianGrub + "set default=2\n").value().default_entry == "2");
  CHECK_FALSE(parse_grub("set default=\"0\"\n").value().one_time);
  const GrubMenu custom = parse_grub("default=1\n", parse_grub(kDebianGrub).value()).value();
  CHECK_FALSE(custom.one_time);
  CHECK(custom.default_entry == "1");
  // the dead correction of GRUB 1 titles in 10_linux
  CHECK(parse_grub(kDebianGrub + "if [ \"x$default\" = 'Old' ]; then default='New'; fi;\n").value().default_entry ==
        "0");
}

TEST_CASE("odd grub.cfg text is read or named", "[grub]") {
  CHECK(parse_grub("").value().entries.empty());
  CHECK(booted("menuentry \"it's \\\"x\\\"\" --unrestricted --id=me {\n linux /k # no\n}") == "it's \"x\"");
  CHECK(booted("menuentry a\\ b {\n linux /k \\\n quiet; }") == "a b");
  const GrubMenu menu =
      parse_grub("if true; then menuentry x { linux ($root)/k ${a} 'b c' }; fi; menuentry y {\n}").value();
  REQUIRE(menu.entries.size() == 2);
  CHECK(menu.entries[0].conditional);
  CHECK_FALSE(menu.entries[1].conditional);
  CHECK(menu.entries[0].loads.at(0).words == Arguments{"($root)/k", "${a}", "b c"});
  for (const char* bad : {"menuentry a {\n", "}", "a 'b", "\n\nb \"c", "submenu a { menuentry b { }"})
    CHECK_FALSE(parse_grub(bad));
  CHECK(parse_grub("a\nb\nc 'd").error().message == "line 3: a quotation mark that is not closed");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "submenu a {\n";
  CHECK_FALSE(parse_grub(deep));
  // a truncated file does not hang the parser
  for (std::size_t size = 0; size < kDebianGrub.size(); size += 7)
    CHECK_NOTHROW(parse_grub(kDebianGrub.substr(0, size)).has_value());
}

TEST_CASE("grubenv is read", "[grub]") {
  const auto environment =
      parse_grub_environment("# GRUB Environment Block\nsaved_entry=a\\\\b=c\nnext_entry=\n########");
  CHECK(environment == std::map<std::string, std::string>{{"saved_entry", "a\\b=c"}, {"next_entry", ""}});
  CHECK(parse_grub_environment("").empty());
}

TEST_CASE("a trial entry is the entry and our arguments", "[grub]") {
  const GrubMenu menu = parse_grub(kDebianGrub).value();
  const std::string block = grub_trial(**default_grub_entry(menu, {}), kAcs);
  const GrubMenu trial = parse_grub(block).value();
  REQUIRE(trial.entries.size() == 1);
  CHECK(trial.entries[0].title == "p2pd trial: Debian GNU/Linux");
  CHECK(trial.entries[0].id == "p2pd-trial");
  CHECK(trial.entries[0].options == menu.entries[0].options);
  CHECK(grub_entry_has(trial.entries[0], kAcs));
  CHECK(grub_entry_has(trial.entries[0], {"p2pd.trial=1", "panic=30", "quiet"}));
  CHECK(block.find("0000:00:01.0\\;0000:00:02.0") != std::string::npos);
  CHECK(noted_arguments(block) == kAcs);
  check_by_grub(kDebianGrub + block);
  SECTION("GRUB reboots into the default entry if the kernel or the initrd cannot be loaded") {
    const std::string checked = "\n\tif [ \"$?\" != 0 ]; then reboot; fi\n";
    CHECK(block.find("0000:00:02.0 p2pd.trial=1 panic=30" + checked) != std::string::npos);
    CHECK(block.find("initrd\t/boot/initrd.img-6.1.0-50-amd64" + checked) != std::string::npos);
  }
  SECTION("every linux line gets them, and titles are quoted") {
    const GrubMenu two =
        parse_grub("menuentry \"it's\" { if a; then\nlinuxefi /k a\nelse linux /k b # c\nfi\n initrd /i }").value();
    const std::string text = grub_trial(two.entries[0], {"iommu=pt"});
    CHECK(text.find("linuxefi /k a iommu=pt p2pd.trial=1 panic=30\n\tif ") != std::string::npos);
    CHECK(text.find("linux /k b iommu=pt p2pd.trial=1 panic=30\n\tif [ \"$?\" != 0 ]; then reboot; fi # c\n") !=
          std::string::npos);
    CHECK(parse_grub(text).value().entries.at(0).title == "p2pd trial: it's");
    check_by_grub(text);
  }
  SECTION("what a line has already is not said again: a power cut in the middle of a commit") {
    const GrubEntry half =
        parse_grub("menuentry a {\n linux /k ro iommu=pt\n linux /k ro iommu=pt iommu=off\n}").value().entries.at(0);
    const std::string text = grub_trial(half, {"iommu=pt"});
    CHECK(text.find("linux /k ro iommu=pt p2pd.trial=1") != std::string::npos);
    CHECK(text.find("linux /k ro iommu=pt iommu=off iommu=pt p2pd.trial=1") != std::string::npos);
    CHECK(noted_arguments(text) == Arguments{"iommu=pt"});
  }
  SECTION("custom.cfg is split again") {
    const GrubCustom custom = split_grub_custom("# mine\n" + block + "# also mine\n").value();
    CHECK(custom.user == "# mine\n# also mine\n");
    CHECK(custom.trial == block);
    CHECK(split_grub_custom("# mine").value().user == "# mine");
    CHECK_FALSE(split_grub_custom(block.substr(0, block.size() - 5)));
  }
}

TEST_CASE("every character that validate lets through survives sh and GRUB", "[grub]") {
  std::string argument = "x=";
  for (char c = '!'; c <= '~'; ++c)
    if (std::string_view("\"'\\$`").find(c) == std::string_view::npos) argument += c;
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "drop-in") << grub_drop_in({argument, "#a"});
  const std::string line =
      shell(". " + (directory / "drop-in").string() + "; printf %s \"$GRUB_CMDLINE_LINUX_DEFAULT\"");
  const std::string config = "menuentry a {\n linux /k ro " + line + "\n}\n";
  CHECK(grub_entry_has(parse_grub(config).value().entries.at(0), {argument, "#a"}));
  CHECK(noted_arguments(grub_drop_in({argument, "#a"})) == Arguments{argument, "#a"});
  check_by_grub(config);
}

TEST_CASE("the drop-in appends to whatever the files before it say", "[grub]") {
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "zz-p2pd.cfg") << grub_drop_in(kAcs);
  std::vector<fs::path> files;
  const std::vector<std::string> builtin{"",
                                         "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash\"\n",
                                         "GRUB_CMDLINE_LINUX_DEFAULT=''",
                                         "GRUB_CMDLINE_LINUX_DEFAULT=quiet",
                                         "GRUB_CMDLINE_LINUX_DEFAULT='a  b'\nGRUB_X=`echo y`\n",
                                         "set -eu\nGRUB_CMDLINE_LINUX=\"iommu=on\"\n"};
  for (std::size_t i = 0; i < builtin.size(); ++i) {
    files.push_back(directory / ("builtin" + std::to_string(i)));
    std::ofstream(files.back()) << builtin[i];
  }
  if (const char* corpus = std::getenv("P2PD_CORPUS"))
    for (const auto& entry : fs::directory_iterator(fs::path(corpus) / "grub"))
      if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::size_t sourced = 0;
  for (const fs::path& file : files) {
    CAPTURE(file.string());
    const std::string print = "; printf '<%s>' \"${GRUB_CMDLINE_LINUX_DEFAULT-}\"";
    // a file that calls missing programs (source, lsb_release) still has a result; one that sh cannot read has none
    const std::string read =
        "cd " + directory.path().string() + "; source() { :; }; . " + file.string() + " 2>/dev/null";
    if (shell("sh -n " + file.string()).starts_with("failed")) {
      std::cout << "grub_test: sh itself cannot read " << file.filename() << '\n';
      continue;
    }
    const std::string before = shell(read + print);
    const std::string after = shell(read + "; . " + (directory / "zz-p2pd.cfg").string() + print);
    const std::string old = before.substr(1, before.size() - 2);
    CHECK(after ==
          "<" + old + (old.empty() ? "" : " ") + "iommu=pt pci=disable_acs_redir=0000:00:01.0\\;0000:00:02.0>");
    CHECK(shell(read + print) == before);
    ++sourced;
  }
  std::cout << "grub_test: the drop-in was sourced after " << sourced << " of " << files.size() << " files\n";
  CHECK(sourced + 1 >= files.size());
}
