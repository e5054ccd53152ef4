// SPDX-License-Identifier: MIT
#include "machine/driver/driver_options.hpp"

#include <fmt/format.h>

#include "machine/catalogue/staging.hpp"
#include "machine/driver/machine.hpp"
#include "machine/driver/registry_keys.hpp"
#include "machine/driver/stock_p2p.hpp"
#include "machine/modules/module_file.hpp"

namespace p2pd {
namespace {

/// RTX 5090 with builds of this major version and later: NCCL hung until both keys were set (noonghunna/club-3090,
/// issues 873 and 875).
constexpr int kPeerMapping = 595;
constexpr int kPcieType = 580;  // with the mailbox, static BAR1 takes 512 MiB more from here on

void add(Parameters& parameters, const char* key, const nlohmann::json& more) {
  nlohmann::json all = more;
  all.update(parameters.value(key, nlohmann::json::object()));
  parameters[key] = std::move(all);
}

}  // namespace

Result<std::map<std::string, ModuleOption>> configured_options(const Host& host) {
  const std::vector<ModuleOption> options = TRY(module_options(host));
  std::map<std::string, ModuleOption> out;
  const std::string here = installed_name(host, "nvidia").value_or("nvidia");  // "nvidia_current" if Debian renamed it
  for (const std::string& module : {here, std::string("nvidia")})  // an install line passes these to it as well
    for (const ModuleOption& option : options)
      if (option.module == module && option.name.starts_with("NVreg_")) out[option.name] = option;
  return out;
}

Result<Parameters> with_driver_options(const Host& host, Parameters parameters) {
  const auto name = parameters.value("entry", std::string(kNoEntry));
  std::string version = host.line(kLoadedDriver).value_or("");
  if (is_stock(name)) {
    const StockP2p stock = TRY(stock_p2p(host, name));
    if (!stock.why_not.empty()) return fail(ErrorCode::not_found, stock.why_not);
    for (const auto& [key, more] : stock.options.items()) add(parameters, key.c_str(), more);
    version = stock.version;
  } else if (name != kNoEntry) {
    const CatalogueEntry entry = TRY(staged_entry(TRY(catalogue(host)), parameters));
    add(parameters, "options", entry.module_options);
    const int major = major_of(entry.base_version);
    nlohmann::json beside = nlohmann::json::object();  // what a GPU needs with static BAR1: no mailbox in its way
    if (major >= kPcieType && !entry.registry_dwords.contains("RMPcieP2PType")) beside["RMPcieP2PType"] = 1;
    if (major >= kPeerMapping) beside["PeerMappingOverride"] = 1;
    add(parameters, "registry_dwords", TRY(with_static_bar1(host, entry.registry_dwords, major, beside)));
    version = entry.base_version;
    for (const auto& [key, value] : entry.registry_dwords_forbidden.items())
      if (parameters["registry_dwords"].value(key, nlohmann::json()) == value)
        return fail(ErrorCode::invalid, fmt::format("registry_dwords: {}={} breaks P2P in {}", key, value.dump(), name),
                    "Take the key out of the plan.");
  }
  const auto dwords = parameters.value("registry_dwords", nlohmann::json::object());
  for (const auto& [key, value] : dwords.items()) {
    const std::string name_of_key = key.substr(key.find('/') + 1);  // without the GPU
    const std::string wrong = version.empty() ? "" : wrong_registry_key(name_of_key, value.dump(), major_of(version));
    if (!wrong.empty())
      return fail(ErrorCode::invalid,
                  fmt::format("registry_dwords: {}={} in driver {}: {}", key, value.dump(), version, wrong),
                  "Correct the plan: values of these keys differ between drivers.");
    if (is_experimental_key(name_of_key) && !parameters.value("experimental", false))
      return fail(ErrorCode::invalid, "registry_dwords: what " + key + " does is not known from the driver's source",
                  "A plan that wants it nevertheless says \"experimental: true\" beside it.");
  }
  return parameters;
}

}  // namespace p2pd
