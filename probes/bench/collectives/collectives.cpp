// SPDX-License-Identifier: MIT
#include "probes/bench/collectives/collectives.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>

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
  const int signal = result.status - 128;
  const std::string how = signal > 0 ? fmt::format("ended by signal {} ({})", signal, ::strsignal(signal))
                                     : fmt::format("ended with status {}", result.status);
  return fail(ErrorCode::command, fmt::format("the worker {}{}{}", how, last.empty() ? "" : ": ", last));
}

/// Connection in NCCL's debug output.
struct Connection {
  int from = 0;
  int to = 0;
  std::string transport;  ///< "P2P/CUMEM"
};

/// Calls `visit` for each connection of `log`; one that both ends report ("[send]", "[receive]") is visited once.
void each_connection(std::string_view log, const std::function<void(const Connection&)>& visit) {
  constexpr std::string_view kVia = " via ";
  constexpr std::string_view kTo = " -> ";
  while (!log.empty()) {
    const std::string_view line = take_line(log);
    const std::size_t via = line.rfind(kVia);
    const std::size_t to = line.find(kTo);
    if (via == line.npos || line.find("NCCL INFO Channel ") > via || to > via) continue;
    if (line.substr(0, via).ends_with("[receive]")) continue;
    const std::string_view name = line.substr(via + kVia.size());
    const std::size_t second = name.find('/');
    if (second == name.npos) continue;
    Connection one;
    one.transport = plain(name.substr(0, name.find('/', second + 1)));
    const std::size_t from = line.rfind(' ', to - 1) + 1;  // "0[0] -> 1[1]": ranks, with their devices
    std::from_chars(line.data() + from, line.data() + line.size(), one.from);
    std::from_chars(line.data() + to + kTo.size(), line.data() + line.size(), one.to);
    visit(one);
  }
}

}  // namespace

Result<Collectives> measure_collectives(CommandRunner& runner, const CollectiveRuns& runs) {
  Collectives found[2];
  for (const bool p2p : {false, true}) {
    auto answer = ask_worker(runner, collective_command(runs, p2p));
    Collectives& run = found[p2p ? 0 : 1];
    if (answer) {
      run = std::move(answer).take();
      continue;
    }
    const Error& error = answer.error();
    if (error.code == ErrorCode::interrupted) return Failure(error);
    const std::string with = p2p ? "with" : "without";
    run.not_run = error.code == ErrorCode::timeout ? fmt::format("hangs {} P2P: no answer within {:g} s", with,
                                                                 std::chrono::duration<double>(runs.deadline).count())
                                                   : fmt::format("fails {} P2P: {}", with, plain(error.message));
  }
  Collectives both = merge(std::move(found[0]), std::move(found[1]));
  both.library = runs.library;
  return both;
}

Collectives with_numbers_of(Collectives ranks, const std::vector<int>& gpus) {
  std::map<std::string, std::string> pairs;
  for (std::size_t from = 0; from < gpus.size(); ++from)
    for (std::size_t to = 0; to < gpus.size(); ++to)
      if (const auto known = ranks.pairs.find(pair_name(static_cast<int>(from), static_cast<int>(to)));
          known != ranks.pairs.end())
        pairs[pair_name(gpus[from], gpus[to])] = known->second;
  ranks.pairs = std::move(pairs);
  return ranks;
}

Collectives as_one(std::vector<Collectives> groups) {
  const auto is_right = [](const Collectives& group) {
    return group.not_run.empty() &&
           std::ranges::none_of(group.results, [](const Collective& one) { return one.wrong > 0; });
  };
  const auto wrong = std::ranges::find_if_not(groups, is_right);
  Collectives one = wrong != groups.end() ? *wrong : groups.front();
  one.transports.clear();
  for (const Collectives& group : groups) {
    one.pairs.insert(group.pairs.begin(), group.pairs.end());
    for (const auto& [transport, channels] : group.transports) one.transports[transport] += channels;
  }
  return one;
}

std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (const std::size_t equals = text.find('='); equals != std::string_view::npos)
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

Command collective_command(const CollectiveRuns& runs, bool p2p) {
  Command command = {.argv = {runs.program, "--collective-worker", p2p ? "on" : "off", "--nccl", runs.library},
                     .environment = own_environment(),
                     .deadline = runs.deadline};
  if (!runs.p2p_level.empty()) command.environment.emplace("NCCL_P2P_LEVEL", runs.p2p_level);
  command.environment["CUDA_VISIBLE_DEVICES"] = runs.gpus;  // ranks are then numbers of GPUs
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
  if (!on.not_run.empty() && !off.not_run.empty()) on.not_run += "; ";
  on.not_run += off.not_run;
  return on;
}

std::string nccl_version(int code) {
  const int major = code < 10'000 ? 1000 : 10'000;  // NCCL used factors of 1000 up to 2.8
  return fmt::format("{}.{}.{}", code / major, code % major / 100, code % 100);
}

std::map<std::string, int> nccl_transports(std::string_view log) {
  std::map<std::string, int> transports;
  each_connection(log, [&](const Connection& one) { ++transports[one.transport]; });
  return transports;
}

std::map<std::string, std::string> nccl_pairs(std::string_view log) {
  std::map<std::string, std::string> pairs;
  each_connection(log, [&](const Connection& one) {
    std::string& transport = pairs[pair_name(one.from, one.to)];
    if (transport.empty() || transport.starts_with("P2P/")) transport = one.transport;
  });
  return pairs;
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
