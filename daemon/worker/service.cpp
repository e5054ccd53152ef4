// SPDX-License-Identifier: MIT
#include "worker/service.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>

#include "base/directories.hpp"
#include "base/log.hpp"
#include "base/root.hpp"
#include "engine/open_state.hpp"
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
    log::listen([this](std::string_view text) {
      if (in_walk) publisher_.message(text);
    });
    if (!config_) log::error("{}", config_.error().message);
  }

  int serve() {
    const Result<void> opened = open_loop(true);
    if (!opened) {
      log::error("{}", opened.error().text());
      return 1;
    }
    ::sd_notify(0, "READY=1");
    begin([this] { return start(); });
    const int code = sd_event_loop(loop_.get());
    ::sd_notify(0, "STOPPING=1");
    listener_.reset();
    return code >= 0 && well_ && !broken_ ? 0 : 1;
  }

  /// Walks once, without a socket; returns the run.
  Result<Run> once(const std::function<Result<Run>(Walk&)>& work, std::chrono::seconds patience = kLockPatience) {
    patience_ = patience;
    Result<Run> run = fail(ErrorCode::io, "the walk ended unexpectedly");
    if (Result<void> opened = open_loop(false); !opened) {
      log::error("{}", opened.error().text());
      return Failure(opened.error());
    }
    ::sd_notify(0, "READY=1");
    begin([&] {
      run = walk(work);
      return true;
    });
    sd_event_loop(loop_.get());
    if (!run && run.error().code == ErrorCode::busy)
      log::info("{}", run.error().message);
    else if (!run)
      log::error("{}", run.error().text());
    return run;
  }

  ~Service() {
    if (thread_.joinable()) thread_.join();
    sd_event_source_disable_unref(timer_);
  }

 private:
  // ---- the loop -----------------------------------------------------------------------------------------------------

  struct Unref {
    void operator()(sd_event* loop) const { sd_event_unref(loop); }
  };
  Result<void> open_loop(bool listens) {
    sd_event* loop = nullptr;
    int code = sd_event_new(&loop);
    loop_.reset(loop);
    if (code >= 0) code = sd_event_add_io(loop, nullptr, stop_fd_.get(), EPOLLIN, guarded<stopped>, this);
    if (code >= 0) code = sd_event_add_io(loop, nullptr, news_.get(), EPOLLIN, guarded<told>, this);
    if (code < 0) return fail(ErrorCode::io, "no event loop: " + error_text(code));
    const auto asked = [this](std::uint64_t call, const Request& request) { ask(call, request); };
    if (listens) listener_ = TRY(Listener::open(loop, asked));
    return {};
  }

  static int stopped(sd_event_source* source, int, std::uint32_t, void* data) {
    auto* service = static_cast<Service*>(data);
    sd_event_source_set_enabled(source, SD_EVENT_OFF);
    service->mailbox_.stop();
    return service->walks_ ? 0 : service->end();
  }

  /// The walk has answered something, or has ended.
  static int told(sd_event_source*, int fd, std::uint32_t, void* data) {
    auto* service = static_cast<Service*>(data);
    eventfd_t value = 0;
    ::eventfd_read(fd, &value);
    std::vector<std::pair<std::uint64_t, Answer>> answers;
    bool ended = false;
    {
      const std::lock_guard lock(service->news_mutex_);
      answers.swap(service->answers_);
      ended = std::exchange(service->ended_, false);
    }
    for (const auto& [call, answer] : answers) service->listener_->answer(call, answer);
    if (!ended) return 0;
    service->thread_.join();
    service->walks_ = false;
    return service->broken_ ? service->end() : service->rest();
  }

  static int late(sd_event_source*, std::uint64_t, void* data) {
    auto* service = static_cast<Service*>(data);
    if (!service->again_) return service->end();
    service->begin([service] { return service->start(); });
    return 0;
  }

  /// From any thread: the loop sends the answer.
  void answer(std::uint64_t call, const Answer& answer) {
    const std::lock_guard lock(news_mutex_);
    answers_.emplace_back(call, answer);
    ::eventfd_write(news_.get(), 1);
  }

  void ask(std::uint64_t call, const Request& request) {
    mailbox_.post({request, [this, call](const Answer& said) { answer(call, said); }});
    if (!walks_ && mailbox_.has_waiting()) rest();
  }

  /// Begins a walk in a thread of its own; `work` returns false if it ended in an error. After an exception the process
  /// ends, and the next start reads the state anew.
  void begin(std::function<bool()> work) {
    timer_ = sd_event_source_disable_unref(timer_);
    broken_ = true;  // if there is no thread
    const int begun = guard([&] {
      thread_ = std::thread([this, work = std::move(work)] { walk_apart(work); });
      return 1;
    });
    walks_ = begun > 0;
    if (!walks_) end();
  }

  void walk_apart(const std::function<bool()>& work) {
    in_walk = true;
    const int code = guard([&] { return work() ? 1 : 0; });
    well_ = code > 0;
    broken_ = code < 0;
    const std::lock_guard lock(news_mutex_);
    ended_ = true;
    ::eventfd_write(news_.get(), 1);
  }

  /// Takes the request that waits, or waits for one; after an error the run is continued, at the end of a pause.
  int rest() {
    if (mailbox_.stopping() || listener_ == nullptr) return end();
    if (const std::optional<Posted> request = mailbox_.next()) {
      begin([this, request = *request] { return take(request); });
      return 0;
    }
    again_ = !well_ && pause_ != std::end(kPauses);
    const std::chrono::microseconds wait =
        again_ ? seconds_of("P2PD_RETRY_S", *pause_++) : seconds_of("P2PD_IDLE_S", kIdle);
    timer_ = sd_event_source_disable_unref(timer_);
    return sd_event_add_time_relative(loop_.get(), &timer_, CLOCK_MONOTONIC, static_cast<std::uint64_t>(wait.count()),
                                      0, guarded<late>, this);
  }

  int end() { return sd_event_exit(loop_.get(), 0); }

  // ---- the thread of the walk ---------------------------------------------------------------------------------------

  /// Continues the run that an earlier start left open; returns false if it ended in an error.
  bool start() {
    restart_.cancel_announced_reboot();
    Database::take_back(state_directory());
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
          fmt::format("mount a file system of a disk at {}, or begin the run yourself: \"sudo p2pctl apply\"", state)});
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
    const Result<Run> run = walk([&](Walk& walk) { return answer(walk, request); }, request.event == Event::revert);
    const bool told = std::exchange(publisher_.begun, nullptr) == nullptr;
    if (!told) request.answer(run ? Answer(id(*run)) : Failure(run.error()));
    return told ? settle(run) : true;  // an error before the run began is reported to the caller
  }

  Result<Run> answer(Walk& walk, const Request& request) const {
    if (request.event == Event::revert) return walk.revert();
    if (request.event != Event::apply) return walk.request(request.event);
    Plan plan = TRY(load_plan(TRY(Result<Config>(config_)), request.plan, registry_));
    if (!request.reboot) plan.policy.reboot = RebootPolicy::external;
    return walk.apply(plan);
  }

  /// `undoes`: the undo records suffice; an unusable journal must not prevent a rollback.
  Result<Run> walk(const std::function<Result<Run>(Walk&)>& work, bool undoes = false) {
    mailbox_.begin();
    Result<Run> run = [&]() -> Result<Run> {
      OpenState::Options options;
      options.holder = "p2pd-worker";
      options.accept_state_loss = undoes;
      options.patience = patience_;
      const auto opened =
          TRY(OpenState::open(options, registry_, {runner_, publisher_, [this] { return mailbox_.poll(); }, restart_}));
      TRY(patience_ > patience_.zero() ? runner_.wait_for_last()
                                       : runner_.refuse_while_last_runs());  // p2pd's job: the lock is held
      return work(opened->walk());
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

  static inline thread_local bool in_walk = false;

  const Registry& registry_;
  Descriptor stop_fd_;
  Descriptor news_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex news_mutex_;
  std::vector<std::pair<std::uint64_t, Answer>> answers_;  ///< of the walk, still to be sent
  bool ended_ = false;                                     ///< the walk has ended
  std::unique_ptr<sd_event, Unref> loop_;
  std::unique_ptr<Listener> listener_;
  std::thread thread_;
  sd_event_source* timer_ = nullptr;  ///< end of a pause
  const std::chrono::seconds* pause_ = std::begin(kPauses);
  bool again_ = false;  ///< after the pause the run is continued; otherwise p2pd-worker ends
  bool walks_ = false;
  bool well_ = true;
  bool broken_ = false;  ///< the walk ended in an exception
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
