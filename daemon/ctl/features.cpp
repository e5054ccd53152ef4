// SPDX-License-Identifier: MIT
// p2pctl features: how P2P stands, as labels that node feature discovery (NFD) gives a node of Kubernetes.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>

#include "base/ready.hpp"
#include "ctl/print.hpp"
#include "ctl/replace_file.hpp"
#include "ctl/report/fields.hpp"
#include "ctl/status.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;
using std::chrono::system_clock;

constexpr std::chrono::minutes kGoodFor{10};  // p2pd-features.timer writes them each minute

/// A file for NFD's local source. Labels have their names in full, as NFD 0.19 wants them.
/// https://kubernetes-sigs.github.io/node-feature-discovery/stable/usage/customization-guide.html
std::string feature_file(const json& labels) {
  const std::time_t end = system_clock::to_time_t(system_clock::now() + kGoodFor);
  std::string text = fmt::format("# +expiry-time={:%Y-%m-%dT%H:%M:%SZ}\n", fmt::gmtime(end));
  for (const auto& [name, value] : labels.items()) text += fmt::format("{}={}\n", name, text_of(value));
  return text;
}

}  // namespace

Result<int> features(const Context& context) {
  const Options& options = context.options;
  if (options.json && !options.name.empty())
    return fail(ErrorCode::invalid, "--json prints the labels and writes no file", "leave out --output, or --json");
  const auto runner = TRY(context.runner());
  const bool ready = require_ready(TRY(context.host(*runner))).has_value();
  const json status = TRY(known_status(context));
  const json labels = {{"feature.node.kubernetes.io/p2pd.ready", ready ? "true" : "false"},
                       {"feature.node.kubernetes.io/p2pd.state", text_of(status, "state")}};
  if (options.json)
    print_json("p2pd.features/1", {{"labels", labels}});
  else if (options.name.empty())
    fmt::print("{}", feature_file(labels));
  else
    TRY(replace_file(options.name, feature_file(labels), 0644));
  return kDone;
}

}  // namespace p2pd::ctl
