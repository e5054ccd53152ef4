// SPDX-License-Identifier: MIT
#include "worker/mailbox.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/directories.hpp"
#include "base/parameters.hpp"
#include "plan/plan.hpp"

namespace p2pd {
namespace {

using nlohmann::json;

constexpr std::size_t kWaiting = 16;
constexpr Event kRequests[] = {Event::apply, Event::pause, Event::resume, Event::retry, Event::cancel, Event::revert};

std::string asked_file() { return runtime_directory() + "/asked"; }

/// True if the run leaves its restarts to the operator.
bool is_external(const Run& run) {
  const json plan = parse_json(run.resolved);
  return plan.is_object() && plan.value(nlohmann::json::json_pointer("/policy/reboot"), "") == to_string(RebootPolicy::external);
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

Error busy(const Run& run, std::string_view wanted, bool undoing) {
  return {ErrorCode::state,
          fmt::format("run {} of plan {} is {}: it cannot {} now", run.id, run.plan,
                      undoing ? "being undone" : to_string(run.state), wanted),
          "\"p2pctl status --watch\" follows it, \"p2pctl cancel\" undoes it"};
}

}  // namespace

Result<Request> parse_request(std::string_view line) {
  const json words = parse_json(line);
  if (!words.is_object() || !words.contains("do") || !words["do"].is_string())
    return fail(ErrorCode::invalid, "expected a line of JSON like {\"do\": \"apply\", \"plan\": \"NAME\"}");
  const auto event = std::ranges::find(kRequests, words["do"].get<std::string>(), [](Event e) { return std::string(to_string(e)); });
  if (event == std::end(kRequests)) return fail(ErrorCode::invalid, fmt::format("nothing is called {}", words["do"].dump()));
  Request request;
  request.event = *event;
  for (const auto& [key, value] : words.items()) {
    if (key == "do") continue;
    if (request.event != Event::apply) return fail(ErrorCode::invalid, fmt::format("\"{}\" goes with apply alone", key));
    if (key == "plan" && value.is_string() && (value == "" || is_name(value.get<std::string>())))
      request.plan = value;
    else if (key == "reboot" && value.is_boolean())
      request.reboot = value;
    else
      return fail(ErrorCode::invalid, fmt::format("\"{}\": not a value that it can have", key),
                  key == "plan" ? "a plan is named by a-z, 0-9 and -; its file lies in /etc/p2pd/plans" : "");
  }
  return request;
}

json answer_of(const Run& run) { return {{"ok", true}, {"run", run.id}, {"state", to_string(run.state)}}; }

json answer_of(const Error& error) {
  return {{"ok", false}, {"code", to_string(error.code)}, {"message", error.message}, {"next", error.next}};
}

Mailbox::Mailbox(std::string configured)
    : configured_(std::move(configured)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      halt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
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

void Mailbox::post(Request request) {
  json answer;
  {
    const std::lock_guard lock(mutex_);
    if (walking_ && run_ && !told_ && !is_at_rest(run_->state)) {
      answer = take_while_walking(request);
    } else if (stopping_ || waiting_.size() >= kWaiting) {
      answer = answer_of(Error{ErrorCode::busy, stopping_ ? "p2pd-worker is ending" : "too many requests wait", "try again"});
    } else {
      waiting_.push_back(std::move(request));
      raise(wake_);
      return;
    }
  }
  request.answer(answer);
}

/// Answers a request during a walk. The last one wins, but after a cancel or revert nothing continues the run.
json Mailbox::take_while_walking(const Request& request) {
  const bool undoing = run_->state == RunState::reverting || undoes(asked_);
  switch (request.event) {
    case Event::apply:
      if (const std::string& plan = request.plan.empty() ? configured_ : request.plan; undoing || plan != run_->plan)
        return answer_of(busy(*run_, "apply " + plan, undoing));
      if (!request.reboot && !is_external(*run_)) return answer_of(busy(*run_, "leave its restarts to somebody else", undoing));
      asked_.reset();
      break;
    case Event::resume:
    case Event::retry:
    case Event::pause:
      if (undoing) return answer_of(busy(*run_, to_string(request.event), undoing));
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
  return answer_of(*run_);
}

void Mailbox::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  raise(halt_);
  raise(wake_);
}

std::optional<Event> Mailbox::poll() {
  const std::lock_guard lock(mutex_);
  if (stopping_) return Event::stopped;
  if (!asked_) return std::nullopt;
  lower(halt_);
  told_ = std::exchange(asked_, std::nullopt);
  remember();
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

std::optional<Request> Mailbox::wait(std::chrono::milliseconds patience) {
  pollfd woken{wake_.get(), POLLIN, 0};
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      lower(wake_);
      if (stopping_) return std::nullopt;
      if (!waiting_.empty()) {
        Request request = std::move(waiting_.front());
        waiting_.pop_front();
        return request;
      }
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0) return std::nullopt;
    ::poll(&woken, 1, static_cast<int>(left));
  }
}

void Mailbox::begin() {
  const std::lock_guard lock(mutex_);
  walking_ = true;
  told_.reset();
}

void Mailbox::note(const Run& run) {
  std::vector<std::pair<Request, json>> answered;
  {
    const std::lock_guard lock(mutex_);
    if (!walking_) return;
    run_ = run;
    told_.reset();
    if (is_at_rest(run.state)) return;  // the worker takes waiting requests once the walk has ended
    for (Request& request : waiting_) {  // requests that came before the run and its state were known
      json answer = take_while_walking(request);
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
