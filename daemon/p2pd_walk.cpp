// SPDX-License-Identifier: MIT
// p2pd-walk: goes on with the open run, after a boot or a kill; nothing to do is success.
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "actions/registry.hpp"
#include "base/log.hpp"
#include "engine/worker.hpp"
#include "plan/config.hpp"
#include "probes/registry.hpp"

namespace {

/// Logs what the walk does, with the step as a field of the journal.
class Log : public p2pd::Observer {
 public:
  void checked(const p2pd::Step& step, const p2pd::Finding& finding) override {
    const p2pd::log::Field field("P2PD_STEP", step.id);
    spdlog::info("{}: {}: {}", step.id, p2pd::to_string(finding.verdict), finding.summary);
  }
  void fixing(const p2pd::Step& step) override {
    const p2pd::log::Field field("P2PD_STEP", step.id);
    spdlog::info("{}: making it so: {}", step.id, step.title);
  }
  void fixed(const p2pd::Step& step, const p2pd::Result<void>& result) override {
    const p2pd::log::Field field("P2PD_STEP", step.id);
    if (!result) spdlog::error("{}: {}", step.id, result.error().message);
  }
  void undoing(std::string_view step) override { spdlog::info("{}: undoing", step); }
  void run_changed(p2pd::RunState state, std::string_view reason) override {
    const p2pd::log::Field field("P2PD_STATE", std::string(p2pd::to_string(state)));
    spdlog::info("{}: {}", p2pd::to_string(state), reason);
  }
};

/// Walks; true when there is nothing left to do now.
bool go_on() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  const int stop_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  const p2pd::Result<p2pd::Config> config = p2pd::load_config();
  p2pd::log::start("p2pd-walk", config ? spdlog::level::from_str(config->log_level) : spdlog::level::info);
  if (!config) spdlog::error("{}", config.error().message);
  p2pd::ProcessRunner runner("/", stop_fd);
  Log observer;
  p2pd::Worker::Options options;
  options.holder = "p2pd-walk";
  options.stop_fd = stop_fd;
  p2pd::Result<p2pd::Worker> worker =
      p2pd::Worker::open(options, {p2pd::probes(), p2pd::actions()}, runner, observer);
  const p2pd::Result<p2pd::Run> run = worker ? worker->walk().go_on() : p2pd::Failure(worker.error());
  if (run || run.error().code == p2pd::ErrorCode::interrupted) return true;  // stopped: the next start goes on
  spdlog::error("{}{}{}", run.error().message, run.error().next.empty() ? "" : "; next: ", run.error().next);
  return false;
}

}  // namespace

int main() {
  try {
    return go_on() ? 0 : 1;
  } catch (const std::exception& error) {
    spdlog::error("unexpected: {}", error.what());
    return 1;
  }
}
