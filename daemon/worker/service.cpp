// SPDX-License-Identifier: MIT
#include "worker/service.hpp"

#include <fmt/format.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/directories.hpp"
#include "base/log.hpp"
#include "base/root.hpp"
#include "engine/worker.hpp"
#include "machine/boot/mounts.hpp"
#include "machine/driver/ready.hpp"
#include "plan/config.hpp"
#include "worker/job_runner.hpp"
#include "worker/listener.hpp"
#include "worker/mailbox.hpp"
#include "worker/publisher.hpp"
#include "worker/restart.hpp"

namespace p2pd {
namespace {

constexpr double kEarly = 15 * 60;                  // seconds since the boot
constexpr std::chrono::seconds kClockPatience{60};  // limit of the wait: there may be no time server

double uptime() {
  double seconds = kEarly;
  std::ifstream("/proc/uptime") >> seconds;
  return seconds;
}

/// True if a time service runs that has not yet set the clock.
bool is_due() {
  std::error_code unread;
  return std::filesystem::exists("/run/systemd/timesync", unread) &&
         !std::filesystem::exists("/run/systemd/timesync/synchronized", unread);
}

/// Waits early in a boot until the clock is set: before that no server's certificate is valid. Returns after a minute,
/// or when a request arrives.
void wait_for_clock(const Mailbox& mailbox, Publisher& publisher) {
  const auto begun = std::chrono::steady_clock::now();
  while (uptime() < kEarly && is_due()) {
    if (mailbox.stopping() || mailbox.asked() || mailbox.has_waiting()) return;
    if (std::chrono::steady_clock::now() - begun > kClockPatience)
      return log::warning("the clock is not set, and not waited for any longer");
    publisher.waiting("the clock is not set yet");
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

constexpr std::chrono::seconds kIdle{5};
/// Pauses before a run is continued whose walk ended in an error: the cause may be transient, and a boot starts the
/// worker only once.
constexpr std::chrono::seconds kPauses[] = {std::chrono::seconds(10), std::chrono::seconds(60),
                                            std::chrono::seconds(300)};
constexpr std::chrono::seconds kLockPatience{30};  // for a prove or reassert of the same boot

/// Seconds in an environment variable, which tests set.
std::chrono::seconds seconds_of(const char* variable, std::chrono::seconds otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::chrono::seconds(std::atoi(text));
}

/// Environment of the engine in this program.
class Service {
 public:
  explicit Service(const Registry& registry)
      : registry_(registry),
        stop_fd_(stop_signals()),
        config_(load_config()),
        systemd_(::sd_booted() > 0),
        mailbox_(config_ ? config_->plan : std::string()),
        publisher_(mailbox_, systemd_),
        restart_(mailbox_, std::chrono::seconds(config_ ? config_->reboot_delay_s : 60)),
        runner_(mailbox_, systemd_, [this](std::string_view line) { publisher_.message(line); }) {
    log::start("p2pd-worker", config_ ? log::level_called(config_->log_level) : log::Level::info);
    log::listen([this](std::string_view text) { publisher_.message(text); });
    if (!config_) log::error("{}", config_.error().message);
  }

  int serve() {
    const auto listener = Listener::open(mailbox_, stop_fd_.get());
    if (!listener) {
      log::error("{}", listener.error().text());
      return 1;
    }
    ::sd_notify(0, "READY=1");
    const std::chrono::seconds patience = seconds_of("P2PD_IDLE_S", kIdle);
    bool well = start();
    for (const auto* pause = std::begin(kPauses);;) {
      const bool again = !well && pause != std::end(kPauses);
      const std::optional<Posted> request = mailbox_.wait(again ? seconds_of("P2PD_RETRY_S", *pause++) : patience);
      if (request)
        well = take(*request);
      else if (again && !mailbox_.stopping())
        well = start();
      else
        break;
    }
    ::sd_notify(0, "STOPPING=1");
    return well ? 0 : 1;
  }

  /// Walks once, without a socket; returns the run.
  Result<Run> once(const std::function<Result<Run>(Walk&)>& work, std::chrono::seconds patience = kLockPatience) {
    patience_ = patience;
    const auto listener = Listener::for_signals(mailbox_, stop_fd_.get());
    ::sd_notify(0, "READY=1");
    Result<Run> run = walk(work);
    if (!run && run.error().code == ErrorCode::busy)
      log::info("{}", run.error().message);
    else if (!run)
      log::error("{}", run.error().text());
    return run;
  }

 private:
  /// Continues the run that an earlier start left open; returns false if it ended in an error.
  bool start() {
    restart_.cancel_announced_reboot();
    Journal::take_back(state_directory());
    const Result<std::optional<Run>> read = newest_run();  // the walk reports a read error
    const std::optional<Run> newest = read ? *read : std::nullopt;
    const bool open = newest && is_open(newest->state);
    const bool first = read && !newest && config_ && config_->apply_on_boot;
    if (!open && !first) return true;
    if (const std::string why = first ? forgets() : ""; !why.empty()) {
      const std::string state = state_directory();
      publisher_.error(Error{
          ErrorCode::state,
          fmt::format("apply_on_boot is refused: {} is lost with this boot ({}), and the number of reboots with it",
                      state, why),
          fmt::format("mount a file system of a disk at {}, or begin the run yourself: \"p2pctl apply\"", state)});
      log::error("apply_on_boot is refused: {} is lost with this boot: {}", state, why);
      return true;
    }
    wait_for_clock(mailbox_, publisher_);
    const Result<Run> run = walk([&](Walk& walk) -> Result<Run> {
      if (open) return walk.go_on();
      return walk.apply(TRY(load_plan(*config_, "", registry_)));
    });
    return settle(run);
  }

  bool take(const Posted& request) {
    const auto id = [](const Run& run) { return static_cast<std::uint64_t>(run.id); };
    publisher_.begun = [&](const Run& run) { request.answer(id(run)); };
    const Result<Run> run =
        walk([&](Walk& walk) { return answer(walk, request); }, request.kind == Request::Kind::revert);
    const bool told = std::exchange(publisher_.begun, nullptr) == nullptr;
    if (!told) request.answer(run ? Answer(id(*run)) : Failure(run.error()));
    return told ? settle(run) : true;  // an error before the run began is reported to the caller
  }

  Result<Run> answer(Walk& walk, const Request& request) const {
    if (request.kind == Request::Kind::revert) return walk.revert();
    if (request.kind != Request::Kind::apply) return walk.request(event_of(request.kind));
    Plan plan = TRY(load_plan(TRY(Result<Config>(config_)), request.plan, registry_));
    if (!request.reboot) plan.policy.reboot = RebootPolicy::external;
    return walk.apply(plan);
  }

  /// `undoes`: the undo records suffice; an unusable journal must not prevent a rollback.
  Result<Run> walk(const std::function<Result<Run>(Walk&)>& work, bool undoes = false) {
    mailbox_.begin();
    Result<Run> run = [&]() -> Result<Run> {
      Worker::Options options;
      options.holder = "p2pd-worker";
      options.accept_state_loss = undoes;
      options.patience = patience_;
      Worker worker = TRY(Worker::open(options, registry_, {runner_, publisher_, mailbox_, restart_}));
      TRY(patience_ > patience_.zero() ? runner_.wait_for_last()
                                       : runner_.refuse_while_last_runs());  // p2pd's job: the lock is held
      return work(worker.walk());
    }();
    const std::optional<Event> promised = mailbox_.end();
    publisher_.rest();
    if (run && !is_open(run->state)) restart_.cancel_announced_reboot();
    if (promised == Event::pause && run && run->state != RunState::walking && next_state(run->state, Event::pause))
      return walk([](Walk& walk) { return walk.request(Event::pause); });  // the pause came as the walk ended by itself
    if (promised != Event::cancel && promised != Event::revert) return run;
    return walk([&](Walk& walk) { return promised == Event::cancel ? walk.cancel_accepted() : walk.revert(); }, true);
  }

  /// Returns false if the walk ended in an error other than a stop.
  bool settle(const Result<Run>& run) {
    const bool well = run || run.error().code == ErrorCode::interrupted || run.error().code == ErrorCode::state;
    if (!well) {
      log::error("{}", run.error().text());
      publisher_.error(run.error());
    }
    return well;
  }

  /// Reason why the state is lost with this boot; empty: it is kept.
  static std::string forgets() {
    const Result<Root> root = Root::open("/");
    const auto table = root ? root->read(kMountInfo) : Failure(root.error());
    auto mounts = table ? parse_mounts(*table) : Failure(table.error());
    if (!mounts) return "";
    for (Mount& mount :
         *mounts)  // an invisible upper directory proves nothing: in a container the path belongs to another system
      if (!mount.upper.empty() && !root->exists(mount.upper)) mount.upper.clear();
    std::error_code error;
    const auto state = std::filesystem::weakly_canonical(state_directory(), error);
    return why_volatile(*mounts, state.string(), root->read("/proc/cmdline").value_or(""));
  }

  /// Newest run, passed to the publisher as well; nothing: no run was ever begun.
  Result<std::optional<Run>> newest_run() {
    const auto journal = Journal::open(state_directory(), Journal::Access::read);
    if (!journal && journal.error().code == ErrorCode::not_found) return std::optional<Run>();
    if (!journal) return Failure(journal.error());
    std::optional<Run> run = TRY(journal->last_run());
    if (run) publisher_.know(*run, TRY(journal->steps(run->id)));
    return run;
  }

  const Registry& registry_;
  Descriptor stop_fd_;
  std::chrono::seconds patience_ = kLockPatience;
  Result<Config> config_;
  bool systemd_;
  Mailbox mailbox_;
  Publisher publisher_;
  Restart restart_;
  JobRunner runner_;
};

}  // namespace

int serve(const Registry& registry) { return Service(registry).serve(); }

int prove(const Registry& registry) {
  const auto proven = [] {
    return ::access(ready_file().c_str(), F_OK) == 0 || ::access(limited_file().c_str(), F_OK) == 0;
  };
  const bool before = proven();
  const Result<Run> run = Service(registry).once([&](Walk& walk) -> Result<Run> {
    if (!before && proven()) return Run{};  // proven by the walk that this one waited for
    return walk.prove_again();
  });
  if (!run) return run.error().code == ErrorCode::busy ? 0 : 1;  // a running walk checks everything itself
  return run->plan == "verify" && !is_proven(run->state) ? 3 : 0;
}

int reassert(const Registry& registry) {
  const Result<Run> run = Service(registry).once([](Walk& walk) { return walk.reassert(); });
  if (!run) return run.error().code == ErrorCode::busy ? 0 : 1;
  return run->plan == "each-boot" && run->result != "done" ? 3 : 0;
}

int add_kernel(const Registry& registry) {
  const std::chrono::seconds none{0};  // the lock's holder may be waiting for the apt-get that installs the kernel
  return Service(registry).once([](Walk& walk) { return walk.add_kernel(); }, none) ? 0 : 1;
}

}  // namespace p2pd
