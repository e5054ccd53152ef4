// SPDX-License-Identifier: MIT
#include "worker/publisher.hpp"

#include <fmt/format.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/command.hpp"
#include "base/log.hpp"
#include "base/url.hpp"
#include "machine/driver/ready.hpp"

namespace p2pd {
namespace {

/// MESSAGE_ID of each kind of entry about a run in the journal; units/p2pd.catalog explains each to a person.
namespace message_id {
constexpr std::string_view kRunStarted = "8e2f6a4b0c7d4e1f9a3b5c6d7e8f9012";
constexpr std::string_view kStepChanged = "1f4b7c2e5a8d4069b3c6e9f2a5d8b014";
constexpr std::string_view kBlocked = "5c9d3e7f1a2b4c68905d6e7f8a9b0c13";
constexpr std::string_view kRebooting = "7a1c3e5f9b2d4068a4c6e8f0b2d4f617";
constexpr std::string_view kLimited = "5c1f6e0d2b7a4f398d8e7a91c3b5d604";
constexpr std::string_view kReady = "b3d5f7091a2c4e6f8091a2b3c4d5e6f8";
constexpr std::string_view kFailed = "c4e6081a3b5d4f7092a4b6c8d0e2f419";
constexpr std::string_view kReverted = "d5f7192b4c6e408193a5b7c9d1e3f50a";
}  // namespace message_id

constexpr std::chrono::milliseconds kBetweenMessages{200};
constexpr const char* kReadyTarget = "p2pd-ready.target";
constexpr const char* kBroker = "p2pd.service";
constexpr std::string_view kNotes = "/run/motd.d/p2pd-notes";

void systemctl(const char* verb, const char* unit) {
  const auto done = ProcessRunner().run({{"systemctl", "--no-block", verb, unit}});
  if (!done) log::warning("{}", done.error().message);
}

/// Entry of the journal about the state of a run; one without a message id is not explained further.
struct Message {
  std::string_view id;
  log::Level level = log::Level::info;
};
Message message_of(const Run& run) {
  switch (run.state) {
    case RunState::blocked: return {message_id::kBlocked, log::Level::warning};
    case RunState::rebooting: return {message_id::kRebooting};
    case RunState::ready: return {message_id::kReady};
    case RunState::limited: return {message_id::kLimited, log::Level::warning};
    case RunState::failed: return {message_id::kFailed, log::Level::error};
    default: return {run.result == "reverted" || run.result == "cancelled" ? message_id::kReverted : ""};
  }
}

/// Writes an entry about a step that has changed, or that a fix has failed to change.
void tell_step(const std::string& step, std::string reason, std::string next, log::Level level, std::string_view text) {
  const log::Field id("MESSAGE_ID", std::string(message_id::kStepChanged)), name("P2PD_STEP", step);
  const log::Field why("P2PD_REASON", std::move(reason)), then("P2PD_NEXT", std::move(next));
  log::write(level, "{}: {}", step, text);
}

}  // namespace

void Publisher::begin(std::string_view step, const char* doing, std::string_view message) {
  activity_ = {true, std::string(step), doing, std::string(message), iso_time(std::chrono::system_clock::now())};
}

void Publisher::checking(const Step& step) {
  if (step.id.empty()) return;  // check whether an undone change is still in effect
  lock_.reset();
  begin(step.id, "checking");
  publish();
}

void Publisher::checked(const Step& step, const Finding& finding) {
  StepRecord& known = steps_[step.id];
  nlohmann::json now = to_json(finding);
  const bool news = known.finding.value("verdict", "") != now.value("verdict", "") ||
                    known.finding.value("summary", "") != now.value("summary", "");
  known.finding = std::move(now);
  if (finding.holds() && known.status != StepStatus::fixed) known.status = StepStatus::holds;
  if (!finding.holds() && known.status == StepStatus::holds) known.status = StepStatus::waiting;
  if (news)
    tell_step(step.id, finding.summary, finding.next, log::Level::info,
              fmt::format("{}: {}", to_string(finding.verdict), finding.summary));
  publish();
}

void Publisher::fixing(const Step& step) {
  begin(step.id, "fixing");
  follow_ready_file();
  lock("changing this machine: " + step.title);
  const log::Field name("P2PD_STEP", step.id);
  log::info("{}: applying fix: {}", step.id, step.title);
  publish();
}

void Publisher::fixed(const Step& step, const StepRecord& known, const Result<void>& result) {
  lock_.reset();
  steps_[step.id] = known;
  if (result)
    tell_step(step.id, std::string(to_string(known.status)), "", log::Level::info, "fix applied");
  else
    tell_step(step.id, result.error().message, result.error().next, log::Level::error, result.error().message);
  begin(step.id, "checking");
  publish();
}

void Publisher::undoing(std::string_view step) {
  begin(step, "undoing");
  lock(fmt::format("undoing {}", step));
  log::info("{}: undoing", step);
  publish();
}

void Publisher::waiting(std::string_view why) {
  lock_.reset();
  if (activity_.doing == "waiting" && activity_.message == why) return;
  log::info("waiting: {}", why);
  begin("", "waiting", why);
  publish();
}

void Publisher::run_changed(const Run& run, const Plan&, const std::map<std::string, StepRecord>& steps) {
  const bool started = run.id != run_.id && run.reboot_from == "-";
  run_ = run;
  steps_ = steps;
  activity_ = {};
  activity_.at_work = run.state == RunState::walking || run.state == RunState::reverting;
  error_.reset();
  lock_.reset();
  const bool superseded = run.result == "superseded";  // another run begins immediately after it
  told_ = true;
  if (!superseded) mailbox_.note(run);
  if (systemd_ && !std::exchange(broker_started_, true)) systemctl("start", kBroker);  // for clients on the bus
  plan_field_.emplace("P2PD_PLAN", run.plan);
  run_field_.emplace("P2PD_RUN", std::to_string(run.id));
  if (started) {
    const log::Field id("MESSAGE_ID", std::string(message_id::kRunStarted));
    log::info("run {} of plan {} begins", run.id, run.plan);
  }
  tell(run);
  publish();
  if (is_proven(run.state) || run.state == RunState::idle) publish_notes();
  if (begun && !superseded) std::exchange(begun, nullptr)(run);
}

void Publisher::tell(const Run& run) {
  const Message message = message_of(run);
  const log::Field state("P2PD_STATE", std::string(to_string(run.state)));
  const log::Field reason("P2PD_REASON", run.reason);
  const log::Field next("P2PD_NEXT", next_command(run));
  std::optional<log::Field> id;
  if (!message.id.empty()) id.emplace("MESSAGE_ID", std::string(message.id));
  log::write(message.level, "{}{}{}", to_string(run.state), run.reason.empty() ? "" : ": ", run.reason);
  follow_ready_file();
}

/// Writes the login notes: steps that hold with an action still to take. Removes the file once they are undone.
void Publisher::publish_notes() {
  FileState file;
  file.kind = FileState::Kind::regular;
  file.mode = 0644;
  for (const auto& [id, step] : steps_)
    if (is_proven(run_.state) && step.finding.value("verdict", "") == "pass" && step.finding.value("next", "") != "")
      file.content += fmt::format("p2pd: {}. {}\n", step.finding.value("summary", ""), step.finding.value("next", ""));
  Result<Root> root = Root::open("/");
  if (!root) return;
  const Result<void> done = file.content.empty() ? root->remove(kNotes) : root->put(kNotes, file);
  if (!done) log::warning("{}", done.error().message);
}

/// p2pd-ready.target is active while the ready file exists.
void Publisher::follow_ready_file() {
  if (!systemd_) return;
  const bool ready = ::access(ready_file().c_str(), F_OK) == 0;
  if (std::exchange(target_, ready) != ready) systemctl(ready ? "start" : "stop", kReadyTarget);
}

void Publisher::know(const Run& run, const std::vector<StepRecord>& steps) {
  run_ = run;
  for (const StepRecord& step : steps) steps_[step.step] = step;
}

void Publisher::message(std::string_view text) {
  if (activity_.doing != "fixing" && activity_.doing != "undoing") return;
  if (std::exchange(telling_, true)) return;  // a failure to publish is logged, and calls this function again
  activity_.message = text;
  if (std::chrono::steady_clock::now() - published_ > kBetweenMessages) publish();
  telling_ = false;
}

void Publisher::error(const std::optional<Error>& error) {
  error_ = error;
  publish();
}

void Publisher::rest() {
  activity_ = {};
  lock_.reset();
  if (told_ || error_) publish();
}

/// Takes the lock, which only prevents accidental restarts. The fix runs even without it.
void Publisher::lock(const std::string& why) {
  if (lock_) return;
  Result<Descriptor> lock = logind_.inhibit(why);
  if (lock) lock_ = *std::move(lock);
}

void Publisher::publish() {
  published_ = std::chrono::steady_clock::now();
  nlohmann::json status = status_of(run_, steps_, activity_);
  if (error_)
    status["error"] = {{"code", to_string(error_->code)}, {"message", error_->message}, {"next", error_->next}};
  FileState file;
  file.kind = FileState::Kind::regular;
  file.mode = 0644;
  file.content = without_user_info(status.dump(1, ' ', false, nlohmann::json::error_handler_t::replace)) + "\n";
  Result<Root> root = Root::open("/");
  const Result<void> put = root ? root->put(status_file(), file) : Failure(root.error());
  if (!put) log::error("{}", put.error().message);  // the walk continues: the journal has the full record
  const auto& progress = status["progress"];
  ::sd_notifyf(0, "STATUS=%s: %s%sstep %d of %d", std::string(to_string(run_.state)).c_str(), activity_.step.c_str(),
               activity_.step.empty() ? "" : ", ", progress["done"].get<int>(), progress["total"].get<int>());
}

}  // namespace p2pd
