// SPDX-License-Identifier: MIT
#include "worker/mailbox.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <fstream>

#include "base/directories.hpp"
#include "base/json.hpp"
#include "plan/plan.hpp"

namespace p2pd {
namespace {

using nlohmann::json;

constexpr std::size_t kWaiting = 16;

std::string asked_file() { return runtime_directory() + "/asked"; }

/// True if the run leaves its restarts to the operator.
bool is_external(const Run& run) {
  const json plan = parse_json(run.resolved);
  return plan.is_object() &&
         plan.value(nlohmann::json::json_pointer("/policy/reboot"), "") == to_string(RebootPolicy::external);
}

void raise(const Descriptor& event) { ::eventfd_write(event.get(), 1); }

void lower(const Descriptor& event) {
  eventfd_t value = 0;
  ::eventfd_read(event.get(), &value);
}

/// True if the walk in this state ends soon and reads no further request.
bool is_at_rest(RunState state) {
  return state != RunState::walking && state != RunState::rebooting && state != RunState::reverting;
}

bool undoes(std::optional<Event> event) { return event == Event::cancel || event == Event::revert; }

Failure busy(const Run& run, std::string_view wanted, bool undoing) {
  return fail(ErrorCode::state,
              fmt::format("run {} of plan {} is {}: it cannot {} now", run.id, run.plan,
                          undoing ? "being undone" : to_string(run.state), wanted),
              "\"p2pctl status --watch\" follows it, \"sudo p2pctl cancel\" undoes it");
}

}  // namespace

Mailbox::Mailbox(std::string configured)
    : configured_(std::move(configured)), halt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  std::string word;
  std::ifstream(asked_file()) >> word;
  for (const Event event : {Event::pause, Event::cancel, Event::revert})
    if (word == to_string(event)) asked_ = event;
}

void Mailbox::remember() const {
  if (asked_)
    std::ofstream(asked_file()) << to_string(*asked_) << '\n';
  else
    ::unlink(asked_file().c_str());
}

void Mailbox::post(Posted request) {
  Answer answer;
  {
    const std::lock_guard lock(mutex_);
    if (walking_ && run_ && !told_ && !is_at_rest(run_->state)) {
      answer = take_while_walking(request);
    } else if (stopping_ || waiting_.size() >= kWaiting) {
      answer = fail(ErrorCode::busy, stopping_ ? "p2pd-worker is ending" : "too many requests wait", "try again");
    } else {
      waiting_.push_back(std::move(request));
      return;
    }
  }
  request.answer(answer);
}

/// Answers a request during a walk. The last one wins, but after a cancel or revert nothing continues the run.
Answer Mailbox::take_while_walking(const Request& request) {
  const bool undoing = run_->state == RunState::reverting || undoes(asked_);
  switch (request.event) {
    case Event::apply:
      if (const std::string& plan = request.plan.empty() ? configured_ : request.plan; undoing || plan != run_->plan)
        return busy(*run_, "apply " + plan, undoing);
      if (!request.reboot && !is_external(*run_)) return busy(*run_, "apply without restarts", undoing);
      asked_.reset();
      break;
    case Event::resume:
    case Event::retry:
    case Event::pause:
      if (undoing) return busy(*run_, to_string(request.event), undoing);
      asked_ = request.event == Event::pause ? std::optional(Event::pause) : std::nullopt;
      break;
    case Event::cancel:
    case Event::revert:
      if (run_->state == RunState::reverting && request.event == Event::cancel) break;
      asked_ = request.event;
      if (!undoing) raise(halt_);  // an undo is not interrupted
      break;
    default: break;
  }
  remember();
  return static_cast<std::uint64_t>(run_->id);
}

void Mailbox::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  raise(halt_);
}

std::optional<Event> Mailbox::poll() {
  const std::lock_guard lock(mutex_);
  if (stopping_) return Event::stopped;
  if (!asked_) return std::nullopt;
  lower(halt_);
  told_ = std::exchange(asked_, std::nullopt);
  if (!undoes(told_)) remember();  // an undo is checked first: a kill before its state is known must not lose it
  return told_;
}

void Mailbox::done_with(Event event) {
  const std::lock_guard lock(mutex_);
  if (asked_ != event) return;
  told_ = std::exchange(asked_, std::nullopt);
  remember();
}

bool Mailbox::stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

std::optional<Event> Mailbox::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

bool Mailbox::has_waiting() const {
  const std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

std::optional<Posted> Mailbox::next() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return std::nullopt;
  Posted request = std::move(waiting_.front());
  waiting_.pop_front();
  return request;
}

void Mailbox::begin() {
  const std::lock_guard lock(mutex_);
  walking_ = true;
  told_.reset();
}

void Mailbox::note(const Run& run) {
  std::vector<std::pair<Posted, Answer>> answered;
  {
    const std::lock_guard lock(mutex_);
    if (!walking_) return;
    run_ = run;
    told_.reset();
    remember();
    if (is_at_rest(run.state)) return;  // the worker takes waiting requests once the walk has ended
    for (Posted& request : waiting_) {  // requests that came before the run and its state were known
      Answer answer = take_while_walking(request);
      answered.emplace_back(std::move(request), std::move(answer));
    }
    waiting_.clear();
  }
  for (const auto& [request, answer] : answered) request.answer(answer);
}

std::optional<Event> Mailbox::end() {
  const std::lock_guard lock(mutex_);
  walking_ = false;
  run_.reset();
  if (stopping_) return std::nullopt;  // the next start reads the request
  lower(halt_);
  const std::optional<Event> promised = std::exchange(asked_, std::nullopt);
  remember();
  return promised;
}

}  // namespace p2pd
