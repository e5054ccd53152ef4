// SPDX-License-Identifier: MIT
// Shell files of assignments, evaluated without running them: the values equal those of a real sh.
#include "machine/boot/grub_defaults.hpp"

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "catch.hpp"
#include "fake_runner.hpp"
#include "machine/boot/grub.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

constexpr const char* kNames[] = {"GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"};

std::string shell(const std::string& command) {
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  return ::pclose(pipe) == 0 ? text : "sh fails";
}

/// Both variables as evaluated, or the error.
std::string followed(const std::string& text) {
  ShellVariables variables{{kNames[0], ""}, {kNames[1], ""}};
  std::set<std::string> read_only;
  const auto read = read_shell_assignments(text, variables, read_only);
  if (!read) return read.error().message;
  std::string out;
  for (const char* name : kNames) {
    if (!variables[name]) return "known by running it";
    out += "<" + *variables[name] + ">";
  }
  return out;
}

std::string sourced(const fs::path& file) {
  return shell(
      "env -i sh -c '. \"$0\" 2>/dev/null; printf \"<%s>\" \"$GRUB_CMDLINE_LINUX\" \"$GRUB_CMDLINE_LINUX_DEFAULT\"' " +
      file.string());
}

/// Runs sh with the files below `root` in place of the host's.
class InTree : public CommandRunner {
 public:
  explicit InTree(std::string root) : root_(std::move(root)) {}
  Result<CommandResult> run(const Command& command) override {
    ++runs;
    Command real = command;
    for (std::string& word : real.argv)
      if (word.starts_with("/etc/")) word = root_ + word;
    for (auto& [name, value] : real.environment)
      if (value.starts_with("/etc/")) value = root_ + value;
    return inner_.run(real);
  }
  int stop_fd() const override { return -1; }
  int runs = 0;

 private:
  std::string root_;
  ProcessRunner inner_;
};

}  // namespace

TEST_CASE("assignments of a shell file are followed as sh takes them") {
  const test::TemporaryDirectory directory;
  std::vector<std::string> texts{
      "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash\"\n",
      "GRUB_CMDLINE_LINUX_DEFAULT='a \"b\" $c'\\''d'\"\\\"e\\$f\\g\"h\\ i\n",
      "A=1; B=2 GRUB_CMDLINE_LINUX=x # comment\n# GRUB_CMDLINE_LINUX=y\n",
      "GRUB_CMDLINE_LINUX=a#b\nexport GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX ${GRUB_CMDLINE_LINUX}c\" X\n",
      "GRUB_CMDLINE_LINUX_DEFAULT=\"${GRUB_CMDLINE_LINUX_DEFAULT:+$GRUB_CMDLINE_LINUX_DEFAULT }\"'x y'\n",
      "GRUB_CMDLINE_LINUX_DEFAULT=a\nGRUB_CMDLINE_LINUX_DEFAULT=\"${GRUB_CMDLINE_LINUX_DEFAULT:-z}${GRUB_CMDLINE_LINUX:"
      "-z}${GRUB_CMDLINE_LINUX:+z}\"\n",
      "GRUB_CMDLINE_LINUX=\"a \\\n b\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"c\nd\"\nGRUB_X=`echo ';' y`\nGRUB_Y=\"$(sed 's, "
      "(x.*$,,g' /etc/none)\"\n",
      "GRUB_CMDLINE_LINUX=a\\\nb\n  GRUB_CMDLINE_LINUX_DEFAULT=\n",
      "GRUB_DISTRIBUTOR=`lsb_release -i -s 2> /dev/null || echo Debian`\nGRUB_TIMEOUT=$(echo 5)\nreadonly "
      "GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX=z",
      ""};
  for (const std::string& text : texts) {
    CAPTURE(text);
    directory.put("file", text);
    const std::string is = sourced(directory / "file");
    CHECK(followed(text) == is);
  }
}

TEST_CASE("what only a shell can tell is not followed") {
  for (const char* text :
       {"x=1\n. /etc/other\n", "x=1\nif true; then y=2; fi\n", "x=1\nset -e\n", "x=1\nf() { :; }\n", "x=1\ny=~/z\n",
        "x=1\ny='open\n", "x=1\nGRUB_CMDLINE_LINUX=a & \n", "x=1\nx\n", "x=1\ny=\"${z#a}\"\n", "x=1\ny+=2\n"})
    CHECK(followed(text) == "it cannot be evaluated without running it");
  CHECK(followed("GRUB_CMDLINE_LINUX=`id`\n") == "known by running it");
  CHECK(followed("GRUB_CMDLINE_LINUX=\"$HOME\"\n") == "known by running it");
  CHECK(followed("readonly A=1\nA=2\n") == "A is read-only");
}

TEST_CASE("defaults of the field: where they are followed, sh says the same") {
  const char* corpus = std::getenv("P2PD_CORPUS");
  if (corpus == nullptr) {
    std::cout << "grub_defaults_test: P2PD_CORPUS is not set, no files from the field\n";
    return;
  }
  int same = 0, all = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(corpus) / "grub")) {
    if (entry.path().extension() != ".txt") continue;
    std::ifstream file(entry.path());
    const std::string text(std::istreambuf_iterator<char>(file), {}), is = followed(text);
    ++all;
    if (!is.starts_with('<')) {
      std::cout << "grub_defaults_test: " << entry.path().filename() << ": " << is << '\n';
      continue;
    }
    CAPTURE(entry.path().string());
    CHECK(is == sourced(entry.path()));
    ++same;
  }
  std::cout << "grub_defaults_test: " << same << " of " << all << " files were followed\n";
  CHECK(same * 10 >= all * 9);
}

TEST_CASE("a fix has sh source what cannot be followed, and names the line that is in the way") {
  const std::vector<std::string> arguments{"iommu=pt", "pci=disable_acs_redir=0000:00:01.0;0000:00:02.0"};
  const std::string run = "if :; then GRUB_CMDLINE_LINUX=a; fi\necho noise\n";
  struct Row {
    std::string file, text, says;
  };
  for (const Row& row : {Row{"grub", run + "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n", ""},
                         Row{"grub", run + "readonly GRUB_CMDLINE_LINUX_DEFAULT=quiet\n",
                             "/etc/default/grub:3 makes GRUB_CMDLINE_LINUX_DEFAULT read-only"},
                         Row{"grub", run + "GRUB_CMDLINE_LINUX_DEFAULT=\"a -- b\"\n",
                             "/etc/default/grub:3: GRUB_CMDLINE_LINUX_DEFAULT holds \"--\""},
                         Row{"grub.d/zzz.cfg", run + "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n",
                             "/etc/default/grub.d/zzz.cfg:3 sets GRUB_CMDLINE_LINUX_DEFAULT again"},
                         Row{"grub", run + "false\n", "/etc/default/grub: sh ends there"},
                         Row{"grub", run + "case x in\n", "/etc/default/grub: sh ends there"}}) {
    CAPTURE(row.text);
    const test::TemporaryDirectory directory;
    directory.put("etc/default/" + row.file, row.text);
    InTree runner(directory.path().string());
    Host host(Root::open(directory.path()).value(), runner);
    CHECK(grub_defaults_keep(host, arguments).value() == false);
    CHECK(runner.runs == 0);  // a check runs nothing
    const auto fits = require_grub_defaults(host, arguments);
    CHECK(runner.runs == 1);
    CHECK(fits.has_value() == row.says.empty());
    if (!fits) CHECK(fits.error().message.starts_with(row.says));
    if (!fits) INFO(fits.error().message);
  }
}
