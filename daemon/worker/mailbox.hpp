// SPDX-License-Identifier: MIT
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "base/descriptor.hpp"
#include "bus/requests.hpp"
#include "engine/journal.hpp"

namespace p2pd {

/// Request with the function that takes its answer: called once, from any thread.
struct Posted : Request {
  std::function<void(const Answer&)> answer;
};

/// Requests from the loop to the thread of the walk. An accepted request survives a kill of the worker, in
/// RUNTIME/asked. During a walk each request is answered at once, and the walk gets the last one between two steps.
/// Otherwise a request waits until the worker takes it.
class Mailbox {
 public:
  /// `configured`: the plan of an apply without a plan.
  explicit Mailbox(std::string configured = {});

  // Used by the loop.
  void post(Posted request);
  void stop();                   ///< after SIGTERM
  std::optional<Posted> next();  ///< request that waits

  // Used by the walk.
  std::optional<Event> poll();
  /// Readable when running commands must end, because p2pd stops or undoes their changes.
  int halt_fd() const { return halt_.get(); }
  bool stopping() const;
  std::optional<Event> asked() const;  ///< request that poll() will return
  void done_with(Event event);         ///< cancels the request for poll()
  bool has_waiting() const;            ///< true if next() would return one

  /// Begins a walk: requests posted from now on are answered with its state, which `note` sets.
  void begin();
  void note(const Run& run);
  /// Ends the walk. Returns a request that was accepted and is still to be handled.
  std::optional<Event> end();

 private:
  Answer take_while_walking(const Request& request);
  void remember() const;

  std::string configured_;
  mutable std::mutex mutex_;
  std::deque<Posted> waiting_;
  std::optional<Event> asked_;
  std::optional<Event> told_;  ///< returned to the walk, which is about to act on it
  std::optional<Run> run_;     ///< run that is being walked
  bool walking_ = false;
  bool stopping_ = false;
  Descriptor halt_;
};

}  // namespace p2pd
