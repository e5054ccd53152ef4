// SPDX-License-Identifier: MIT
// The catalogue of a machine, with its drop-ins, and the build that the check takes from it.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/probe.hpp"
#include "base/recorded.hpp"
#include "catalogue_tables.hpp"
#include "catch.hpp"
#include "fake_runner.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/machine.hpp"
#include "machine/driver/solver.hpp"
#include "machines.hpp"
#include "temporary.hpp"

namespace p2pd {
extern const Probe kDriverCatalogue;
}

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

constexpr char kAsk[] = "nvidia-smi -q";

/// Two RTX 4090 with 32 GiB of BAR1 on Debian 12, unless a test says otherwise.
struct Tree {
  Tree() {
    card(1);
    card(2);
    file("etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n");
    file("proc/sys/kernel/osrelease", "6.1.0-37-amd64\n");
    file("proc/version",
         "Linux version 6.1.0-37-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0, GNU "
         "ld "
         "(GNU Binutils for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1 (2025-05-22)\n");
    kernel("6.1.0-37-amd64", "int pci_resize_resource(struct pci_dev *dev, int i, int size);\n");
  }
  void card(int bus) {
    lspci += fmt::format("0000:{:02x}:00.0 VGA\n00: de 10 84 26 00 00 00 00 a1 00 00 03 00 00 00 00\n", bus);
    for (int at = 0x10; at < 0x100; at += 0x10) lspci += fmt::format("{:02x}:{}\n", at, zeros());
    lspci += '\n';
    resource(bus, 0x7ffffffff);
  }
  void resource(int bus, std::uint64_t end) {
    file(fmt::format("sys/bus/pci/devices/0000:{:02x}:00.0/resource", bus),
         fmt::format("0x0 0x0 0x0\n0x0 0x{:x} 0x14220c\n", end));
  }
  /// Debian's two directories of headers.
  void kernel(const std::string& release, const std::string& pci_h) {
    file("boot/vmlinuz-" + release, "");
    file("lib/modules/" + release + "/build/Makefile", "include common\n");
    file("lib/modules/" + release + "/source/include/linux/pci.h", pci_h);
  }
  void file(const std::string& path, const std::string& content) {
    fs::create_directories((directory / path).parent_path());
    std::ofstream(directory / path) << content;
  }
  void add_entry_with_rule_without_header() {
    file("etc/p2pd/catalogue.d/mine.yaml", R"(
schema: p2pd.catalogue/2
compat_rules:
  new-too: {header: include/linux/pci.h, pattern: new_too, why: a test}
releases:
  999.1:
    commit: "3333333333333333333333333333333333333333"
    known: verified
    compat: [new-too]
    runfile: {path: /NVIDIA-Linux-x86_64-999.1.run, sha256: "0123456789012345678901234567890123456789012345678901234567890123", known: verified}
patches:
  mine/999:
    {repository: "file:///srv/mine", branch: "999", commit: "0123456789012345678901234567890123456789", known: verified,
     base: 999.1, architectures: {Ada: reported}}
)");
  }
  Host host() { return Host(Root::open(directory.path()).value(), runner); }
  Machine machine() { return machine_of(host(), catalogue(host()).value()).value(); }
  /// Verdict of the solver on one entry.
  EntryVerdict verdict(const std::string& entry) {
    const Catalogue all = catalogue(host()).value();
    const Choice choice = choose_driver(all, machine_of(host(), all).value());
    return *std::ranges::find(choice.table, entry, [](const EntryVerdict& one) { return one.entry->id; });
  }
  Finding look() {
    file("lspci-xxxx.txt", lspci);
    return kDriverCatalogue.check(host(), Parameters::object()).value();
  }
  static std::string zeros() {
    std::string row;
    for (int i = 0; i < 16; ++i) row += " 00";
    return row;
  }

  test::TemporaryDirectory directory;
  test::FakeRunner runner;
  std::string lspci;
};

}  // namespace

TEST_CASE("driver-catalogue: the entry that fits best is the answer, with every other and its reason") {
  Tree tree;
  const Finding finding = tree.look();
  INFO(finding.summary);
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.facts["entry"] == "aikitoria/570.86.16-p2p");
  CHECK(finding.facts["entries"].size() > 10);
  CHECK(tree.machine().kernels[0].compiler.value().text() == "gcc-12");
  CHECK(finding.facts["kernels"][0]["compat_rules"]["pci-resize-exclude-bars"] == false);
  CHECK(tree.runner.ran.empty());  // no driver is loaded to report the VRAM
}

