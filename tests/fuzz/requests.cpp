// SPDX-License-Identifier: MIT
// Any line on the worker's socket: it is refused, or asks for what somebody may ask for, of a plan by its name.
#include "base/parameters.hpp"
#include "fuzz.hpp"
#include "protocol/request.hpp"

void p2pd::fuzz::run(std::string_view input) {
  const auto request = request_from_json(parse_json(input));
  if (!request) {
    const nlohmann::json answer = to_json(Answer(Failure(request.error())));
    return require(!answer["error"].dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).empty(),
                   "no answer");
  }
  require(request->plan.empty() || is_name(request->plan), "a plan that is no name: " + request->plan);
  require(request->kind == Request::Kind::apply || (request->plan.empty() && request->reboot),
          "options where there are none");
}
