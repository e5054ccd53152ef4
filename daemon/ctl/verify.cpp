// SPDX-License-Identifier: MIT
// p2pctl verify: differences from what p2pd left: of the proven machine, and of each file that p2pd wrote.
#include <fmt/format.h>

#include <map>

#include "ctl/verb.hpp"
#include "engine/undo.hpp"
#include "machine/driver/ready.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

/// One difference: what p2pd left, and what changed.
struct Drift {
  std::string step;  ///< that wrote the file; empty: the proof
  std::string what;
  std::string text;
};

/// Adds the differences between the proven machine and this one; false without a proof on this boot.
Result<bool> add_drift_of_proof(const Host& host, std::vector<Drift>& found) {
  const auto parts = drift_since_proof(host);
  if (!parts && parts.error().code == ErrorCode::state) return false;
  for (const auto& [part, changed] : TRY(Result<std::map<std::string, bool>>(parts)))
    if (changed) found.push_back({"", part, "differs from what P2P was proven with"});
  return true;
}

/// Adds the differences in the files that p2pd wrote; false if it never ran.
Result<bool> add_drift_of_files(const Context& context, std::vector<Drift>& found) {
  std::error_code error;
  const std::filesystem::path state = context.state();
  if (!std::filesystem::exists(state, error) && !error) return false;
  const UndoStore undo = TRY(UndoStore::open(TRY(Root::open(state)), TRY(context.root())));
  for (const UndoStore::Difference& one : TRY(undo.changed_by_others()))
    found.push_back({one.owner.step, one.path, one.missing ? "was removed since" : "was changed since"});
  return true;
}

}  // namespace

Result<int> verify(const Context& context) {
  const Host host = TRY(context.host());
  std::vector<Drift> found;
  const bool proven = TRY(add_drift_of_proof(host, found));
  const bool ran = TRY_IN("the undo records (only root can read them)", add_drift_of_files(context, found));
  if (context.options.json) {
    nlohmann::json changed = nlohmann::json::array();
    for (const Drift& one : found) changed.push_back({{"step", one.step}, {"what", one.what}, {"change", one.text}});
    print_json("p2pd.verify/1", {{"drift", !found.empty()}, {"changed", std::move(changed)}});
    return found.empty() ? kDone : kChanges;
  }
  Rows rows;
  for (const Drift& one : found)
    rows.push_back(
        {mark(Verdict::fail), one.step.empty() ? "proof" : one.step, fmt::format("{} {}", one.what, one.text)});
  print_table(rows);
  if (found.empty())
    fmt::print("{}{}\n", ran ? "Everything is as p2pd left it." : "p2pd has changed nothing here.",
               proven ? "" : " P2P is not proven on this boot.");
  else
    fmt::print(
        "Next: \"sudo p2pctl apply\" checks every step again; \"sudo p2pctl revert\" keeps a copy of changed files.\n");
  return found.empty() ? kDone : kChanges;
}

}  // namespace p2pd::ctl
