// SPDX-License-Identifier: MIT
// p2p-baseline: measures the transfers between the GPUs now and saves the report, to compute the gain later.
// Runs p2p-bench once. P2P that does not work is a result, too: then copies through the host are compared. If no
// measurement is possible, the reason is saved in its place, so that it is tried only once.
// Reference: probes/bench/main.cpp, --save and --against.
#include "base/action.hpp"
#include "machine/hardware/driver_answer.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    {"file", Parameter::Type::string, true, "where the report is saved"},
};

Command measuring(const Host& host, const std::string& file) {
  Command command = bench_command(host, {"--save", file});
  command.deadline = std::chrono::minutes(2);  // p2p-bench has a shorter limit of its own
  return command;
}

/// Reason why p2p-bench did not measure: its first line, without the program name.
std::string reason(const CommandResult& result) {
  constexpr std::string_view kName = "p2p-bench: ";
  const std::string line = result.errors.substr(0, result.errors.find('\n'));
  if (line.empty()) return "p2p-bench printed nothing";
  return line.starts_with(kName) ? line.substr(kName.size()) : line;
}

Result<Description> describe(const Host& host, const Parameters& parameters) {
  Description description;
  description.summary = "measure the GPUs once, before anything changes";
  description.commands.push_back(measuring(host, parameters.at("file").get<std::string>()).text());
  return description;
}

Result<void> apply(Host& host, const Parameters& parameters) {
  const auto file = parameters.at("file").get<std::string>();
  TRY(host.will_change(file));
  const CommandResult result = TRY(host.run_readonly(measuring(host, file)));
  if (host.files().exists(file)) return {};
  return host.write(file, nlohmann::json{{"not_measured", reason(result)}}.dump() + "\n");
}

}  // namespace

extern const Action kP2pBaselineAction = {
    .id = "p2p-baseline",
    .topic = "measure",
    .does = "measures the transfers between the GPUs before any change",
    .parameters = kParameters,
    .describe = describe,
    .apply = apply,
};

}  // namespace p2pd
