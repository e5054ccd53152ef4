// SPDX-License-Identifier: MIT
// kernel-cmdline: the running kernel was started with the wanted arguments.
// P2P over PCIe needs the IOMMU off or in passthrough mode (iommu=pt), and no ACS redirect between the GPUs
// (pci=disable_acs_redir=); both are set at boot only. Reads /proc/cmdline; for an image that is not booted,
// /etc/default/grub, p2pd's drop-in and the others of grub.d, which are parsed, not run.
// machine/boot/kernel_arguments.hpp defines "in force". Reference: Documentation/admin-guide/kernel-parameters.txt of
// Linux.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/probe.hpp"
#include "machine/boot/boot_loader.hpp"
#include "machine/boot/grub.hpp"
#include "machine/boot/grub_defaults.hpp"
#include "machine/boot/kernel_arguments.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kCommandLine = "/proc/cmdline";

constexpr Parameter kParameters[] = {
    {"arguments", Parameter::Type::strings, true, "kernel arguments that must be in force, each KEY or KEY=VALUE"},
};

/// Arguments that p2pd made permanent; none if GRUB's drop-in is not p2pd's.
std::vector<KernelArgument> configured_line(const Host& host, Finding& finding) {
  std::vector<KernelArgument> line;
  const auto arguments = permanent_arguments(host);
  if (!arguments || arguments->empty()) return line;
  for (const std::string& argument : *arguments) line.push_back(kernel_argument(argument));
  finding.saw(host.files().exists(kGrubDropIn) ? kGrubDropIn : kBootArguments,
              fmt::format("{}", fmt::join(*arguments, " ")));
  return line;
}

/// Compares the wanted arguments with `line`; the text is that of the arguments, with `in_force` or `lacking` before
/// it.
void judge(const std::vector<std::string>& wanted, const std::vector<KernelArgument>& line, std::string_view in_force,
           std::string_view lacking, Finding& finding) {
  std::vector<std::string> absent;
  std::string instead;  // first argument that is in force in place of a wanted one
  finding.facts["missing"] = finding.facts["conflicting"] = nlohmann::json::array();
  for (const std::string& argument : wanted) {
    const ArgumentState state = argument_state(kernel_argument(argument), line);
    if (state.in_force) continue;
    absent.push_back(argument);
    if (instead.empty()) instead = state.running;
    if (state.running.empty())
      finding.facts["missing"].push_back(argument);
    else
      finding.facts["conflicting"].push_back({{"wanted", argument}, {"running", state.running}});
  }
  if (absent.empty())
    finding.set(Verdict::pass, fmt::format("{}{}", in_force, fmt::join(wanted, " ")));
  else
    finding.set(Verdict::fail, fmt::format("{}{}{}", lacking, fmt::join(absent, " "),
                                           instead.empty() ? "" : " (it has " + instead + ")"));
}

/// Judges an image: its next grub.cfg has the drop-in's arguments, unless another file of /etc/default prevents that.
Result<void> judge_defaults(const Host& host, const std::vector<std::string>& wanted, Finding& finding) {
  const auto kept = grub_defaults_keep(host, TRY(drop_in_arguments(host)));
  if (kept && *kept) return {};
  if (kept) {  // grub.cfg is the result of the last evaluation of these files
    const auto boot = read_grub_boot(host, host.files().read(kGrubConfig).value_or(""));
    if (boot && grub_entry_has(boot->entry, wanted)) return {};
    return fail(ErrorCode::state, "the result of /etc/default/grub and grub.d is known only by running them",
                "Run update-grub in the image.");
  }
  if (kept.error().code != ErrorCode::invalid) return Failure(kept.error());
  finding.set(Verdict::fail, kept.error().message, kept.error().next);
  return {};
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  const std::vector<std::string> wanted = wanted_kernel_arguments(parameters);
  Finding finding;
  const std::vector<KernelArgument> configured = configured_line(host, finding);
  finding.facts["configured"] = all_in_force(wanted, configured);
  if (!host.live() && !host.files().exists(kCommandLine)) {
    judge(wanted, configured, "the next grub.cfg of this image will have ", "no drop-in gives this image ", finding);
    finding.facts["trial"] = false;
    if (finding.verdict == Verdict::pass)
      TRY(judge_defaults(host, wanted, finding));
    else
      finding.next = "Add it to GRUB_CMDLINE_LINUX_DEFAULT in a file of /etc/default/grub.d.";
    return finding;
  }
  const std::string text = TRY(host.line(kCommandLine));
  const std::vector<KernelArgument> line = parse_kernel_line(text);
  finding.evidence.insert(finding.evidence.begin(), {std::string(kCommandLine), text});
  judge(wanted, line, "the kernel runs with ", "the kernel runs without ", finding);
  finding.facts["trial"] = all_in_force({std::string(kTrialArgument)}, line);
  if (finding.verdict == Verdict::fail && finding.facts["configured"] == true)
    finding.next = "Reboot: the arguments are configured, but this boot is without them.";
  else if (finding.verdict == Verdict::fail)
    finding.next = add_arguments_by_hand(host);
  return finding;
}

}  // namespace

extern const Probe kKernelCmdline = {
    .id = "kernel-cmdline",
    .asserts = "the running kernel was started with the kernel arguments in `arguments`",
    .parameters = kParameters,
    .validate = validate_kernel_arguments,
    .check = check,
};

}  // namespace p2pd
