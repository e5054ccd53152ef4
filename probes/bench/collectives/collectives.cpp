// SPDX-License-Identifier: MIT
#include "probes/bench/collectives/collectives.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "probes/bench/device/pattern.hpp"
#include "probes/bench/report/text.hpp"

namespace p2pd::bench {
namespace {

/// Removes the last line from `text` and returns it.
std::string_view take_last_line(std::string_view& text) {
  const std::size_t end = text.find_last_not_of('\n');
  text = text.substr(0, end == std::string_view::npos ? 0 : end + 1);
  const std::size_t newline = text.rfind('\n');
  const std::string_view line = newline == std::string_view::npos ? text : text.substr(newline + 1);
  text.remove_suffix(line.size());
  return line;
}

/// Removes the first line from `text` and returns it.
std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

Result<Collectives> ask_worker(CommandRunner& runner, const Command& command) {
  const CommandResult result = TRY(runner.run(command));
  if (result.status == 0) return parse_worker_output(result.output);
  std::string_view errors = result.errors;
  const std::string last = plain(take_last_line(errors));
  return fail(ErrorCode::command,
              fmt::format("the worker ended with status {}{}{}", result.status, last.empty() ? "" : ": ", last));
}

}  // namespace

Result<Collectives> measure_collectives(CommandRunner& runner, const std::string& program,
                                        std::chrono::milliseconds deadline) {
  Collectives found[2];
  for (const bool p2p : {true, false}) {
    auto answer = ask_worker(runner, collective_command(program, p2p, deadline));
    if (!answer && answer.error().code == ErrorCode::interrupted) return Failure(std::move(answer).error());
    found[p2p ? 0 : 1] = answer ? std::move(answer).take() : Collectives{.not_run = plain(answer.error().message)};
  }
  return merge(std::move(found[0]), std::move(found[1]));
}

Command collective_command(const std::string& program, bool p2p, std::chrono::milliseconds deadline) {
  Command command = {.argv = {program, "--collective-worker", p2p ? "on" : "off"}, .deadline = deadline};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    command.environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return command;
}

Result<Collectives> parse_worker_output(std::string_view output) {
  while (!output.empty()) {
    const auto json = parse_json(take_last_line(output));
    if (auto found = collectives_from(json)) return found;  // otherwise an object of another kind
  }
  return fail(ErrorCode::invalid, "the worker printed no result");
}

Collectives merge(Collectives on, Collectives off) {
  if (on.version.empty()) on.version = std::move(off.version);
  on.results.insert(on.results.end(), off.results.begin(), off.results.end());
  if (on.not_run == off.not_run) return on;
  if (!on.not_run.empty()) on.not_run.insert(0, "with P2P: ");
  if (!off.not_run.empty()) on.not_run += (on.not_run.empty() ? "without P2P: " : "; without P2P: ") + off.not_run;
  return on;
}

std::string nccl_version(int code) {
  const int major = code < 10'000 ? 1000 : 10'000;  // NCCL used factors of 1000 up to 2.8
  return fmt::format("{}.{}.{}", code / major, code % major / 100, code % 100);
}

std::map<std::string, int> nccl_transports(std::string_view log) {
  constexpr std::string_view kVia = " via ";
  std::map<std::string, int> transports;
  while (!log.empty()) {
    const std::string_view line = take_line(log);
    const std::size_t via = line.rfind(kVia);
    if (via == std::string_view::npos || line.find("NCCL INFO Channel ") > via || line.find(" -> ") > via) continue;
    if (line.substr(0, via).ends_with("[receive]")) continue;
    const std::string_view name = line.substr(via + kVia.size());
    const std::size_t second = name.find('/');
    if (second == std::string_view::npos) continue;
    ++transports[plain(name.substr(0, name.find('/', second + 1)))];
  }
  return transports;
}

std::string nccl_warning(std::string_view log) {
  constexpr std::string_view kWarn = "NCCL WARN ";
  const std::size_t at = log.rfind(kWarn);
  if (at == std::string_view::npos) return {};
  log.remove_prefix(at + kWarn.size());
  return plain(take_line(log));
}

double bus_factor(std::string_view collective, int ranks) {
  return (collective == kAllReduce ? 2.0 : 1.0) * (ranks - 1) / ranks;
}

std::vector<float> rank_data(int rank) {
  std::vector<float> data(kPeriod);
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<float>(mix64(static_cast<u64>(rank) << 32 | i) >> 49);
  return data;
}

std::uint64_t wrong_elements(std::span<const float> seen, std::span<const float> data, std::size_t start) {
  std::uint64_t wrong = 0;
  for (std::size_t i = 0, at = start % data.size(); i < seen.size(); ++i) {
    wrong += seen[i] != data[at] ? 1 : 0;
    if (++at == data.size()) at = 0;
  }
  return wrong;
}

}  // namespace p2pd::bench
