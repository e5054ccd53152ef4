// SPDX-License-Identifier: MIT
#include "machine/boot/grub_defaults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "machine/boot/grub.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kDefaults = "/etc/default/grub";
constexpr std::string_view kDropIns = "/etc/default/grub.d";
constexpr const char* kAll = "GRUB_CMDLINE_LINUX";              // first arguments of every entry
constexpr const char* kDefault = "GRUB_CMDLINE_LINUX_DEFAULT";  // arguments of every entry but recovery ones

/// A file that grub-mkconfig sources, and the values of the variables after it.
struct Stage {
  std::string file, text;
  std::string all, normal;
};

/// Text of p2pd's drop-in: the present one if it has `arguments`, else the new one.
std::string drop_in_text(const Host& host, const std::vector<std::string>& arguments) {
  const std::string now = host.files().read(kGrubDropIn).value_or("");
  return noted_arguments(now) == arguments ? now : grub_drop_in(arguments);
}

/// Lists the files in their order, p2pd's drop-in with `arguments` among them.
Result<std::vector<Stage>> sourced_files(const Host& host, const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  for (const std::string& name : host.names(kDropIns))
    if (name.ends_with(".cfg") && !name.starts_with('.')) names.push_back(fmt::format("{}/{}", kDropIns, name));
  if (std::ranges::find(names, kGrubDropIn) == names.end()) names.emplace_back(kGrubDropIn);
  std::ranges::sort(names);
  if (host.files().exists(kDefaults)) names.emplace(names.begin(), kDefaults);
  std::vector<Stage> stages;
  for (const std::string& name : names) {
    const std::string text = name == kGrubDropIn ? drop_in_text(host, arguments) : TRY(host.files().read(name));
    stages.push_back({name, text, "", ""});
  }
  return stages;
}

/// "/etc/default/grub:8", the last line that assigns `variable`, or declares it `readonly`; the file if none is found.
std::string place_of(const Stage& stage, const std::string& variable, std::string_view word = "") {
  std::istringstream lines(stage.text);
  int number = 0, found = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::size_t at = line.find_first_not_of(" \t");
    if (at == std::string::npos || line[at] == '#' || line.find(word) == std::string::npos) continue;
    const std::size_t name = line.find(variable, at);
    if (name == std::string::npos || (name > at && line[name - 1] != ' ' && line[name - 1] != ';')) continue;
    const char behind = name + variable.size() < line.size() ? line[name + variable.size()] : ' ';
    if (behind == '=' || (!word.empty() && behind == ' ')) found = number;
  }
  return found > 0 ? fmt::format("{}:{}", stage.file, found) : stage.file;
}

/// Checks that the kernel is started with every one of `arguments`, by the rules of grub.cfg and of the kernel.
bool reach_kernel(const std::string& all, const std::string& normal, const std::vector<std::string>& arguments) {
  const auto menu = parse_grub(fmt::format("menuentry x {{\n\tlinux /vmlinuz root=x ro {} {}\n}}\n", all, normal));
  return menu && menu->entries.size() == 1 && grub_entry_has(menu->entries.front(), arguments);
}

std::string fault_of(const std::string& value) {
  if (value.find('\n') != std::string::npos) return "holds a line break, at which GRUB ends the kernel's arguments";
  if ((" " + value + " ").find(" -- ") != std::string::npos) return "holds \"--\", at which the kernel's arguments end";
  return "keeps what p2pd appends from the kernel";
}

