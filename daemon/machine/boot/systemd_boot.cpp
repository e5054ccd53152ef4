// SPDX-License-Identifier: MIT
// systemd-boot, also where proxmox-boot-tool installs it: text entries and unified images.
// Written are small files only, each in one step: kernel-install and proxmox-boot-tool would overwrite the kernel of
// the default entry in place, and a power cut meanwhile leaves a machine that does not boot.
// - The trial is a copy of the entry that booted, which sorts behind it, and EFI variable LoaderEntryOneShot, which
//   systemd-boot clears when it reads it.
// - Permanent arguments are one more line `options` in each entry of this system (all such lines count), and
//   /etc/kernel/cmdline, from which entries of kernels to come are made. Images of kernels to come would have that line
//   in them, signed and not to be undone: instead, all unified images get an addon.
// Reference: The Boot Loader Specification; The Boot Loader Interface; systemd-boot(7), systemd-stub(7), ukify(1),
// kernel-install(8).
#include "machine/boot/boot_loader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "machine/boot/boot_partition.hpp"
#include "machine/boot/efi_variable.hpp"
#include "machine/boot/kernel_arguments.hpp"

namespace p2pd {
namespace {

using Arguments = BootLoader::Arguments;

constexpr std::string_view kEntries = "loader/entries", kImages = "EFI/Linux", kConfig = "loader/loader.conf";
constexpr std::string_view kTrialName = "a-p2pd-trial";  // ids are sorted downwards: behind machine ids and names
constexpr std::string_view kTrialNote = "/var/lib/p2pd/boot-trial";  // its entry and arguments
constexpr std::string_view kCommandLine = "/etc/kernel/cmdline", kUkifyConfig = "/etc/kernel/uki.conf";
constexpr std::string_view kBlock = "\n# Written by p2pd; undone by `p2pctl revert`.\n";  // the line `options` follows
constexpr std::string_view kAddonsOf = ".extra.d", kAddon = ".extra.d/p2pd.addon.efi";  // of one image
constexpr std::string_view kAddons = "loader/addons", kAddonOfAll = "loader/addons/p2pd.addon.efi";
constexpr std::uint64_t kCanBootOnce = 1U << 3;  // EFI_LOADER_FEATURE_ENTRY_ONESHOT

std::string joined(const Arguments& arguments) { return fmt::format("{}", fmt::join(arguments, " ")); }

/// Name of a file without boot counters, as systemd-boot calls the entry: "debian+2-1.conf" is "debian.conf".
std::string entry_id(const std::string& file) {
  static const std::regex kCounters(R"((.*)\+[0-9]+(-[0-9]+)?(\.[a-z]+))");
  std::string id = std::regex_replace(file, kCounters, "$1$3");
  std::ranges::transform(id, id.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return id;
}

bool is_image(std::string_view id) { return id.ends_with(".efi"); }
std::string trial_id(std::string_view of) { return std::string(kTrialName) + (is_image(of) ? ".efi" : ".conf"); }
std::string trial_file(std::string_view of) {
  return fmt::format("{}/{}", is_image(of) ? kImages : kEntries, trial_id(of));
}

Result<std::string> loader_text(const Host& host, std::string_view name) {
  return efi_text(TRY(efi_variable(host, name, kEfiLoader)).value_or(""));
}

/// The entry that boots without the trial.
struct Source {
  std::string id;    ///< "debian-6.12.57+deb13-amd64.conf", lower case
  std::string file;  ///< "loader/entries/debian-6.12.57+deb13-amd64+3.conf", "EFI/Linux/debian.efi"
  std::string text;  ///< of an entry that is a text
  std::vector<BootPartition> partitions;  ///< those that have it
};

/// Values of the lines that begin with `key`, in order.
std::vector<std::string> values_of(const std::string& text, std::string_view key) {
  std::vector<std::string> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t from = line.find_first_not_of(" \t");
    const std::size_t end = line.find_first_of(" \t", from);
    if (from == line.npos || end == line.npos || line.substr(from, end - from) != key) continue;
    values.push_back(line.substr(std::min(line.find_first_not_of(" \t", end), line.size())));
  }
  return values;
}

std::string options_of(const std::string& text) {
  return fmt::format("{}", fmt::join(values_of(text, "options"), " "));
}

std::string without_block(std::string text) {
  const std::size_t at = text.find(kBlock);
  if (at == text.npos) return text;
  const std::size_t options = at + kBlock.size(), end = text.find('\n', options);
  return text.erase(at, end == text.npos ? text.npos : end + 1 - at);
}

std::string with_block(std::string text, const Arguments& arguments) {
  text = without_block(std::move(text));
  return arguments.empty() ? text : fmt::format("{}{}options {}\n", text, kBlock, joined(arguments));
}

/// Entry with this id, on each partition that has it; ErrorCode::not_found if none has.
Result<Source> entry_called(const Host& host, const std::string& id) {
  Source found{id, {}, {}, {}};
  const std::string_view directory = is_image(id) ? kImages : kEntries;
  for (const BootPartition& partition : TRY(boot_partitions(host))) {
    const auto names = TRY(partition.list(host, directory));
    const auto name = std::ranges::find(names, id, entry_id);
    const bool differs = partition.unmounted() && !found.partitions.empty();
    if (name == names.end() && !differs && !partition.unmounted()) continue;
    const std::string file = name == names.end() ? "" : fmt::format("{}/{}", directory, *name);
    const std::string text = file.empty() || is_image(id) ? "" : TRY(partition.read(host, file));
    if (file.empty() || (differs && text != found.text))
      return fail(
          ErrorCode::state,
          fmt::format("{} is not as on the other boot partitions", partition.path(fmt::format("{}/{}", directory, id))),
          "Run \"sudo proxmox-boot-tool refresh\", then try again.");
    found.file = file;
    found.text = text;
    found.partitions.push_back(partition);
  }
  if (found.partitions.empty())
    return fail(ErrorCode::not_found, fmt::format("{}, the entry that booted, is on no boot partition", id),
                "Reboot into an entry that exists, then try again.");
  return found;
}

/// Entry that booted; in a trial boot, the one that the trial was made of.
Result<Source> source_entry(const Host& host) {
  std::string id = entry_id(TRY(loader_text(host, "LoaderEntrySelected")));
  if (id.starts_with(kTrialName)) {
    const std::string note = TRY(host.line(host.files().exists(kTrialNote) ? kTrialNote : kBootArguments));
    id = note.substr(0, note.find('\n'));
  }
  if (id.empty())
    return fail(ErrorCode::not_found,
                "systemd-boot does not say which entry it booted (EFI variable LoaderEntrySelected)",
                "Reboot, then try again.");
  Source source = TRY(entry_called(host, id));
  if (!is_image(id) && values_of(source.text, "linux").empty())
    return fail(ErrorCode::invalid,
                fmt::format("{} does not load Linux itself: its arguments are in what it starts", source.file),
                "Add the kernel arguments there, and reboot.");
  return source;
}

Arguments noted_in(const Host& host, std::string_view path) {
  return noted_arguments(host.files().read(path).value_or(""));
}
std::string note(std::string_view head, const Arguments& arguments) {
  return fmt::format("{}\n{}", head, arguments_note(arguments));
}

/// Arguments of a trial boot.
Arguments marked(Arguments arguments) {
  arguments.insert(arguments.end(), {std::string(kTrialArgument), std::string(kTrialPanic)});
  return arguments;
}

/// The trial as a text: the source, with a version that sorts behind its own.
std::string trial_text(const Source& source, const Arguments& arguments) {
  static const std::regex kTitle("(^|\n)(title[ \t]+)"), kVersion("(^|\n)(version[ \t]+)[^\n]*");
  std::string text = std::regex_replace(without_block(source.text), kTitle, "$1$2p2pd trial: ");
  return with_block(std::regex_replace(text, kVersion, "$1$020"), marked(arguments));
}

/// Key and certificate by which ukify signs the images of this host; empty: it does not.
Result<std::vector<std::string>> signing_options(const Host& host) {
  const std::string text = host.files().read(kUkifyConfig).value_or("");
  std::vector<std::string> options;
  static const std::regex kSetting("(^|\n)(SecureBootPrivateKey|SecureBootCertificate)[ \t]*=[ \t]*([^\n]*)");
  for (std::sregex_iterator at(text.begin(), text.end(), kSetting), end; at != end; ++at)
    options.push_back(fmt::format("--secureboot-{}={}",
                                  (*at)[2] == "SecureBootPrivateKey" ? "private-key" : "certificate", (*at)[3].str()));
  if (options.size() < 2 && TRY(efi_flag(host, "SecureBoot", kEfiGlobal)).value_or(false))
    return fail(ErrorCode::not_found,
                fmt::format("Secure Boot is on, and {} names no key: an addon would not be accepted", kUkifyConfig),
                "Add SecureBootPrivateKey= and SecureBootCertificate= to its section [UKI], then try again.");
  return options;
}

/// An addon that appends `arguments` to the command line in a unified image.
Result<std::string> addon(const Host& host, const Arguments& arguments) {
  constexpr std::string_view kMade = "/run/p2pd/addon.efi";
  Command command{{"ukify", "build", "--cmdline=" + joined(arguments), "--output=" + std::string(kMade)}};
  for (std::string& option : TRY(signing_options(host))) command.argv.push_back(std::move(option));
  command.deadline = std::chrono::minutes(2);
  TRY(host.output_of({{"mkdir", "-p", "/run/p2pd"}, {}, {}}));
  TRY(host.output_of(command));
  std::string content = TRY(host.files().read(kMade));
  TRY(host.output_of({{"rm", "-f", std::string(kMade)}, {}, {}}));
  return content;
}

/// Error if the loader cannot boot an entry once, or would boot the trial by default.
Result<void> require_one_time(const Host& host, const Source& source) {
  const auto features = TRY(efi_variable(host, "LoaderFeatures", kEfiLoader));
  if (features && features->size() == 8 && (static_cast<unsigned char>(features->front()) & kCanBootOnce) == 0)
    return fail(ErrorCode::invalid, "this boot loader cannot boot an entry once (EFI variable LoaderFeatures)",
                "Update it: \"sudo bootctl update\", and reboot.");
  std::vector<std::string> patterns{TRY(loader_text(host, "LoaderEntryDefault"))};
  for (const BootPartition& partition : source.partitions) {
    if (!partition.has(host, kConfig)) continue;
    const auto values = values_of(TRY(partition.read(host, kConfig)), "default");
    patterns.insert(patterns.end(), values.begin(), values.end());
  }
  for (const std::string& pattern : patterns)
    if (::fnmatch(pattern.c_str(), trial_id(source.id).c_str(), FNM_CASEFOLD) == 0)
      return fail(
          ErrorCode::invalid,
          fmt::format("the default of loader.conf or bootctl, \"{}\", would also choose the trial entry", pattern),
          "Choose a default by name: \"sudo bootctl set-default NAME\", then try again.");
  return {};
}

/// /etc/kernel/cmdline with `arguments`; nothing if entries are not made of it.
///
/// Where it is absent, kernel-install takes the command line of the running kernel, and would keep that of a trial.
Result<std::optional<std::string>> kernel_command_line(const Host& host, const Source& source,
                                                       const Arguments& arguments) {
  std::string text = TRY(read_if_any(host, kCommandLine));
  if (text.empty()) {
    if (!host.has_program("kernel-install") || host.files().exists("/usr/lib/kernel/cmdline")) return std::nullopt;
    std::vector<KernelArgument> line = parse_kernel_line(is_image(source.id) ? TRY(host.line("/proc/cmdline"))
                                                                             : options_of(without_block(source.text)));
    const bool trial = all_in_force({std::string(kTrialArgument)}, line);
    std::erase_if(line, [&](const KernelArgument& word) {
      return word.key == "initrd" || word.key == "BOOT_IMAGE" ||
             (trial && (word.text() == kTrialArgument || word.text() == kTrialPanic));
    });
    for (const KernelArgument& word : line) text += (text.empty() ? "" : " ") + word.text();
    text += '\n';
  }
  std::string added;  // proxmox-boot-tool reads the first line alone
  const std::size_t end = std::min(text.find('\n'), text.size());
  for (const std::string& argument : arguments)
    if (!all_in_force({argument}, parse_kernel_line(text.substr(0, end)))) added += " " + argument;
  return text.insert(end, added);
}

/// Calls `change` with the path and the text of each text entry of this system: those that load Linux with the root
/// file system of the running one.
Result<void> for_each_entry(
    const Host& host, const std::vector<BootPartition>& partitions,
    const std::function<Result<void>(const BootPartition&, const std::string&, const std::string&)>& change) {
  const auto root_of = [](const std::string& text) {
    const auto line = parse_kernel_line(text);
    const auto root = std::ranges::find(line, "root", &KernelArgument::key);
    return root == line.end() ? std::string() : root->text();
  };
  const std::string root = root_of(TRY(host.line("/proc/cmdline")));
  for (const BootPartition& partition : partitions)
    for (const std::string& name : TRY(partition.list(host, kEntries))) {
      if (!name.ends_with(".conf") || entry_id(name).starts_with(kTrialName)) continue;
      const std::string file = fmt::format("{}/{}", kEntries, name);
      const std::string text = TRY(partition.read(host, file));
      if (!values_of(text, "linux").empty() && root_of(options_of(text)) == root) TRY(change(partition, file, text));
    }
  return {};
}

Result<void> describe(const Host& host, const Arguments& wanted, Description& description) {
  const Arguments tried = merged_arguments(noted_in(host, kTrialNote), wanted);
  const Arguments lasting = merged_arguments(noted_in(host, kBootArguments), tried);
  description.commands = {fmt::format("bootctl set-oneshot {}.conf", kTrialName), "reboot"};
  if (!host.live()) return {};  // of a record, which has no boot partitions
  const auto source = source_entry(host);
  if (!source && source.error().code == ErrorCode::denied) {  // partitions of boot entries are often for root alone
    description.notes.push_back("which boot entries change is known to root alone");
    return {};
  }
  if (!source) return Failure(source.error());
  TRY(require_one_time(host, *source));
  description.commands[0] = "bootctl set-oneshot " + trial_id(source->id);
  const auto regular = [&](std::string path, std::string content) {
    description.files.push_back({std::move(path), FileState::Kind::regular, std::move(content)});
  };
  const BootPartition& first = source->partitions.front();
  if (is_image(source->id)) {
    TRY(signing_options(host));
    description.commands.insert(description.commands.begin(), "ukify build --cmdline=\"" + joined(tried) + "\"");
    description.notes.push_back("once proven, all unified images of this partition get the arguments, by " +
                                first.path(kAddonOfAll));
  } else if (!first.unmounted()) {
    regular(first.path(trial_file(source->id)), trial_text(*source, lasting));
    TRY(for_each_entry(
        host, source->partitions,
        [&](const BootPartition& partition, const std::string& file, const std::string& text) -> Result<void> {
          regular(partition.path(file), with_block(text, lasting));
          return {};
        }));
  } else {
    for (const BootPartition& partition : source->partitions)
      description.notes.push_back("the entries on " + partition.path("loader/entries") + " change, too");
  }
  if (auto line = TRY(kernel_command_line(host, *source, is_image(source->id) ? Arguments() : lasting)))
    regular(std::string(kCommandLine), std::move(*line));
  return {};
}

Result<void> write_trial(Host& host, const Arguments& arguments) {
  const Source source = TRY(source_entry(host));
  TRY(require_one_time(host, source));
  const Arguments all = merged_arguments(noted_in(host, kTrialNote), arguments);
  const std::string file = trial_file(source.id);
  if (!host.files().exists(kCommandLine))
    if (auto line = TRY(kernel_command_line(host, source, {}))) TRY(host.write(kCommandLine, std::move(*line)));
  const bool noted = TRY(read_if_any(host, kTrialNote)) == note(source.id, all);
  for (const BootPartition& partition : source.partitions) {
    if (!is_image(source.id)) {
      const std::string text = trial_text(source, merged_arguments(noted_in(host, kBootArguments), all));
      if (!partition.has(host, file) || TRY(partition.read(host, file)) != text) TRY(partition.write(host, file, text));
      continue;
    }
    if (!noted || !partition.has(host, file + std::string(kAddon)))
      TRY(partition.write(host, file + std::string(kAddon), TRY(addon(host, marked(all)))));
    TRY(partition.copy(host, source.file, file));
  }
  return noted ? Result<void>() : host.write(kTrialNote, note(source.id, all));  // last: the addon is of these
}

Result<void> choose(Host& host, const std::string& id) {
  const std::string_view kOnce = "LoaderEntryOneShot";
  if (entry_id(TRY(loader_text(host, kOnce))) == id) return {};
  TRY(host.will_change(efi_variable_path(kOnce, kEfiLoader), Restore::by_action));
  TRY(host.run({{"bootctl", "set-oneshot", id}, {}, {}}));
  if (entry_id(TRY(loader_text(host, kOnce))) == id) return {};
  return fail(ErrorCode::command, "bootctl succeeded, but the firmware does not keep EFI variable LoaderEntryOneShot",
              "Run \"bootctl status\" and look whether the firmware has room for variables.");
}

Result<void> arm(Host& host, const Arguments& arguments) {
  TRY(write_trial(host, arguments));
  return choose(host, trial_id(TRY(source_entry(host)).id));
}

Result<void> disarm(Host& host) {
  return entry_id(TRY(loader_text(host, "LoaderEntryOneShot"))).starts_with(kTrialName) ? choose(host, "")
                                                                                        : Result<void>();
}

Result<void> remove_trial(Host& host, const BootPartition& partition) {
  for (const std::string_view id : {".conf", ".efi"}) {
    const std::string file = trial_file(id);
    if (partition.has(host, file)) TRY(partition.remove(host, file));
    const std::string addons = file + std::string(kAddonsOf);
    if (is_image(id) && partition.has(host, addons)) TRY(partition.remove(host, addons));
  }
  return {};
}

Result<void> make_default(Host& host, const Arguments& arguments) {
  const Source source = TRY(source_entry(host));
  const Arguments proven = merged_arguments(noted_in(host, kTrialNote), arguments);
  const Arguments lasting = merged_arguments(noted_in(host, kBootArguments), proven);
  TRY(host.write(kBootArguments, note(source.id, lasting)));
  if (is_image(source.id)) {
    const std::string content = TRY(addon(host, lasting));
    for (const BootPartition& partition : source.partitions) TRY(partition.write(host, kAddonOfAll, content));
  }
  TRY(for_each_entry(host, source.partitions,
                     [&](const BootPartition& partition, const std::string& file, const std::string& text) {
                       const std::string with = with_block(text, lasting);
                       return with == text ? Result<void>() : partition.write(host, file, with);
                     }));
  if (auto line = TRY(kernel_command_line(host, source, is_image(source.id) ? Arguments() : lasting)))
    if (*line != TRY(read_if_any(host, kCommandLine))) TRY(host.write(kCommandLine, std::move(*line)));
  for (const BootPartition& partition : source.partitions) TRY(remove_trial(host, partition));
  return host.files().exists(kTrialNote) ? host.remove(kTrialNote) : Result<void>();
}

/// The partitions must be there if anything was written to them.
Result<void> prepare_undo(Host& host, const Arguments&) {
  if (host.files().exists(kTrialNote) || host.files().exists(kBootArguments)) TRY(boot_partitions(host));
  return {};
}

/// An entry that was made anew since has `arguments` among its own, from /etc/kernel/cmdline as it was then.
std::string without_arguments(std::string text, const Arguments& arguments) {
  for (const std::string& argument : arguments) {
    const std::size_t at = text.find(" " + argument);
    const std::size_t end = at + 1 + argument.size();
    if (at != text.npos && (end == text.size() || text[end] == ' ' || text[end] == '\n')) text.erase(at, end - at);
  }
  return text;
}

/// Leaves `kept` in the addon of all images; without any, the folder goes with it if it holds nothing else.
Result<void> undo_addon(Host& host, const BootPartition& partition, const Arguments& kept) {
  if (partition.has(host, kAddonOfAll)) {
    if (!kept.empty()) return partition.write(host, kAddonOfAll, TRY(addon(host, kept)));
    TRY(partition.remove(host, kAddonOfAll));
  }
  const bool left = partition.has(host, kAddons) && TRY(partition.list(host, kAddons)).empty();
  return left ? partition.remove(host, kAddons) : Result<void>();
}

Result<void> undo(Host& host, const Arguments& arguments) {
  TRY(disarm(host));
  const Arguments kept = noted_in(host, kBootArguments);  // of an earlier run
  const auto stays = parse_kernel_line(host.line(kCommandLine).value_or(""));
  Arguments ended = arguments;
  std::erase_if(
      ended, [&](const std::string& one) { return std::ranges::count(kept, one) > 0 || all_in_force({one}, stays); });
  const auto partitions = TRY(boot_partitions(host));
  for (const BootPartition& partition : partitions) {
    TRY(remove_trial(host, partition));
    TRY(undo_addon(host, partition, kept));
  }
  return for_each_entry(host, partitions,
                        [&](const BootPartition& partition, const std::string& file, const std::string& text) {
                          const bool ours = text.find(kBlock) != text.npos;
                          const std::string without = ours ? with_block(text, kept) : without_arguments(text, ended);
                          return without == text ? Result<void>() : partition.write(host, file, without);
                        });
}

}  // namespace

Result<void> systemd_boot_can_try(const Host& host) {
  const Source source = TRY(source_entry(host));
  TRY(require_one_time(host, source));
  if (!host.has_program("bootctl"))
    return fail(ErrorCode::not_found, "bootctl is not installed: no entry could be chosen for one boot",
                "Install it: \"sudo apt install systemd-boot\" (Debian 13: systemd-boot-tools).");
  if (is_image(source.id) && !host.has_program("ukify"))
    return fail(ErrorCode::not_found, "ukify is not installed: the arguments of a unified image could not be changed",
                "Install it: \"sudo apt install systemd-ukify\".");
  if (is_image(source.id)) TRY(signing_options(host));
  return {};
}

extern const BootLoader kSystemdBoot = {
    .id = "systemd-boot",
    .describe = describe,
    .write_trial = write_trial,
    .arm = arm,
    .disarm = disarm,
    .make_default = make_default,
    .prepare_undo = prepare_undo,
    .undo = undo,
};

}  // namespace p2pd
