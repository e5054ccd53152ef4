// SPDX-License-Identifier: MIT
// p2pctl verify: differences from what p2pd left: of the proven machine, and of each file that p2pd wrote.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

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

/// Differences between the proven machine and this one; nothing without a proof on this boot.
Result<std::optional<std::vector<Drift>>> drift_of_proof(const Host& host) {
  const auto parts = drift_since_proof(host);
  if (!parts && parts.error().code == ErrorCode::state) return std::nullopt;
  std::vector<Drift> found;
  for (const auto& [part, changed] : TRY(Result<std::map<std::string, bool>>(parts)))
    if (changed) found.push_back({"", part, "differs from what P2P was proven with"});
  return std::optional(std::move(found));
}

/// Differences in the files that p2pd wrote; nothing if it never ran.
Result<std::optional<std::vector<Drift>>> drift_of_files(const Context& context, const Root& root) {
  std::error_code error;
  const std::filesystem::path state = context.state();
  if (!std::filesystem::exists(state, error) && !error) return std::nullopt;
  const UndoStore undo = TRY(UndoStore::open(TRY(Root::open(state)), root));
  std::vector<Drift> found;
  for (const UndoStore::Difference& one : TRY(undo.changed_by_others()))
    found.push_back({one.owner.step, one.path, one.missing ? "was removed since" : "was changed since"});
  return std::optional(std::move(found));
}

}  // namespace

Result<int> verify(const Context& context) {
  const auto runner = TRY(context.runner());
  const Host host = TRY(context.host(*runner));
  const auto proof = TRY(drift_of_proof(host));
  const auto files = TRY_IN("the undo records (only root can read them)", drift_of_files(context, TRY(context.root())));
  std::vector<Drift> found = proof.value_or(std::vector<Drift>());
  std::ranges::copy(files.value_or(std::vector<Drift>()), std::back_inserter(found));
  if (context.options.json) {
    nlohmann::json changed = nlohmann::json::array();
    for (const Drift& one : found) changed.push_back({{"step", one.step}, {"what", one.what}, {"change", one.text}});
    print_json("p2pd.verify/1", {{"drift", !found.empty()}, {"changed", std::move(changed)}});
    return found.empty() ? kDone : kChanges;
  }
  std::vector<std::vector<std::string>> rows;
  for (const Drift& one : found)
    rows.push_back(
        {mark(Verdict::fail), one.step.empty() ? "proof" : one.step, fmt::format("{} {}", one.what, one.text)});
  print_table(rows);
  if (found.empty())
    fmt::print("{}{}\n", files ? "Everything is as p2pd left it." : "p2pd has changed nothing here.",
               proof ? "" : " P2P is not proven on this boot.");
  else
    fmt::print("Next: \"p2pctl apply\" checks every step again; \"p2pctl revert\" keeps a copy of changed files.\n");
  return found.empty() ? kDone : kChanges;
}

}  // namespace p2pd::ctl
