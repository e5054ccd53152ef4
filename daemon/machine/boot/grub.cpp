// SPDX-License-Identifier: MIT
#include "machine/boot/grub.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "machine/boot/kernel_arguments.hpp"
#include "machine/boot/package_locks.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kDropInHeader = "# Written by p2pd; undone by `p2pctl revert`.\n";
// GRUB has cleared its one-time choice by now. Without it, GRUB would wait in its menu for a person.
constexpr std::string_view kLoadedOrReboot = "\n\tif [ \"$?\" != 0 ]; then reboot; fi";

constexpr std::chrono::minutes kGenerateDeadline{10};  // os-prober mounts every partition
constexpr int kAttempts = 5;                           // another writer of grub.cfg can spoil each

std::string grub_single_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
}

/// Generates grub.cfg as update-grub does: in the language of the system, not of the user who started p2pd.
Result<std::string> generated_config(const Host& host) {
  Command command;
  command.argv = {"grub-mkconfig"};
  command.deadline = kGenerateDeadline;
  const std::string locale = "\n" + TRY(read_if_any(host, "/etc/default/locale"));
  const std::size_t at = locale.find("\nLANG=");
  if (at != std::string::npos) {
    std::string value = locale.substr(at + 6, locale.find('\n', at + 1) - at - 6);
    std::erase(value, '"');
    command.environment = {{"LANG", value}, {"LC_ALL", ""}};
  }
  auto output = host.output_of(command);
  if (!output)
    output.error().next = host.live() ? "Run grub-mkconfig, correct what it complains of, then try again."
                                      : "Bind /dev, /proc and /sys into the image, then try again.";
  return output;
}

/// Checks for an installation of packages: a kernel among them generates grub.cfg, too.
bool installing(const Host& host) {
  const auto locks = package_locks(host);
  return host.live() && locks && *locks && !(*locks)->empty();
}

}  // namespace

std::string grub_quoted(std::string_view argument) {
  std::string out;
  for (const char c : argument) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       std::string_view("_.,:=/@%+-").find(c) != std::string_view::npos;
    if (!plain) out += '\\';
    out += c;
  }
  return out;
}

Result<GrubCustom> split_grub_custom(std::string_view text) {
  const std::size_t begin = text.find(kTrialBegin);
  if (begin == std::string_view::npos) return GrubCustom{std::string(text), {}};
  const std::size_t end = text.find(kTrialEnd, begin);
  if (end == std::string_view::npos)
    return fail(ErrorCode::invalid, std::string(kGrubCustom) + ": the trial entry of p2pd has lost its end line",
                "Remove everything from \"### BEGIN p2pd trial ###\" that is not yours, then try again.");
  const std::size_t behind = end + kTrialEnd.size();
  return GrubCustom{std::string(text.substr(0, begin)) + std::string(text.substr(behind)),
                    std::string(text.substr(begin, behind - begin))};
}

std::string grub_trial(const GrubEntry& entry, const std::vector<std::string>& arguments) {
  std::string body = entry.body;
  for (auto load = entry.loads.rbegin(); load != entry.loads.rend(); ++load) {
    body.insert(load->end, kLoadedOrReboot);
    if (!load->kernel) continue;
    std::string appended;
    for (const std::string& argument : arguments)
      if (!all_in_force({argument}, kernel_line(*load))) appended += " " + grub_quoted(argument);
    body.insert(load->end, appended.append(" ").append(kTrialArgument).append(" ").append(kTrialPanic));
  }
  return std::string(kTrialBegin) + arguments_note(arguments) + "menuentry " +
         grub_single_quoted("p2pd trial: " + entry.title) + entry.options + " --id " + std::string(kTrialId) + " {" +
         body + "}\n" + std::string(kTrialEnd);
}

std::string grub_line(const std::vector<std::string>& arguments) {
  std::string line;
  for (const std::string& argument : arguments) line += (line.empty() ? "" : " ") + grub_quoted(argument);
  return line;
}

std::string grub_drop_in(const std::vector<std::string>& arguments) {
  return std::string(kDropInHeader) + arguments_note(arguments) +
         "GRUB_CMDLINE_LINUX_DEFAULT=\"${GRUB_CMDLINE_LINUX_DEFAULT:+$GRUB_CMDLINE_LINUX_DEFAULT }\"'" +
         grub_line(arguments) + "'\n";
}

Result<std::vector<std::string>> drop_in_arguments(const Host& host) {
  if (!host.files().exists(kGrubDropIn)) return std::vector<std::string>{};
  const std::string content = TRY(host.files().read(kGrubDropIn));
  if (!content.starts_with(kDropInHeader))
    return fail(ErrorCode::invalid, std::string(kGrubDropIn) + " is in the way: p2pd did not write it",
                "Move it to another name that sorts before it, then try again.");
  return noted_arguments(content);
}

Result<GrubBoot> read_grub_boot(const Host& host, std::string_view config) {
  GrubBoot boot;
  boot.custom = TRY(split_grub_custom(TRY(read_if_any(host, kGrubCustom))));
  boot.menu = TRY_IN("grub.cfg", parse_grub(config));
  if (boot.menu.reads_custom) boot.menu = TRY_IN(kGrubCustom, parse_grub(boot.custom.user, std::move(boot.menu)));
  const auto environment = parse_grub_environment(TRY(read_if_any(host, kGrubEnvironment)));
  boot.entry = *TRY_IN("grub.cfg", default_grub_entry(boot.menu, environment));
  return boot;
}

Result<void> check_grub_script(const Host& host, std::string_view name, const std::string& content) {
  Command command;
  command.argv = {"grub-script-check"};
  command.input = content;
  auto answer = host.output_of(command);
  if (answer) return {};
  answer.error().next = "Correct that line where it comes from, /boot/grub/custom.cfg or /etc/grub.d, then try again.";
  return Failure(std::move(answer).error().in(std::string(name) + ", which was not put in place"));
}

bool can_generate_grub_config(const Host& host) {
  return host.files().exists(kGrubConfig) && host.has_program("grub-mkconfig");
}

Result<void> check_grub_generation(const Host& host) {
  if (host.live()) TRY(wait_for_package_locks(host, std::chrono::seconds(0)));
  const std::string text = TRY(generated_config(host));
  return check_grub_script(host, "a new grub.cfg", text);
}

Result<void> renew_grub_config(Host& host, const std::function<Result<bool>(const GrubBoot&)>& wanted) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (host.live()) TRY(wait_for_package_locks(host));
    const FileState before = TRY(host.files().capture(kGrubConfig));
    std::string text = TRY(generated_config(host));
    const GrubBoot boot = TRY_IN("generated", read_grub_boot(host, text));
    if (!TRY(wanted(boot))) return {};
    TRY(check_grub_script(host, "a new grub.cfg", text));
    TRY_IN("a new grub.cfg", check_grub_entry(host, boot.entry));
    TRY(host.will_change(kGrubConfig, Restore::generated));  // slow, so done before the last look
    if (!installing(host) && TRY(host.files().capture(kGrubConfig)) == before)
      return host.write(kGrubConfig, std::move(text), 0444, Restore::generated);
    log::info("{} was written by another program meanwhile: it is generated again", kGrubConfig);
  }
  return fail(ErrorCode::busy,
              std::string(kGrubConfig) + " is written by another program each time that it is generated",
              "Wait until kernels are installed, then try again.");
}

}  // namespace p2pd
