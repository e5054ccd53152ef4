// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "base/descriptor.hpp"
#include "base/log.hpp"
#include "bus/logind.hpp"
#include "engine/seams.hpp"
#include "engine/status.hpp"
#include "worker/mailbox.hpp"

namespace p2pd {

/// Tells how the walk stands: in status.json, the journal, systemctl's status line and p2pd-ready.target. While a fix
/// runs it holds a lock of logind's, so that nobody restarts the machine in the middle by mistake.
class Publisher : public Observer {
 public:
  /// `systemd`: it runs here.
  Publisher(Mailbox& mailbox, bool systemd) : mailbox_(mailbox), systemd_(systemd) {}

  void checking(const Step& step) override;
  void checked(const Step& step, const Finding& finding) override;
  void fixing(const Step& step) override;
  void fixed(const Step& step, const StepRecord& known, const Result<void>& result) override;
  void undoing(std::string_view step) override;
  void run_changed(const Run& run, const Plan& plan, const std::map<std::string, StepRecord>& steps) override;
  void waiting(std::string_view why) override;

  /// The run that is about to be gone on with; nothing is published.
  void know(const Run& run, const std::vector<StepRecord>& steps);
  /// A line of what is going on.
  void message(std::string_view text);
  /// What keeps the worker from its work; none: that is over.
  void error(const std::optional<Error>& error);
  /// The worker is at rest.
  void rest();
  /// A walk is not at its end.
  bool walking() const { return told_ && (run_.state == RunState::walking || run_.state == RunState::reverting); }

  /// What to tell as soon as the run is known to have begun.
  std::function<void(const Run&)> begun;

 private:
  void publish();
  void publish_notes();
  void tell(const Run& run);
  void follow_ready_file();
  void lock(const std::string& why);

  Mailbox& mailbox_;
  Logind logind_;
  bool systemd_;
  Run run_;
  std::map<std::string, StepRecord> steps_;
  Activity activity_;
  std::optional<Error> error_;
  Descriptor lock_;
  std::optional<log::Field> plan_field_, run_field_;  ///< of every record of the journal while the run is walked
  bool broker_started_ = false;
  bool telling_ = false;
  bool told_ = false;             ///< of a run that is walked here
  std::optional<bool> target_;    ///< what p2pd-ready.target was last told
  std::chrono::steady_clock::time_point published_;
};

}  // namespace p2pd
