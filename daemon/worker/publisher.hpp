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

/// Publishes the state of the walk: in status.json, the journal, systemctl's status line and p2pd-ready.target. During
/// a fix it holds a lock of logind, so that no user restarts the machine by mistake.
class Publisher : public Observer {
 public:
  /// `systemd`: systemd runs on this machine.
  Publisher(Mailbox& mailbox, bool systemd) : mailbox_(mailbox), systemd_(systemd) {}

  void checking(const Step& step) override;
  void checked(const Step& step, const Finding& finding) override;
  void fixing(const Step& step) override;
  void fixed(const Step& step, const StepRecord& known, const Result<void>& result) override;
  void undoing(std::string_view step) override;
  void run_changed(const Run& run, const Plan& plan, const std::map<std::string, StepRecord>& steps) override;
  void waiting(std::string_view why) override;

  /// Sets the run that is about to continue; publishes nothing.
  void know(const Run& run, const std::vector<StepRecord>& steps);
  /// Sets the current output line.
  void message(std::string_view text);
  /// Publishes the error that stops the worker; nothing: no error any more.
  void error(const std::optional<Error>& error);
  /// Marks the worker as idle.
  void rest();

  /// called as soon as the run is known to have begun
  std::function<void(const Run&)> begun;

 private:
  void begin(std::string_view step, const char* doing, std::string_view message = {});
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
  std::optional<log::Field> plan_field_, run_field_;  ///< set on every record of the journal while the run is walked
  bool broker_started_ = false;
  bool telling_ = false;
  bool told_ = false;           ///< a run that is walked here has been published
  std::optional<bool> target_;  ///< last state requested for p2pd-ready.target
  std::chrono::steady_clock::time_point published_;
};

}  // namespace p2pd
