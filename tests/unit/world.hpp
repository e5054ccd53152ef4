// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "engine/walk.hpp"
#include "temporary.hpp"

namespace p2pd::test {

/// A power loss: unwinds the walk as a kill would, at a chosen place.
struct PowerCut {};

/// Clock that stands still; reports each wait to the test.
class FakeClock : public Clock {
 public:
  explicit FakeClock(const std::function<void()>& on_wait) : on_wait_(on_wait) {}
  std::chrono::system_clock::time_point now() override {
    return std::chrono::system_clock::time_point(std::chrono::hours(1));
  }
  void wait(std::chrono::milliseconds) override {
    if (on_wait_) on_wait_();
  }

 private:
  const std::function<void()>& on_wait_;
};

/// Counts the requested reboots.
class FakeRebooter : public Rebooter {
 public:
  FakeRebooter(int& count, bool calls_off, const std::string& in_the_way)
      : count_(count), calls_off_(calls_off), in_the_way_(in_the_way) {}
  std::string in_the_way() override { return in_the_way_; }
  Result<Outcome> reboot(RebootPolicy policy, std::string_view, bool) override {
    if (calls_off_) return Outcome::called_off;
    if (policy == RebootPolicy::automatic) ++count_;
    return Outcome::under_way;
  }

 private:
  int& count_;
  bool calls_off_;
  const std::string& in_the_way_;
};

/// Keeps the reason of the last wait.
class FakeObserver : public Observer {
 public:
  explicit FakeObserver(std::string& waited_for) : waited_for_(waited_for) {}
  void waiting(std::string_view why) override { waited_for_ = why; }

 private:
  std::string& waited_for_;
};

/// A machine of a few files a step: its fix adds a line to /etc/shared and writes /live/NAME (in effect at once) or
/// /want/NAME (in effect as /now/NAME from the next boot on); /faults/NAME is its fault.
///
/// The check `now` passes when the step is in effect. The fixes `live` and `risky` work at once, `boot` and `trial`
/// at the next boot, `trial` at that boot alone until its commit; `reboot` is `boot` that a reboot does by itself;
/// `each-boot` is `live` that ends with the boot; `risky` and `trial` are hazards, and the commit of `trial` writes
/// /default/NAME.
class World {
 public:
  World();

  /// Writes /faults/NAME: "error" (the fix fails), "disturbed" (it fails because /live/idle has gone), "void" (it does
  /// nothing), "hang" (its boot never comes up),
  /// "danger" (while it does not hold, a proof would be dangerous), "impossible" (cannot be fixed),
  /// "limited" (of a proof: it proves less than is wanted),
  /// "cut" (power is lost in the middle of the fix), "commit" (no space for it), "busy commit", "cut commit"; of the
  /// fix `live`, "no backup" (undo cannot succeed), "busy undo", "locked undo" (it is found to be busy too late). Of
  /// NAME "rests", which runs when a run rests: "count" (it adds a line to /rests), "error", "cut".
  void fault(const std::string& name, const std::string& kind) { write("faults/" + name, kind); }
  void write(const std::string& path, const std::string& text) const;
  std::string read(const std::string& path) const;
  /// Writes a hook, "before-change.d/drain"; the shell script finds the world's files in $WORLD.
  void hook(const std::string& path, const std::string& script) const;
  void remove(const std::string& path) const { std::filesystem::remove(root_.path() / path); }
  bool has(const std::string& path) const { return std::filesystem::exists(root_.path() / path); }
  std::filesystem::path path(const std::string& path) const { return root_.path() / path; }
  std::string tree() const;  ///< every file and its content, but for /now and /boot-id

  /// A new process of the worker, on the boot that is running.
  Result<Run> start(const std::function<Result<Run>(Walk&)>& work);
  Result<Run> apply(const std::string& yaml);
  Result<Run> go_on() {
    return start([](Walk& walk) { return walk.go_on(); });
  }
  Result<Run> revert() {
    return start([](Walk& walk) { return walk.revert(); });
  }
  /// Boots the machine: pending changes take effect; after a hang it boots without them.
  void boot();
  /// Boots and continues as long as the run waits for a reboot.
  Result<Run> settle(Result<Run> run);

  /// Removes the state database; the undo records stay.
  void lose_journal() const;
  /// Directory of the state database and the undo records.
  const std::filesystem::path& state() const { return state_.path(); }
  int undo_entries() const;
  /// Changes the file STATE/PATH by `change`, from its old content.
  void damage(const std::string& path, const std::function<std::string(std::string)>& change) const;
  void sql(const std::string& statement) const;  ///< on the state database
  std::vector<JournalEvent> events() const;
  int count(std::string_view type) const;

  int reboots = 0;
  std::optional<Event> asked;  ///< answer of the next poll, after this many without one:
  int quiet_polls = 0;
  bool applied_anything = false;
  std::function<void()> on_wait;  ///< each second that the walk waits
  std::string waited_for;         ///< reason of the last wait
  bool calls_off = false;         ///< every restart is cancelled
  std::string in_the_way;         ///< reason against a restart
  static Registry registry();

 private:
  TemporaryDirectory root_;
  TemporaryDirectory state_;
  int boot_ = 1;
};

/// A plan of steps "name:fix" in order; " after other" and policy lines as they stand in YAML.
std::string plan_of(const std::vector<std::string>& steps, const std::string& policy = "{}");

}  // namespace p2pd::test
