// SPDX-License-Identifier: MIT
#include "machine/boot/grub.hpp"

#include <algorithm>

#include "machine/boot/kernel_arguments.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kArgumentsNote = "# arguments:";
constexpr std::string_view kDropInHeader = "# Written by p2pd; undone by `p2pctl revert`.\n";
constexpr std::string_view kPanic = "panic=30";  // seconds until a trial that panics reboots into the default
// GRUB has cleared its one-time choice by now. Without it, GRUB would wait in its menu for a person.
constexpr std::string_view kLoadedOrReboot = "\n\tif [ \"$?\" != 0 ]; then reboot; fi";

std::string note(const std::vector<std::string>& arguments) {
  std::string line(kArgumentsNote);
  for (const std::string& argument : arguments) line += " " + argument;
  return line + "\n";
}

std::string grub_single_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
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

std::vector<std::string> noted_arguments(std::string_view text) {
  std::size_t at = text.starts_with(kArgumentsNote) ? 0 : text.find("\n" + std::string(kArgumentsNote));
  if (at == std::string_view::npos) return {};
  at = text.find(':', at) + 1;
  const std::string_view line = text.substr(at, std::min(text.find('\n', at), text.size()) - at);
  std::vector<std::string> out;
  for (const KernelArgument& argument : parse_kernel_line(line)) out.push_back(argument.text());
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
    body.insert(load->end, appended.append(" ").append(kTrialArgument).append(" ").append(kPanic));
  }
  return std::string(kTrialBegin) + note(arguments) + "menuentry " + grub_single_quoted("p2pd trial: " + entry.title) +
         entry.options + " --id " + std::string(kTrialId) + " {" + body + "}\n" + std::string(kTrialEnd);
}

std::string grub_line(const std::vector<std::string>& arguments) {
  std::string line;
  for (const std::string& argument : arguments) line += (line.empty() ? "" : " ") + grub_quoted(argument);
  return line;
}

std::string grub_drop_in(const std::vector<std::string>& arguments) {
  return std::string(kDropInHeader) + note(arguments) +
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

}  // namespace p2pd