/// Returns an Error that names the conflicting line if the result of `stages` lacks `arguments`.
Result<void> judge(const std::vector<Stage>& stages, const std::vector<std::string>& arguments) {
  if (reach_kernel(stages.back().all, stages.back().normal, arguments)) return {};
  const std::string own = grub_line(arguments);
  bool appended = false;
  for (const Stage& stage : stages) {
    appended = appended || stage.file == kGrubDropIn;
    if (appended && !reach_kernel(stage.all, stage.normal, arguments) && stage.file != kGrubDropIn)
      return fail(ErrorCode::invalid,
                  fmt::format("{} sets {} again, after {}", place_of(stage, kDefault), kDefault, kGrubDropIn),
                  fmt::format("Let it append to ${}, or rename the file to sort before zz-p2pd.cfg, then try again.",
                              kDefault));
    if (appended || reach_kernel(stage.all, stage.normal + " " + own, arguments)) continue;
    const bool normal = reach_kernel(stage.all, own, arguments);
    const char* variable = normal ? kDefault : kAll;
    return fail(
        ErrorCode::invalid,
        fmt::format("{}: {} {}", place_of(stage, variable), variable, fault_of(normal ? stage.normal : stage.all)),
        "Correct that line, run update-grub, then try again.");
  }
  return fail(ErrorCode::invalid, fmt::format("{} does not come to hold what {} appends", kDefault, kGrubDropIn),
              "Look at the files of /etc/default/grub.d.");
}

Failure read_only(const std::string& place) {
  return fail(ErrorCode::invalid,
              fmt::format("{} makes {} read-only: grub-mkconfig would end at {}", place, kDefault, kGrubDropIn),
              "Remove \"readonly\" there, then try again.");
}

/// Evaluates `stages` without a shell; false: they must be run.
Result<bool> follow(std::vector<Stage>& stages) {
  ShellVariables variables{{kAll, ""}, {kDefault, ""}};
  std::set<std::string> fixed;
  std::string fixed_at;
  for (Stage& stage : stages) {
    const auto read = read_shell_assignments(stage.text, variables, fixed);
    if (fixed_at.empty() && fixed.contains(kDefault)) fixed_at = place_of(stage, kDefault, "readonly");
    if (!read && read.error().code == ErrorCode::denied && !fixed_at.empty()) return read_only(fixed_at);
    if (!read || !variables[kAll] || !variables[kDefault]) return false;
    stage.all = *variables[kAll];
    stage.normal = *variables[kDefault];
  }
  return true;
}

/// Sources the files as grub-mkconfig does; redirects their own output to standard error.
Result<void> run(Host& host, std::vector<Stage>& stages) {
  constexpr const char* kSourcing = R"sh(exec 3>&1 1>&2
for p2pd_file do
  if [ "$p2pd_file" = "$P2PD_OWN" ]; then eval "$P2PD_TEXT"; else . "$p2pd_file"; fi
  printf '%s\0%s\0' "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT" >&3
done)sh";
  Command command{{"sh", "-ec", kSourcing, "sh"}, {{"P2PD_OWN", std::string(kGrubDropIn)}}};
  for (const Stage& stage : stages) {
    command.argv.push_back(stage.file);
    if (stage.file == kGrubDropIn) command.environment["P2PD_TEXT"] = stage.text;
  }
  const CommandResult result = TRY(host.run_readonly(command));
  std::istringstream values(result.output);
  for (Stage& stage : stages) {
    if (std::getline(values, stage.all, '\0') && std::getline(values, stage.normal, '\0')) continue;
    for (const Stage& one : stages)
      for (const char* word : {"readonly", "declare", "typeset"})
        if (std::string place = place_of(one, kDefault, word); place != one.file) return read_only(place);
    const std::size_t end = result.errors.find_last_not_of('\n');
    const std::string said = result.errors.substr(0, end + 1);
    return fail(ErrorCode::invalid, fmt::format("{}: sh ends there: {}", stage.file, said.substr(said.rfind('\n') + 1)),
                "Correct the file: grub-mkconfig would end there, too.");
  }
  return {};
}

}  // namespace

Result<bool> grub_defaults_keep(const Host& host, const std::vector<std::string>& arguments) {
  std::vector<Stage> stages = TRY(sourced_files(host, arguments));
  if (!TRY(follow(stages))) return false;
  TRY(judge(stages, arguments));
  return true;
}

Result<void> require_grub_defaults(Host& host, const std::vector<std::string>& arguments) {
  std::vector<Stage> stages = TRY(sourced_files(host, arguments));
  if (!TRY(follow(stages))) TRY(run(host, stages));
  return judge(stages, arguments);
}

}  // namespace p2pd