TEST_CASE("driver-catalogue: headers with the backport take a compat header, and a rule without one forbids") {
  Tree tree;
  tree.kernel("6.1.0-48-amd64", "int pci_resize_resource(struct pci_dev *, int, int, int exclude_bars); // new_too\n");
  Finding finding = tree.look();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.facts["kernels"][1]["compat_rules"]["pci-resize-exclude-bars"] == true);
  tree.add_entry_with_rule_without_header();
  finding = tree.look();
  CHECK(finding.facts["entry"] == "aikitoria/570.86.16-p2p");
  CHECK(finding.facts["entries"]["mine/999"] == "rejected");
  CHECK(tree.verdict("mine/999").running_only);
  CHECK(tree.verdict("mine/999").reason.find("in 6.1.0-48-amd64, a test, which its source does not support") !=
        std::string::npos);
}

TEST_CASE("driver-catalogue: an entry whose source did not build here is not taken, until its log is removed") {
  Tree tree;
  const std::string log = "/var/log/p2pd/driver-build-570.86.16-0e943687150e-6.1.0-37-amd64.log";
  const std::string head = std::string(kBuildLogHead) + "make modules\n",
                    fault = "nv-pci.c:7:2: error: too few arguments\n";
  for (const std::string& no_word_on_it :
       {"p2pd 0.0.0: make modules\n" + fault, head + "gcc-12: error: unrecognized command-line option\n",
        head + "cc1: fatal error: /x/compat/y.h: No such file or directory\n",
        head + "x.h:1:1: fatal error: generated/autoconf.h: No such file or directory\n"}) {
    INFO(no_word_on_it);
    tree.file(log.substr(1), no_word_on_it);
    CHECK(tree.look().facts["entry"] == "aikitoria/570.86.16-p2p");
  }
  for (const char* no_word_on_it :
       {"make: *** write error: No space left on device\n",
        "nv.c:7:2: fatal error: error writing to /tmp/x.s: No space left on device\n",
        "gcc-12: fatal error: Killed signal terminated program cc1\n", "nv.c:1: note: x\n"}) {
    INFO(no_word_on_it);
    tree.file(log.substr(1), head + no_word_on_it);
    CHECK(tree.look().facts["entry"] == "aikitoria/570.86.16-p2p");
  }
  tree.file(log.substr(1),
            head + "kernel-open/nvidia/nv-pci.c:7:2: error: too few arguments to function 'pci_resize_resource'\n");
  const Finding finding = tree.look();
  CHECK(finding.facts["entry"] != "aikitoria/570.86.16-p2p");
  CHECK(finding.facts["entries"]["aikitoria/570.86.16-p2p"] == "rejected");
  CHECK(tree.verdict("aikitoria/570.86.16-p2p").reason.find("remove " + log + " to try it again") != std::string::npos);
  fs::remove(tree.directory / log);
  CHECK(tree.look().facts["entry"] == "aikitoria/570.86.16-p2p");
}

TEST_CASE("driver-catalogue: without headers a rule without a compat header leaves a question") {
  Tree tree;
  tree.add_entry_with_rule_without_header();
  fs::remove_all(tree.directory / "lib/modules");
  const Finding finding = tree.look();
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.facts["entries"]["mine/999"] == "open");
  CHECK(tree.verdict("mine/999").reason.find("the headers of 6.1.0-37-amd64 are not readable") != std::string::npos);
}

TEST_CASE("driver-catalogue: a converted card is found by what the driver tells") {
  Tree tree;
  tree.file("sys/module/nvidia/version", "570.86.16\n");
  const auto answer = [&](const std::string& output, int status = 0) {
    tree.runner.on(kAsk, output, status);
    return tree.look();
  };
  const auto gpu = [](int bus, const std::string& total) {
    return fmt::format(
        "GPU 00000000:{:02X}:00.0\n    FB Memory Usage\n        Total    : {}\n        Used    : 1 MiB\n"
        "    BAR1 Memory Usage\n        Total    : 65536 MiB\n",
        bus, total);
  };
  CHECK(answer(gpu(1, "24564 MiB") + gpu(2, "24564 MiB")).verdict == Verdict::pass);
  const Finding converted = answer(gpu(1, "24564 MiB") + gpu(2, "49140 MiB"));
  CHECK(converted.verdict == Verdict::unknown);  // 256 bytes of configuration space: BAR1 might grow
  CHECK(tree.machine().gpus[1].vram_bytes == 49140ULL << 20);
  CHECK(answer(gpu(1, "49140 MiB"), 9).verdict == Verdict::pass);  // a failed command counts as no answer
  for (const std::string& text :
       {std::string(), std::string("No devices were found\n"), gpu(1, "N/A"), gpu(1, "MiB"), gpu(2, "99999999999 MiB"),
        gpu(9, "49140 MiB"), std::string("GPU\nGPU \n"), gpu(2, "49140 MiB").substr(26)}) {
    INFO(text);
    CHECK(answer(text).verdict == Verdict::pass);
  }
}

