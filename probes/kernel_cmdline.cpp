// SPDX-License-Identifier: MIT
// kernel-cmdline: the running kernel was started with the wanted arguments.
// P2P over PCIe needs the IOMMU off or in passthrough mode (iommu=pt), and no ACS redirect between the GPUs
// (pci=disable_acs_redir=); both are set at boot only. Reads /proc/cmdline; for an image that is not booted,
// /etc/default/grub, p2pd's drop-in and the others of grub.d, which are parsed, not run.
// machine/boot/kernel_arguments.hpp defines "in force". Reference: Documentation/admin-guide/kernel-parameters.txt of
// Linux.
#include "base/probe.hpp"
#include "machine/boot/grub_config.hpp"
#include "machine/boot/grub_defaults.hpp"
#include "machine/boot/kernel_arguments.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kCommandLine = "/proc/cmdline";

constexpr Parameter kParameters[] = {
    {"arguments", Parameter::Type::strings, true, "kernel arguments that must be in force, each KEY or KEY=VALUE"},
};

std::string listed(const std::vector<std::string>& arguments) {
  std::string out;
  for (const std::string& argument : arguments) out += (out.empty() ? "" : " ") + argument;
  return out;
}

/// Arguments of p2pd's drop-in, for the next grub.cfg; none if the file is not p2pd's.
std::vector<KernelArgument> configured_line(const Host& host, Finding& finding) {
  std::vector<KernelArgument> line;
  const auto arguments = drop_in_arguments(host);
  if (!arguments || arguments->empty()) return line;
  for (const std::string& argument : *arguments) line.push_back(kernel_argument(argument));
  finding.evidence.push_back({std::string(kGrubDropIn), listed(*arguments)});
  return line;
}

/// Compares the wanted arguments with `line`: sets verdict, facts, and the summary without the source of the arguments.
void judge(const std::vector<std::string>& wanted, const std::vector<KernelArgument>& line, Finding& finding) {
  std::vector<std::string> absent;
  auto missing = nlohmann::json::array();
  auto conflicting = nlohmann::json::array();
  for (const std::string& argument : wanted) {
    const ArgumentState state = argument_state(kernel_argument(argument), line);
    if (state.in_force) continue;
    absent.push_back(argument);
    if (state.running.empty())
      missing.push_back(argument);
    else
      conflicting.push_back({{"wanted", argument}, {"running", state.running}});
  }
  finding.verdict = absent.empty() ? Verdict::pass : Verdict::fail;
  finding.summary = listed(absent.empty() ? wanted : absent);
  if (!absent.empty() && !conflicting.empty())
    finding.summary += " (it has " + conflicting.front()["running"].get<std::string>() + ")";
  finding.facts["wanted"] = wanted;
  finding.facts["missing"] = std::move(missing);
  finding.facts["conflicting"] = std::move(conflicting);
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
  finding.verdict = Verdict::fail;
  finding.summary = kept.error().message;
  finding.next = kept.error().next;
  return {};
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  const std::vector<std::string> wanted = wanted_kernel_arguments(parameters);
  Finding finding;
  const std::vector<KernelArgument> configured = configured_line(host, finding);
  finding.facts["configured"] = all_in_force(wanted, configured);
  if (!host.live() && !host.files().exists(kCommandLine)) {
    judge(wanted, configured, finding);
    finding.facts["trial"] = false;
    const bool pass = finding.verdict == Verdict::pass;
    finding.summary =
        (pass ? "the next grub.cfg of this image will have " : "no drop-in gives this image ") + finding.summary;
    if (!pass) finding.next = "Add it to GRUB_CMDLINE_LINUX_DEFAULT in a file of /etc/default/grub.d.";
    if (pass) TRY(judge_defaults(host, wanted, finding));
    return finding;
  }
  const std::string text = TRY(host.line(kCommandLine));
  const std::vector<KernelArgument> line = parse_kernel_line(text);
  finding.evidence.insert(finding.evidence.begin(), {std::string(kCommandLine), text});
  judge(wanted, line, finding);
  const bool pass = finding.verdict == Verdict::pass;
  finding.facts["trial"] = all_in_force({std::string(kTrialArgument)}, line);
  finding.summary = (pass ? "the kernel runs with " : "the kernel runs without ") + finding.summary;
  if (pass) return finding;
  finding.next = finding.facts["configured"].get<bool>()
                     ? "Reboot: the arguments are configured, but this boot is without them."
                     : "Add them to GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub, run update-grub and reboot.";
  return finding;
}

}  // namespace

extern const Probe kKernelCmdline;
const Probe kKernelCmdline = {
    .id = "kernel-cmdline",
    .asserts = "the running kernel was started with the kernel arguments in `arguments`",
    .parameters = kParameters,
    .validate = validate_kernel_arguments,
    .check = check,
};

}  // namespace p2pd
