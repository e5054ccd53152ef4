// SPDX-License-Identifier: MIT
// modprobe-options: makes modprobe give a module the wanted options, and NVIDIA's registry keys merged by key.
// Writes one drop-in, /etc/modprobe.d/zz-p2pd.conf, with one line per module; never touches other files. Only the last
// line of NVreg_RegistryDwords counts, so this one includes the keys of the user's files. Takes effect when the module
// is loaded the next time.
// Reference: modprobe.d(5); nv-reg.h of NVIDIA's open-gpu-kernel-modules.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/action.hpp"
#include "machine/driver/driver_options.hpp"
#include "machine/modules/modprobe_d.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    {"module", Parameter::Type::string, true, "name of the kernel module"},
    {"options", Parameter::Type::object, false, "option name to value, a string or an integer"},
    {"registry_dwords", Parameter::Type::object, false, "key to integer, merged into NVreg_RegistryDwords of nvidia"},
    {"entry", Parameter::Type::string, false,
     "FORK/BRANCH of a catalogue entry, chosen, none, or NVIDIA's own modules, stock or stock-mailbox: adds its "
     "options"},
    {"experimental", Parameter::Type::boolean, false, "allows keys whose effect is not known from the source"},
};

/// First wanted option that `options` does not give; nothing if all are given.
std::optional<OptionState> first_lacking(const std::vector<ModuleOption>& options, const Parameters& parameters) {
  for (OptionState& state : option_states(options, parameters))
    if (!state.holds) return std::move(state);
  return std::nullopt;
}

/// New drop-in; nothing if modprobe gives the options already.
Result<std::optional<std::string>> new_drop_in(const Host& host, const Parameters& given) {
  const Parameters parameters = TRY(with_driver_options(host, given));
  if (!first_lacking(TRY(module_options(host)), parameters)) return std::optional<std::string>();
  std::string content = TRY(modprobe_drop_in(host, parameters));
  const auto lacking = first_lacking(TRY(module_options(host, content)), parameters);
  if (!lacking) return std::optional(std::move(content));
  return fail(ErrorCode::invalid,
              lacking->source + " is read after " + std::string(kModprobeDropIn) + " and sets " + lacking->name +
                  " to " + (lacking->configured ? *lacking->configured : "nothing") + ", not " + lacking->wanted,
              "Remove the option there, or set it to " + lacking->wanted + ", then try again.");
}

Result<Description> describe(const Host& host, const Parameters& parameters) {
  Description description;
  std::vector<std::string> lacking;
  for (const OptionState& state : option_states(TRY(module_options(host)), TRY(with_driver_options(host, parameters))))
    if (!state.holds) lacking.push_back(state.name + "=" + state.wanted);
  if (lacking.empty()) lacking.push_back("the options of module " + parameters.at("module").get<std::string>());
  description.summary = fmt::format("set {}", fmt::join(lacking, ", "));
  if (is_stock(parameters.value("entry", "")))
    description.notes.emplace_back("experimental: no report says that these options are enough; the proof decides");
  if (auto content = TRY(new_drop_in(host, parameters)))
    description.files.push_back({std::string(kModprobeDropIn), FileState::Kind::regular, std::move(*content)});
  return description;
}

Result<void> apply(Host& host, const Parameters& parameters) {
  auto content = TRY(new_drop_in(host, parameters));
  if (!content) return {};
  return host.write(kModprobeDropIn, std::move(*content));
}

}  // namespace

extern const Action kModprobeOptionsAction = {
    .id = "modprobe-options",
    .topic = "options",
    .does = "gives `module` the options in `options` and the keys in `registry_dwords` by modprobe.d",
    .parameters = kParameters,
    .validate = validate_module_options,
    .describe = describe,
    .apply = apply,
};

}  // namespace p2pd
