// SPDX-License-Identifier: MIT
#include "worker/job_runner.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "base/directories.hpp"
#include "base/log.hpp"

namespace p2pd {
namespace {

constexpr const char* kUnit = "p2pd-job.service";
constexpr std::chrono::milliseconds kBetweenLooks{300};
constexpr int kShareOfAsking = 10;  // queries of systemd take a tenth of the time at most
constexpr std::chrono::seconds kStartLimit{20};
constexpr std::chrono::hours kLongest{2};
constexpr int kTries = 10;
constexpr std::chrono::milliseconds kBetweenTries{500};

using Properties = std::map<std::string, std::string>;

Result<std::string> ask(const std::vector<std::string>& argv) {
  ProcessRunner runner;  // not stopped with the worker, which must still query the job
  const Command command{argv};
  CommandResult result = TRY(runner.run(command));
  TRY(require_success(command, result));
  return std::move(result.output);
}

/// Repeats the query while systemd re-executes itself and does not answer.
Result<std::string> ask_until_answered(const std::vector<std::string>& argv) {
  for (int tries = 1;; ++tries) {
    Result<std::string> answer = ask(argv);
    if (answer || tries == kTries) return answer;
    std::this_thread::sleep_for(kBetweenTries);
  }
}

Result<Properties> unit_now() {
  std::istringstream lines(TRY(
      ask_until_answered({"systemctl", "show", kUnit, "--property=ActiveState,ExecMainCode,ExecMainStatus,Result"})));
  Properties properties;
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t at = line.find('='); at != std::string::npos)
      properties[line.substr(0, at)] = line.substr(at + 1);
  return properties;
}

bool runs(const Properties& unit) {
  const std::string& state = unit.at("ActiveState");
  return state == "activating" || state == "deactivating" || state == "reloading";
}

/// Removes the unit of a job that has ended.
void clear(const Properties& unit) {
  const std::string& state = unit.at("ActiveState");
  if (state == "inactive") return;
  (void)ask_until_answered({"systemctl", state == "failed" ? "reset-failed" : "stop", kUnit}).has_value();
}

/// True if the job's control group has a process. Needs no query of systemd. False if there is no group yet.
bool populated() {
  std::ifstream events(fmt::format("/sys/fs/cgroup/system.slice/{}/cgroup.events", kUnit));
  int value = 0;
  for (std::string key; events >> key >> value;)
    if (key == "populated") return value == 1;
  return false;
}

std::string output_file(const char* stream) { return fmt::format("{}/job.{}", runtime_directory(), stream); }

std::vector<std::string> start_line(const Command& command) {
  std::vector<std::string> argv = {"systemd-run",
                                   "--quiet",
                                   "--no-block",
                                   fmt::format("--unit={}", kUnit),
                                   "--description=p2pd: " + command.argv.front(),
                                   "--property=Type=oneshot",
                                   "--property=RemainAfterExit=yes",
                                   "--property=KillSignal=SIGCONT",
                                   "--property=TimeoutStopSec=30min",
                                   "--property=UMask=0022",
                                   "--property=StandardOutput=truncate:" + output_file("out"),
                                   "--property=StandardError=truncate:" + output_file("err")};
  for (const auto& [name, value] : command.full_environment())
    argv.push_back(fmt::format("--setenv={}={}", name, value));
  argv.emplace_back("--");
  argv.insert(argv.end(), command.argv.begin(), command.argv.end());
  return argv;
}

/// Lines added to a file since the last look.
class Tail {
 public:
  explicit Tail(std::string path) : path_(std::move(path)) {}
  void look(const std::function<void(std::string_view)>& on_line) {
    std::ifstream file(path_);
    file.seekg(static_cast<std::streamoff>(all_.size()));
    std::ostringstream more;
    more << file.rdbuf();
    all_ += more.str();
    if (all_.size() > CommandResult::kOutputLimit) all_.resize(CommandResult::kOutputLimit);
    for (std::size_t end; (end = all_.find('\n', told_)) != std::string::npos; told_ = end + 1)
      if (on_line) on_line(std::string_view(all_).substr(told_, end - told_));
  }
  std::string take() { return std::move(all_); }

