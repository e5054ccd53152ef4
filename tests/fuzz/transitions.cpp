// SPDX-License-Identifier: MIT
// Any sequence of events: names go both ways, revert is always allowed, what is being undone is not walked on.
#include "engine/transitions.hpp"

#include "fuzz.hpp"

void p2pd::fuzz::run(std::string_view input) {
  constexpr unsigned kEvents = static_cast<unsigned>(Event::given_back) + 1;
  RunState state = RunState::idle;
  for (const char byte : input) {
    const auto event = static_cast<Event>(static_cast<unsigned char>(byte) % kEvents);
    require(!to_string(event).empty() && run_state(to_string(state)) == state, "a name that is not its own");
    require(next_state(state, Event::revert) == RunState::reverting, "a state that cannot be reverted");
    const auto next = next_state(state, event);
    if (!next) continue;
    require(state != RunState::reverting || *next != RunState::walking, "walked on while undoing");
    require(is_open(state) || event == Event::apply || event == Event::retry || event == Event::revert,
            "an ended run that moves unasked");
    state = *next;
  }
  (void)run_state(input);
}
