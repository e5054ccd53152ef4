// SPDX-License-Identifier: MIT
#include "base/driver/driver_answer.hpp"

namespace p2pd {

Command driver_question() {
  Command command;
  command.argv = {"p2p-bench", "--driver-peers"};
  command.deadline = std::chrono::seconds(20);
  return command;
}

Result<nlohmann::json> driver_answer(const Host& host) {
  const Command command = driver_question();
  return host.once<nlohmann::json>(command.text(), [&]() -> Result<nlohmann::json> {
    return parse_json(TRY(host.ask(command)).output);
  });
}

}  // namespace p2pd
