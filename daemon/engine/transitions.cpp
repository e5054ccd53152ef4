// SPDX-License-Identifier: MIT
#include "engine/transitions.hpp"

#include "base/enum_names.hpp"

namespace p2pd {
namespace {

using S = RunState;
using E = Event;

constexpr std::string_view kStateNames[] = {"idle",    "walking", "rebooting", "ready",    "limited",
                                            "blocked", "failed",  "paused",    "reverting"};
constexpr std::string_view kEventNames[] = {"apply",   "go-on",      "pause",      "resume",    "retry",
                                            "cancel",  "revert",     "superseded", "abandoned", "stopped",
                                            "blocker", "reboot-due", "proven",     "in-part",   "settled",
                                            "failure", "give-back",  "reverted",   "given-back"};

struct Row {
  RunState state;
  Event event;
  RunState next;
};

constexpr Row kRows[] = {
    {S::idle, E::apply, S::walking},          {S::idle, E::revert, S::reverting},
    {S::ready, E::apply, S::walking},         {S::ready, E::revert, S::reverting},
    {S::limited, E::apply, S::walking},       {S::limited, E::revert, S::reverting},

    {S::walking, E::apply, S::walking},       {S::walking, E::go_on, S::walking},
    {S::walking, E::superseded, S::idle},     {S::walking, E::stopped, S::walking},
    {S::walking, E::abandoned, S::failed},    {S::rebooting, E::abandoned, S::failed},
    {S::blocked, E::abandoned, S::failed},    {S::paused, E::abandoned, S::failed},
    {S::reverting, E::abandoned, S::failed},  {S::walking, E::pause, S::paused},
    {S::walking, E::cancel, S::reverting},    {S::walking, E::revert, S::reverting},
    {S::walking, E::blocker, S::blocked},     {S::walking, E::reboot_due, S::rebooting},
    {S::walking, E::proven, S::ready},        {S::walking, E::in_part, S::limited},
    {S::walking, E::settled, S::idle},        {S::walking, E::failure, S::failed},
    {S::walking, E::give_back, S::reverting},

    {S::rebooting, E::apply, S::walking},     {S::rebooting, E::go_on, S::walking},
    {S::rebooting, E::pause, S::paused},      {S::rebooting, E::cancel, S::reverting},
    {S::rebooting, E::revert, S::reverting},

    {S::blocked, E::apply, S::walking},       {S::blocked, E::superseded, S::idle},
    {S::blocked, E::go_on, S::walking},       {S::blocked, E::retry, S::walking},
    {S::blocked, E::pause, S::paused},        {S::blocked, E::cancel, S::reverting},
    {S::blocked, E::revert, S::reverting},

    {S::paused, E::resume, S::walking},       {S::paused, E::superseded, S::idle},
    {S::paused, E::cancel, S::reverting},     {S::paused, E::revert, S::reverting},

    {S::failed, E::apply, S::walking},        {S::failed, E::retry, S::walking},
    {S::failed, E::revert, S::reverting},

    {S::reverting, E::go_on, S::reverting},   {S::reverting, E::revert, S::reverting},
    {S::reverting, E::stopped, S::reverting}, {S::reverting, E::reboot_due, S::reverting},
    {S::reverting, E::reverted, S::idle},     {S::reverting, E::given_back, S::failed},
    {S::reverting, E::failure, S::failed},
};

}  // namespace

std::string_view to_string(RunState state) { return kStateNames[static_cast<std::size_t>(state)]; }
std::string_view to_string(Event event) { return kEventNames[static_cast<std::size_t>(event)]; }

std::optional<RunState> run_state(std::string_view name) { return value_called<RunState>(kStateNames, name); }

std::optional<RunState> next_state(RunState state, Event event) {
  for (const Row& row : kRows) {
    if (row.state == state && row.event == event) return row.next;
  }
  return std::nullopt;
}

bool is_open(RunState state) { return state != S::idle && !is_proven(state) && state != S::failed; }

}  // namespace p2pd