 private:
  std::string path_;
  std::string all_;
  std::size_t told_ = 0;
};

}  // namespace

Result<CommandResult> JobRunner::run(const Command& command) {
  if (!systemd_ || !command.own_unit || !command.input.empty()) return inner_.run(command);
  TRY(wait_for_last());
  for (const char* stream : {"out", "err"}) ::unlink(output_file(stream).c_str());  // files of the last job
  const Result<std::string> started = ask(start_line(command));
  if (!started && !runs(TRY(unit_now())))  // otherwise only the answer was lost
    return Failure(Error(started.error()).in("`" + command.text() + "`"));
  return follow(command);
}

Result<void> JobRunner::wait_for_last() {
  if (!systemd_) return {};
  const auto until = std::chrono::steady_clock::now() + kLongest;
  bool told = false;
  Properties unit = TRY(unit_now());
  for (; runs(unit); unit = TRY(unit_now())) {
    if (!std::exchange(told, true)) log::info("waiting for {}, started before p2pd was restarted", kUnit);
    if (mailbox_.stopping()) return fail(ErrorCode::interrupted, fmt::format("{} continues without p2pd", kUnit));
    if (std::chrono::steady_clock::now() > until)
      return fail(ErrorCode::timeout, fmt::format("{} still runs", kUnit),
                  fmt::format("See \"systemctl status {}\".", kUnit));
    std::this_thread::sleep_for(kBetweenLooks);
  }
  clear(unit);
  return {};
}

Result<void> JobRunner::refuse_while_last_runs() {
  if (systemd_ && runs(TRY(unit_now())))
    return fail(ErrorCode::busy, fmt::format("{} still runs, started before p2pd was restarted", kUnit));
  return {};
}

Result<CommandResult> JobRunner::follow(const Command& command) {
  Tail output(output_file("out")), errors(output_file("err"));
  const auto until = std::chrono::steady_clock::now() + command.deadline;
  bool late = false, begun = false;
  const auto begun_until = std::chrono::steady_clock::now() + kStartLimit;
  const auto& on_line = command.on_line ? command.on_line : on_line_;
  for (auto ask_at = std::chrono::steady_clock::now();; std::this_thread::sleep_for(kBetweenLooks)) {
    output.look(on_line);
    errors.look(on_line);
    if (mailbox_.stopping()) return fail(ErrorCode::interrupted, "`" + command.text() + "` continues in " + kUnit);
    if (std::chrono::steady_clock::now() > until &&
        !std::exchange(late, true))  // not killed: that would interrupt dpkg
      log::warning("`{}` takes long; see \"systemctl status {}\"", command.text(), kUnit);
    const auto asked_at = std::chrono::steady_clock::now();
    const bool left = populated();
    begun = begun || left;
    if (asked_at < ask_at && (left || !begun)) continue;
    const Properties unit = TRY(unit_now());
    ask_at = asked_at + kShareOfAsking * (std::chrono::steady_clock::now() - asked_at);
    const bool waits =
        unit.at("ActiveState") == "inactive";  // the unit stays after its exit: not yet started, or stopped
    if (waits && std::chrono::steady_clock::now() > begun_until)
      return fail(ErrorCode::command, fmt::format("`{}`: {} was stopped", command.text(), kUnit));
    if (!waits && !runs(unit)) {
      CommandResult result;
      const int status = std::atoi(unit.at("ExecMainStatus").c_str());
      result.status = unit.at("ExecMainCode") == "1" ? status : 128 + status;  // 1: CLD_EXITED
      if (unit.at("Result") != "success" && result.status == 0) result.status = 255;
      output.look(on_line);
      errors.look(on_line);
      result.output = output.take();
      result.errors = errors.take();
      clear(unit);
      return result;
    }
  }
}

}  // namespace p2pd
