// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "base/descriptor.hpp"
#include "base/json.hpp"
#include "engine/journal.hpp"
#include "engine/seams.hpp"

namespace p2pd {

/// What somebody asked of the worker. `answer` is called once, from any thread.
struct Request {
  Event event = Event::apply;  ///< apply, pause, resume, retry, cancel or revert
  std::string plan;            ///< of apply; empty: the configured one
  bool reboot = true;          ///< of apply: false leaves restarts to somebody else
  std::function<void(const nlohmann::json&)> answer;
};

/// Reads one line of the socket: {"do": "apply", "plan": "NAME", "reboot": true}.
Result<Request> parse_request(std::string_view line);

nlohmann::json answer_of(const Run& run);
nlohmann::json answer_of(const Error& error);

/// Requests on their way from the listener's thread to the walk. What was promised to somebody outlives a kill of the
/// worker: RUNTIME/asked. While a run is walked each is answered at once, and the
/// walk hears of the last one between two steps; else it waits until the worker takes it.
class Mailbox : public Requests {
 public:
  /// `configured`: the plan of an apply that names none.
  explicit Mailbox(std::string configured = {});

  // For the listener.
  void post(Request request);
  void stop();  ///< SIGTERM came

  // For the walk.
  std::optional<Event> poll() override;
  /// Readable: commands end now, because p2pd is to stop, or what they do is to be undone.
  int halt_fd() const { return halt_.get(); }
  bool stopping() const;
  std::optional<Event> asked() const;  ///< what poll() will tell
  void done_with(Event event);         ///< poll() need not tell it any more
  bool has_waiting() const;            ///< wait() would return at once

  // For the worker.
  /// The next request; nothing after `patience`, or when p2pd is to stop.
  std::optional<Request> wait(std::chrono::milliseconds patience);
  /// A walk began: what is posted from now on is answered with how it stands, which `note` says.
  void begin();
  void note(const Run& run);
  /// The walk has come to its end; what was promised to somebody and is still to do.
  std::optional<Event> end();

 private:
  nlohmann::json take_while_walking(const Request& request);
  void remember() const;

  std::string configured_;
  mutable std::mutex mutex_;
  std::deque<Request> waiting_;
  std::optional<Event> asked_;
  std::optional<Event> told_;  ///< to the walk, which is about to act on it
  std::optional<Run> run_;  ///< that is walked
  bool walking_ = false;
  bool stopping_ = false;
  Descriptor wake_;
  Descriptor halt_;
};

}  // namespace p2pd
