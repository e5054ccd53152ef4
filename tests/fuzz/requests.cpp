// SPDX-License-Identifier: MIT
// Any line on the worker's socket: it is refused, or asks for what somebody may ask for, of a plan by its name.
#include "worker/mailbox.hpp"

#include "base/parameters.hpp"
#include "fuzz.hpp"

void p2pd::fuzz::run(std::string_view input) {
  const auto request = parse_request(input);
  if (!request) {
    const nlohmann::json answer = answer_of(request.error());
    return require(answer["ok"] == false && !answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).empty(), "no answer");
  }
  const bool asked = request->event == Event::apply || request->event == Event::pause || request->event == Event::resume ||
                     request->event == Event::retry || request->event == Event::cancel || request->event == Event::revert;
  require(asked, "an event that is nobody's to ask for");
  require(request->plan.empty() || is_name(request->plan), "a plan that is no name: " + request->plan);
  require(request->event == Event::apply || (request->plan.empty() && request->reboot), "options where there are none");
}
