// SPDX-License-Identifier: MIT
// Any text as a plan: it is refused with its file and line, or what is written of it reads as the same plan.
#include "plan/plan.hpp"

#include "actions/registry.hpp"
#include "fuzz.hpp"
#include "probes/registry.hpp"

void p2pd::fuzz::run(std::string_view input) {
  const Registry registry{probes(), actions()};
  const auto plan = parse_plan(input, "input", registry);
  if (!plan)
    return require(plan.error().message.starts_with("input:"), "an error without its file: " + plan.error().message);
  const auto again = parse_plan(to_json(*plan).dump(), "again", registry);
  require(again.has_value(), "a resolved plan that cannot be read");
  require(to_json(*again) == to_json(*plan), "a resolved plan that reads as another");
}