TEST_CASE("driver-catalogue: a broken drop-in is an error that names it, not a guess") {
  Tree tree;
  tree.file("etc/p2pd/catalogue.d/mine.yaml", "{");
  tree.file("lspci-xxxx.txt", tree.lspci);
  const auto found =
      kDriverCatalogue.check(Host(Root::open(tree.directory.path()).value(), tree.runner), Parameters::object());
  REQUIRE_FALSE(found.has_value());
  CHECK(found.error().message.starts_with("/etc/p2pd/catalogue.d/mine.yaml:"));
  tree.file("etc/p2pd/catalogue.d/mine.yaml", "schema: p2pd.catalogue/2\nreleases: {570.86.16: {runfile: [x]}}\n");
  const auto other =
      kDriverCatalogue.check(Host(Root::open(tree.directory.path()).value(), tree.runner), Parameters::object());
  REQUIRE(other);  // it pins nothing: the shipped row stands
  CHECK(other->facts["notes"].dump().find("mine.yaml") != std::string::npos);
}

TEST_CASE("driver-catalogue: machine records get the reason that stands beside them") {
  struct Row {
    const char* record;
    Verdict verdict;
    const char* cause;
  };
  const Row rows[] = {
      {"h200-x4-vm", Verdict::pass, ""},
      {"no-gpu", Verdict::not_applicable, "no-gpu"},
      {"one-4090", Verdict::pass, ""},
      {"rtx2080ti-x2", Verdict::fail, "old-geforce"},
      {"rtx3090-rtx4090-mixed", Verdict::fail, "mixed-generations"},
      {"rtx3090-x4-epyc", Verdict::fail, "bar1-too-small"},
      {"rtx4090-48g-x2", Verdict::fail, "converted-card"},
      {"rtx4090-x2-am5", Verdict::pass, ""},
      {"rtx4090-x2-healthy", Verdict::pass, ""},
      {"rtx4090-x2-new-kernel", Verdict::pass, ""},
      {"rtx4090-x2-no-headers", Verdict::pass, ""},
      {"rtx4090-x8-two-socket", Verdict::pass, ""},
      {"rtx5090-x2-genoa", Verdict::pass, ""},
      {"rtxa6000-x2", Verdict::pass, ""},
  };
  for (const Row& row : rows) {
    const Root root = Root::open(test::machine_path(row.record)).value();
    RecordedRunner runner(root);
    const Finding finding = kDriverCatalogue.check(Host(root, runner), Parameters::object()).value();
    INFO(row.record << ": " << finding.summary);
    CHECK(finding.verdict == row.verdict);
    CHECK(finding.facts["cause"] == row.cause);
    CHECK((finding.verdict != Verdict::fail || !finding.next.empty()));
  }
}

TEST_CASE("catalogue: drop-ins are the YAML files of their directory", "[catalogue]") {
  const test::TemporaryDirectory directory;
  test::FakeRunner runner;
  const auto load = [&] { return catalogue(Host(Root::open(directory.path()).value(), runner)); };
  const auto put = [&](const std::string& name, const std::string& content) {
    directory.put("etc/p2pd/catalogue.d/" + name, content);
  };
  const std::size_t shipped = load()->entries.size();
  put("10-mine.yaml", test::kTablesText);
  put("old.json", "not YAML: not looked at: [");
  const Catalogue all = load().value();
  CHECK(all.notes == std::vector<std::string>{"/etc/p2pd/catalogue.d/old.json is not read: \"sudo p2pctl catalogue add "
                                              "REPOSITORY BRANCH\" adds its build again"});
  REQUIRE(all.entries.size() == shipped + 2);
  CHECK(all.entries.front().id == "test/main-on-9.9.8");  // the oldest release
  CHECK(all.entries.front().source == "/etc/p2pd/catalogue.d/10-mine.yaml");
  CHECK(all.runfile_hosts.front() == "https://example.org");
  CHECK(all.runfile_hosts.size() == 3);
  CHECK(all.releases_at == "https://example.org/nvidia");
  put("20-other.yaml", "schema: p2pd.catalogue/2\nreleases: [\n");
  CHECK(load().error().message.starts_with("/etc/p2pd/catalogue.d/20-other.yaml:3: "));
  put("20-other.yaml", "schema: p2pd.catalogue/2\nreleases:\n  1.1: {runfile: {known: verified}}\n");
  CHECK(load().error().message == "/etc/p2pd/catalogue.d/20-other.yaml: release 1.1: runfile: 'path' is missing");
  put("20-other.yaml", std::string((1U << 20) + 1, ' '));
  CHECK_FALSE(load());
}
