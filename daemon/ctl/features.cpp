// SPDX-License-Identifier: MIT
// p2pctl features: state of P2P, as labels that node feature discovery (NFD) gives a node of Kubernetes.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/json_members.hpp"
#include "ctl/service.hpp"
#include "engine/journal.hpp"
#include "machine/driver/ready.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;
using std::chrono::system_clock;

constexpr std::string_view kPrefix = "feature.node.kubernetes.io/p2pd.";
constexpr std::chrono::minutes kGoodFor{10};  // p2pd-features.timer writes them each minute

/// File for NFD's local source. Labels have their full names, as NFD 0.19 requires.
/// https://kubernetes-sigs.github.io/node-feature-discovery/stable/usage/customization-guide.html
std::string feature_file(const json& labels) {
  std::string text = fmt::format("# +expiry-time={}\n", iso_time(system_clock::now() + kGoodFor));
  for (const auto& [name, value] : labels.items()) text += fmt::format("{}={}\n", name, text_of(value));
  return text;
}

}  // namespace

Result<int> features(const Context& context) {
  const Options& options = context.options;
  if (options.json && !options.name.empty())
    return fail(ErrorCode::invalid, "--json prints the labels and writes no file", "leave out --output, or --json");
  const Result<Proof> proof = require_proof(TRY(context.host()));
  const json status = TRY(known_status(context));
  json labels = {{fmt::format("{}ready", kPrefix), proof && !proof->limited ? "true" : "false"},
                 {fmt::format("{}state", kPrefix), text_of(status, "state")}};
  for (const P2pUse use : kP2pUses)
    labels[fmt::format("{}fit-for-{}", kPrefix, to_string(use))] =
        proof && proof->is_fit_for(to_string(use)) ? "true" : "false";
  if (proof)
    for (const ProvenGroup& group : proof->groups)
      labels[fmt::format("{}group-{}", kPrefix, group.name)] = fmt::format("{}", group.gpus.size());
  if (options.json)
    print_json("p2pd.features/1", {{"labels", labels}});
  else if (options.name.empty())
    fmt::print("{}", feature_file(labels));
  else
    TRY(replace_file(options.name, feature_file(labels), 0644));
  return kDone;
}

}  // namespace p2pd::ctl
