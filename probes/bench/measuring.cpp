// SPDX-License-Identifier: MIT
// Measuring process, and its output to the requesting process: lines that begin with a mark, then the measurement.
#include "probes/bench/measuring.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <sstream>
#include <thread>

#include "probes/bench/collectives/collectives.hpp"
#include "probes/bench/report/machine.hpp"

namespace p2pd::bench {
namespace {

constexpr const char* kKernelCache =
    "/var/cache/p2pd/cuda";  // owned by root: CUDA's compiled kernels; otherwise in the home of root

constexpr int kNoMeasurement = 1;  // exit status

constexpr std::size_t kFewPairs = 12;  // with more pairs, results at each transfer or sample would be too large

/// Variables that the measuring process inherits: library paths, and settings of NCCL.
std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> out{{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}, {"CUDA_MODULE_LOADING", "EAGER"}};
  if (std::error_code error; ::geteuid() == 0 && (std::filesystem::create_directories(kKernelCache, error) || !error))
    out["CUDA_CACHE_PATH"] = kKernelCache;
  for (const auto& [name, value] : own_environment()) {
    const bool of_tests = name.starts_with("P2PD_SIM_") || name.starts_with("P2PD_LIE") || name == "P2PD_REAL_LIBCUDA";
    if (name == "LD_LIBRARY_PATH" || name.starts_with("NCCL_") || of_tests) out[name] = value;
  }
  return out;
}

void say(std::string_view mark, std::string_view text) {
  fmt::print("{}{}\n", mark, text);
  std::fflush(stdout);
}

int say_error(const Error& error, int code) {
  say("", nlohmann::json{{"error", error.message}, {"code", to_string(error.code)}, {"next", error.next}}.dump());
  return code;
}

std::string text_of(const Measurement& found) {
  return json_of(found).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Longest time without an answer of the GPUs. If only transfers are under way: 10 s, in a soak
/// 20 s, and the time of all data at 1 GB/s.
std::chrono::milliseconds patience(std::string_view phase, const Measurement& sofar, int deadline_s) {
  constexpr std::string_view kTransfers[] = {
      "copies through the host", "enabling peers", "bytes", "handshakes", "mappings", "speed", kSoak};
  constexpr double kLeastGbS = 1;
  const std::chrono::milliseconds most = std::chrono::seconds(deadline_s);
  if (std::ranges::find(kTransfers, phase) == std::end(kTransfers)) return most;
  double bytes = 0;
  for (const Gpu& gpu : sofar.gpus)
    bytes += static_cast<double>(gpu.arena_bytes) * static_cast<double>(sofar.gpus.size() - 1);
  const long least_ms = phase == kSoak ? 20'000 : 10'000;  // its all-reduce has 10 s of its own
  return std::min(most, std::chrono::milliseconds(least_ms + static_cast<long>(bytes / kLeastGbS / 1e6)));
}

/// Ends this process, with an error, if the GPUs do not answer in time: a thread that waits for them never returns.
class Watch {
 public:
  Watch() : thread_([this] { run(); }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void answered(std::string_view phase, std::string_view transfer, std::chrono::milliseconds patience) {
    const std::lock_guard lock(mutex_);
    if (!transfer.empty() || phase != phase_) transfer_ = transfer;
    phase_ = phase;
    patience_ = patience;
    until_ = Clock::now() + patience;
    changed_.notify_all();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void run() {
    std::unique_lock lock(mutex_);
    while (!ended_) {
      changed_.wait_until(lock, until_);
      if (ended_ || Clock::now() < until_) continue;
      if (!transfer_.empty()) say(kTransferMark, transfer_);
      const double seconds = static_cast<double>(patience_.count()) / 1000;
      say_error({ErrorCode::timeout,
                 fmt::format("the GPUs did not answer within {:.3g} s; under way: {}", seconds, phase_), ""},
                kNoMeasurement);
      ::_exit(kNoMeasurement);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string phase_;
  std::string transfer_;
  std::chrono::milliseconds patience_{};
  Clock::time_point until_ = Clock::now() + std::chrono::hours(1);
  bool ended_ = false;
  std::thread thread_;  // last: it uses the others
};

/// Output in a soak, which may last for days: each sample once, and at least a line a second.
class SoakVoice {
 public:
  void say_progress(const Measurement& found) {
    const auto now = std::chrono::steady_clock::now();
    const bool sampled = found.soak && !found.soak->samples.empty() && found.soak->samples.back().seconds != sampled_s_;
    if (!sampled && now - said_ < std::chrono::seconds(1)) return;
    said_ = now;
    say(kPhaseMark, kSoak);
    if (!sampled) return;
    sampled_s_ = found.soak->samples.back().seconds;
    if (found.pairs.size() <= kFewPairs || found.soak->samples.back().rounds == 0) say(kSofarMark, text_of(found));
    say(kSampleMark, json_of(found.soak->samples.back()).dump());
  }

 private:
  double sampled_s_ = -1;
  std::chrono::steady_clock::time_point said_{};
};

Result<Measurement> read_measurement(const Command& command, const CommandResult& result) {
  const std::size_t end = result.output.find_last_not_of('\n');
  const std::size_t start = end == std::string::npos ? 0 : result.output.rfind('\n', end) + 1;
  const auto last = parse_json(result.output.substr(start));
  if (last.is_object() && last.contains("error")) {
    const std::string code = last.value("code", "io");
    const ErrorCode why = code == "not_found" ? ErrorCode::not_found
                          : code == "timeout" ? ErrorCode::timeout
                                              : ErrorCode::io;
    return fail(why, last.value("error", ""), last.value("next", ""));
  }
  TRY(require_success(command, result));
  return TRY_IN("the measuring process said something else than a measurement", measurement_from(last));
}

Result<Measurement> measure_once(const Apart& apart, bool alone, CommandRunner& runner, Listener& listener) {
  constexpr std::chrono::seconds kLonger{2};  // added to the process's own limit: its error has more detail
  Command command;
  command.argv = {"/proc/self/exe", "--worker", "--root", apart.root, "--deadline", std::to_string(apart.deadline_s)};
  for (const auto& [flag, set] :
       {std::pair("--quick", apart.asked.quick), std::pair("--full", apart.asked.full),
        std::pair("--sweep", apart.asked.sweep), std::pair("--all-pairs", apart.asked.all_pairs),
        std::pair("--managed", apart.asked.managed), std::pair("--compressible", apart.asked.compressible),
        std::pair("--alone", alone)})
    if (set) command.argv.emplace_back(flag);
  if (apart.asked.soak_minutes > 0)
    command.argv.insert(command.argv.end(), {"--soak", fmt::format("{}", apart.asked.soak_minutes)});
  if (!apart.asked.tests.empty())
    command.argv.insert(command.argv.end(), {"--test", fmt::format("{}", fmt::join(apart.asked.tests, ","))});
  command.argv.insert(command.argv.end(), {"--iterations", std::to_string(apart.asked.iterations), "--buffer-size",
                                           std::to_string(apart.asked.buffer_mib)});
  if (!apart.asked.without.empty())
    command.argv.insert(command.argv.end(), {"--exclude", fmt::format("{}", fmt::join(apart.asked.without, ","))});
  if (!apart.asked.fault.empty()) command.argv.insert(command.argv.end(), {"--fault", apart.asked.fault});
  command.environment = environment();
  command.deadline = std::chrono::seconds(apart.deadline_s) + kLonger;
  command.while_silent = true;
  command.on_line = [&](std::string_view line) { listener.line(line); };
  listener.restart();
  Result<CommandResult> result = runner.run(command);
  listener.clear();
  if (result) return read_measurement(command, *result);
  if (result.error().code != ErrorCode::timeout) return Failure(std::move(result).error());
  return fail(ErrorCode::timeout,
              fmt::format("the GPUs did not answer within {} s; under way: {}", apart.deadline_s, listener.phase()));
}

/// Runs a soak once, and returns its results, however it ended.
Result<Measurement> soak_apart(const Apart& apart, CommandRunner& runner, Listener& listener) {
  Result<Measurement> found = measure_once(apart, false, runner, listener);
  if (found) {
    const bool right = found->wrong.empty();
    const bool hung = std::ranges::find(found->wrong, WrongKind::hung, &Wrong::kind) != found->wrong.end();
    return listener.soak().complete(std::move(*found), right ? "complete" : hung ? "hung" : "wrong");
  }
  const Error& why = found.error();
  if (why.code == ErrorCode::timeout)
    if (auto named = listener.hung(why.message)) return listener.soak().complete(std::move(*named), "hung");
  if (why.code == ErrorCode::interrupted)
    if (auto so_far = listener.so_far()) return listener.soak().complete(std::move(*so_far), "interrupted");
  return found;
}

/// True if an error of the driver ended the run, at a transfer that is known or not.
bool ended(const Measurement& found, bool known) {
  return std::ranges::any_of(found.wrong,
                             [&](const Wrong& w) { return w.kind == WrongKind::faulted && (w.from >= 0) == known; });
}

}  // namespace

// ---- measuring process ---------------------------------------------------------------------------------------------

int measuring_process(const Apart& apart, const Root& root) {
  ProcessRunner runner;
  bool told = false;
  std::optional<Watch> watch;
  std::string phase_before;
  SoakVoice soak;
  const auto progress = [&](std::string_view phase, std::string_view transfer, const Measurement& sofar) {
    // no thread before the second process has been forked
    if (!watch && !sofar.gpus.empty()) watch.emplace();
    if (watch) watch->answered(phase, transfer, patience(phase, sofar, apart.deadline_s));
    if (phase == kSoak) return soak.say_progress(sofar);
    say(kPhaseMark, phase);
    if (apart.asked.alone && (phase != phase_before || sofar.pairs.size() <= kFewPairs))
      say(kSofarMark, text_of(sofar));
    if (!transfer.empty()) say(kTransferMark, transfer);
    phase_before = phase;
    if (told || sofar.gpus.empty()) return;
    told = true;
    std::string addresses;
    for (const Gpu& gpu : sofar.gpus) addresses += gpu.address + " ";
    say(kGpusMark, addresses);
  };
  Host host(root, runner);
  host.leave_out_gpus(apart.asked.without);
  host.require_all_gpus(apart.asked.all_pairs);
  const Result<Measurement> found = measure(*host.snapshot(), apart.asked, progress);
  watch.reset();
  if (!found) return say_error(found.error(), kNoMeasurement);
  say("", text_of(*found));
  return 0;
}

// ---- requesting process --------------------------------------------------------------------------------------------

Result<Measurement> measure_apart(const Apart& apart, CommandRunner& runner, Listener& listener) {
  if (apart.asked.soak_minutes > 0) return soak_apart(apart, runner, listener);
  Result<Measurement> first = measure_once(apart, false, runner, listener);
  const bool hung = !first && first.error().code == ErrorCode::timeout;
  if (!hung && (!first || !ended(*first, false))) return first;
  const std::string phase = listener.phase();
  Result<Measurement> again = measure_once(apart, true, runner, listener);
  if (again && (ended(*again, true) || (!hung && ended(*again, false)))) return again;
  if (again && hung) {
    again->wrong.push_back({phase, -1, -1, 0, 0, 0, WrongKind::hung,
                            first.error().message + "; with one transfer at a time they do", "", ""});
    return again;
  }
  if (!again && again.error().code == ErrorCode::timeout)
    if (auto named = listener.hung(again.error().message)) return *std::move(named);
  return first;
}

}  // namespace p2pd::bench
