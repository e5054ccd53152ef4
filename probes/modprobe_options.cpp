// SPDX-License-Identifier: MIT
// modprobe-options: modprobe gives a module the wanted options, and NVIDIA's registry keys by key.
// The driver's P2P switches are module options (NVreg_EnableResizableBar=1) and keys in NVreg_RegistryDwords, of which
// only the last line counts, so keys of the user and of p2pd must be in one. The verdict is about the configuration;
// options-in-force is about the loaded module, which changes when it is loaded again.
// Reads modprobe.d as libkmod does, /proc/cmdline.
// Reference: modprobe.d(5); nv-reg.h of NVIDIA's open-gpu-kernel-modules.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/probe.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/driver_install.hpp"
#include "machine/driver/driver_options.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "machine/modules/module_install.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    {"module", Parameter::Type::string, true, "name of the kernel module"},
    {"options", Parameter::Type::object, false, "option name to value, a string or an integer"},
    {"registry_dwords", Parameter::Type::object, false, "key to integer, in NVreg_RegistryDwords of module nvidia"},
    {"entry", Parameter::Type::string, false,
     "FORK/BRANCH of a catalogue entry, chosen, none, or NVIDIA's own modules, stock or stock-mailbox: adds its "
     "options"},
    {"experimental", Parameter::Type::boolean, false, "allows keys whose effect is not known from the source"},
};

/// True for open modules that somebody installed by hand: they stay if P2P works with them. Those of packages, and
/// proprietary ones, are replaced before the options of another build matter.
bool stays(const Host& host) {
  const auto loaded = nvidia_version(host);
  const auto install = installed_driver(host);
  const bool packaged = install && install->packaged_modules();
  return loaded ? loaded->open && !packaged : install && install->runfile.installed && !packaged;
}

/// Reason why the options of `entry` do not concern the installed driver; empty: they do, or the plan sets options
/// itself.
Result<std::string> not_concerned(const Host& host, const Parameters& given) {
  const std::string entry = given.value("entry", std::string(kNoEntry));
  if (is_stock(entry)) return TRY(stock_p2p(host, entry)).why_not;
  if (entry == kNoEntry || given.contains("options") || given.contains("registry_dwords")) return std::string();
  for (const std::string_view own : {kStockEntry, kStockMailboxEntry})
    if (TRY(stock_p2p(host, own)).why_not.empty())
      return std::string("NVIDIA's own modules come first, with the options that they need");
  if (entry == kChosenEntry)
    return std::string("no driver build is chosen: the options of the installed one are not known");
  if (installed_build(host) || !stays(host) || has_modules_by_hand(host)) return std::string();
  return "the installed modules are not those of " + entry + ": its options are not theirs";
}

Result<Finding> check(const Host& host, const Parameters& given) {
  if (std::string why = TRY(not_concerned(host, given)); !why.empty()) return not_applicable(std::move(why));
  const Parameters parameters = TRY(with_driver_options(host, given));
  const std::string module = kernel_name(parameters.at("module").get<std::string>());
  const std::vector<OptionState> states = option_states(TRY(module_options(host)), parameters);
  Finding finding;
  finding.facts = {{"module", module}};
  std::vector<std::string> lacking;
  for (const OptionState& state : states) {
    finding.facts[state.dword ? "registry_dwords" : "options"][state.name] = {
        {"wanted", state.wanted}, {"configured", or_null(state.configured)}};
    finding.saw(state.source.empty() ? "modprobe.d" : state.source,
                state.name + (state.configured ? "=" + *state.configured : " is not set"));
    if (!state.holds) lacking.push_back(state.name + "=" + state.wanted);
  }
  if (states.empty())
    finding.set(Verdict::pass, fmt::format("module {} needs no option with this driver", module));
  else if (lacking.empty())
    finding.set(Verdict::pass, fmt::format("module {} is configured with the wanted options", module));
  else
    finding.set(Verdict::fail, fmt::format("module {} is not configured with {}", module, fmt::join(lacking, ", ")),
                "Set it in a file of /etc/modprobe.d, then load the module again.");
  return finding;
}

}  // namespace

extern const Probe kModprobeOptions = {
    .id = "modprobe-options",
    .asserts = "modprobe gives `module` the options in `options` and the keys in `registry_dwords`",
    .parameters = kParameters,
    .validate = validate_module_options,
    .check = check,
};

}  // namespace p2pd
