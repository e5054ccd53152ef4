// SPDX-License-Identifier: MIT
#include "machine/driver/persistenced.hpp"

#include <filesystem>

#include "base/action.hpp"
#include "catch.hpp"
#include "engine/undo.hpp"
#include "made_tree.hpp"
#include "temporary.hpp"

namespace p2pd {
extern const Probe kPersistenced;
extern const Action kPersistencedAction;
}  // namespace p2pd

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

constexpr char kUnit[] = "etc/systemd/system/nvidia-persistenced.service";
constexpr char kLink[] = "etc/systemd/system/multi-user.target.wants/nvidia-persistenced.service";
constexpr char kPackaged[] = "lib/systemd/system/nvidia-persistenced.service";
const std::string kFit = "[Service]\nExecStart=/usr/bin/nvidia-persistenced --user nvpd\n";

/// A tree with a GPU and the daemon, as a runfile leaves it; systemctl does what the real one does.
struct Machine : test::MadeTree {
  Machine() {
    gpu("84 26");
    put("usr/bin/nvidia-persistenced", "");
    fs::permissions(directory / "usr/bin/nvidia-persistenced", fs::perms(0755));
    runner.on("systemctl enable nvidia-persistenced.service", [this](const Command&) {
      enable();
      return Result<CommandResult>(CommandResult{});
    });
    runner.on("systemctl daemon-reload");
    for (const auto& [verb, then] : {std::pair{"restart", true}, {"stop", false}})
      runner.on(std::string("systemctl ") + verb + " nvidia-persistenced.service", [this, then = then](const Command&) {
        runs = then;
        return Result<CommandResult>(CommandResult{});
      });
    runner.on("systemctl is-active nvidia-persistenced.service", [this](const Command&) {
      return Result<CommandResult>(CommandResult{runs ? 0 : 3, "", ""});
    });
  }
  void enable() const { link(kLink, "/etc/systemd/system/nvidia-persistenced.service"); }
  void link(const std::string& path, const std::string& target) const {
    fs::create_directories((directory / path).parent_path());
    fs::remove(directory / path);
    fs::create_symlink(target, directory / path);
  }
  Verdict verdict() const { return kPersistenced.check(host, {})->verdict; }
  std::string text(const std::string& path) const { return host.files().read("/" + path).value_or(""); }

  bool runs = false;
};

}  // namespace

TEST_CASE("persistenced: where there is no daemon or no GPU, nothing is asked for") {
  Machine machine;
  CHECK(machine.verdict() == Verdict::fail);
  machine.put("lspci-xxxx.txt", "");
  CHECK(machine.verdict() == Verdict::not_applicable);
  fs::remove(machine.directory / "lspci-xxxx.txt");  // an image: its future hardware is not known
  CHECK(machine.verdict() == Verdict::fail);
  fs::remove(machine.directory / "usr/bin/nvidia-persistenced");
  CHECK(machine.verdict() == Verdict::not_applicable);
}

TEST_CASE("persistenced: what counts as started at each boot") {
  Machine machine;
  const auto says = [&](const std::string& part) {
    const Finding finding = kPersistenced.check(machine.host, {}).value();
    INFO(finding.summary);
    CHECK(finding.summary.find(part) != std::string::npos);
  };
  says("no unit starts it");
  machine.put(kPackaged, kFit);
  says("is not enabled");
  machine.enable();
  CHECK(machine.verdict() == Verdict::pass);
  machine.put("etc/systemd/system/nvidia-persistenced.service.d/mine.conf",
              "[Service]\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced --no-persistence-mode\n");
  says("mine.conf starts nvidia-persistenced without persistence mode");
  machine.put("etc/systemd/system/nvidia-persistenced.service.d/zz.conf",
              "[Service]\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced\n");
  CHECK(machine.verdict() == Verdict::pass);
  machine.link(kUnit, "/dev/null");
  says("masks");
}

