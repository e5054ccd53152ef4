// SPDX-License-Identifier: MIT
#include "machine/hardware/driver_answer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <future>
#include <initializer_list>

#include "base/json_members.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {
namespace {

std::vector<std::string> left_out(const Host& host) {
  std::vector<std::string> addresses;
  for (const PciDevice& device : pci_devices(host).value_or(std::vector<PciDevice>()))
    if (!device.left_out.empty()) addresses.push_back(device.address);
  return addresses;
}

/// Removes the items of a list that have one of `addresses` under one of `keys`.
void without(const std::vector<std::string>& addresses, nlohmann::json& answer, const char* list,
             std::initializer_list<const char*> keys) {
  if (!field_of(answer, list).is_array()) return;
  nlohmann::json kept = nlohmann::json::array();
  for (const nlohmann::json& item : answer[list]) {
    const auto names_one = [&](const char* key) {
      return std::ranges::any_of(addresses, [&](const auto& address) { return field_of(item, key) == address; });
    };
    if (std::ranges::none_of(keys, names_one)) kept.push_back(item);
  }
  answer[list] = std::move(kept);
}

Command question() {
  Command command;
  command.argv = {"p2p-bench", "--driver-peers"};
  command.deadline = std::chrono::seconds(20);
  return command;
}

}  // namespace

void ask_driver(Host& host, CommandRunner& runner) {
  if (!host.files().exists(kLoadedDriver)) return;
  const auto ask = [&runner] { return runner.run(question()); };
  host.set_driver([answer = std::async(std::launch::async, ask).share()] { return answer.get(); });
}

Command bench_command(const Host& host, std::vector<std::string> options) {
  Command command;
  command.argv = {"p2p-bench"};
  command.argv.insert(command.argv.end(), options.begin(), options.end());
  if (const std::vector<std::string> without = left_out(host); !without.empty())
    command.argv.insert(command.argv.end(), {"--exclude", fmt::format("{}", fmt::join(without, ","))});
  if (host.requires_all_gpus()) command.argv.emplace_back("--all-pairs");
  return command;
}

Result<nlohmann::json> driver_answer(const Host& host) {
  const Command command = question();
  return host.once<nlohmann::json>(command.text(), [&]() -> Result<nlohmann::json> {
    const CommandResult result = TRY(host.driver() ? host.driver()() : host.run_readonly(command));
    nlohmann::json answer = parse_json(result.output);
    if (!answer.is_object()) TRY(require_success(command, result));  // p2p-bench did not start
    const std::vector<std::string> addresses = left_out(host);
    without(addresses, answer, "gpus", {"address"});
    without(addresses, answer, "pairs", {"from", "to"});
    return answer;
  });
}

}  // namespace p2pd