TEST_CASE("persistenced: in an image by files alone, again without change, undone to the byte") {
  Machine machine;
  const test::TemporaryDirectory state;
  UndoStore undo =
      UndoStore::open(Root::open(state.path()).value(), Root::open(machine.host.files().directory()).value()).value();
  Host host(Root::open(machine.host.files().directory()).value(), machine.runner, &undo);
  undo.begin({1, "s", "persistenced", "persistenced", Parameters::object()});
  CHECK(kPersistencedAction.describe(host, {})->files.size() == 1);
  REQUIRE(kPersistencedAction.apply(host, {}));
  CHECK(machine.verdict() == Verdict::pass);
  CHECK(machine.text(kUnit) == persistenced_unit());
  CHECK(machine.runner.ran == std::vector<std::string>{"systemctl enable nvidia-persistenced.service"});
  CHECK(kPersistencedAction.describe(host, {})->commands.empty());
  REQUIRE(kPersistencedAction.apply(host, {}));
  CHECK(machine.runner.ran.size() == 1);
  REQUIRE(undo.note_result());
  CHECK(undo.restore_newest()->empty());
  REQUIRE(kPersistencedAction.undo(host, {}));
  CHECK_FALSE(fs::exists(fs::symlink_status(machine.directory / kLink)));
  CHECK_FALSE(fs::exists(machine.directory / "etc"));
  CHECK(machine.runner.ran.size() == 1);
  CHECK(machine.runner.unexpected.empty());
}

TEST_CASE("persistenced: a packaged unit is enabled, or covered where it holds nothing") {
  Machine machine;
  machine.put(kPackaged, kFit);
  REQUIRE(kPersistencedAction.apply(machine.host, {}));
  CHECK_FALSE(fs::exists(machine.directory / kUnit));
  CHECK(machine.verdict() == Verdict::pass);
  machine.put(kPackaged, "[Service]\nExecStart=/usr/bin/nvidia-persistenced --no-persistence-mode\n");
  CHECK(machine.verdict() == Verdict::fail);
  REQUIRE(kPersistencedAction.apply(machine.host, {}));
  CHECK(machine.text(kUnit) == persistenced_unit());
  CHECK(machine.verdict() == Verdict::pass);
}

TEST_CASE("persistenced: somebody's own unit, mask or drop-in is named and left alone") {
  Machine machine;
  std::string named = "/" + std::string(kUnit);
  SECTION("a unit that is not enabled") { machine.put(kUnit, kFit); }
  SECTION("a mask") { machine.link(kUnit, "/dev/null"); }
  SECTION("a drop-in that turns it off") {
    named += ".d/off.conf";
    machine.put(named.substr(1),
                "[Service]\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced --no-persistence-mode\n");
  }
  const auto before = machine.host.files().capture("/" + std::string(kUnit)).value();
  const auto done = kPersistencedAction.apply(machine.host, {});
  REQUIRE_FALSE(done);
  CHECK(done.error().message.find(named) != std::string::npos);
  CHECK_FALSE(done.error().next.empty());
  CHECK(machine.host.files().capture("/" + std::string(kUnit)).value() == before);
  CHECK(machine.runner.ran.empty());
}

TEST_CASE("persistenced: on a running host it is started, and stopped again") {
  Machine machine;
  machine.put("run/systemd/system/.keep", "");
  const auto live = test::live_root(machine.directory.path());
  if (!live) return;  // needs root
  Host host(*live, machine.runner);
  machine.put("proc/driver/nvidia/version", "");
  REQUIRE(kPersistencedAction.apply(host, {}));
  CHECK(machine.runs);
  CHECK(kPersistenced.check(host, {})->summary == "nvidia-persistenced runs, and starts at each boot");
  machine.runner.ran.clear();
  REQUIRE(kPersistencedAction.apply(host, {}));
  CHECK(machine.runner.ran == std::vector<std::string>{"systemctl is-active nvidia-persistenced.service"});
  machine.runs = false;
  CHECK(kPersistenced.check(host, {})->summary == "nvidia-persistenced is enabled, and does not run");
  fs::remove(machine.directory / "proc/driver/nvidia/version");  // the driver is not loaded: no GPU to initialise
  CHECK(kPersistenced.check(host, {})->verdict == Verdict::pass);
  machine.runs = true;
  REQUIRE(kPersistencedAction.undo(host, {}));
  CHECK_FALSE(machine.runs);
  REQUIRE(kPersistencedAction.undo(host, {}));
  CHECK(machine.runner.unexpected.empty());
}
