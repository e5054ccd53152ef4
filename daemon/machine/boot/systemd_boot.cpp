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
#include <map>
#include <regex>
#include <sstream>

#include "base/strings.hpp"
#include "machine/boot/boot_partition.hpp"
#include "machine/boot/efi_variable.hpp"
#include "machine/boot/kernel_arguments.hpp"

namespace p2pd {
namespace {

using Arguments = BootLoader::Arguments;

constexpr std::string_view kEntries = "loader/entries", kImages = "EFI/Linux", kConfig = "loader/loader.conf";
constexpr std::string_view kTrialName = "a-p2pd-trial";  // ids are sorted downwards: behind machine ids and names
constexpr std::string_view kTrialNote = "/var/lib/p2pd/boot-trial";  // its entry and arguments
// Arguments that p2pd put into /etc/kernel/cmdline, in a note whose first line is kMadeLine if it made that file.
constexpr std::string_view kWritten = "/var/lib/p2pd/boot-entries", kMadeLine = "# made /etc/kernel/cmdline";
constexpr std::string_view kForOneBoot = "/etc/tmpfiles.d/p2pd-boot.conf";
constexpr std::string_view kCommandLine = "/etc/kernel/cmdline", kUkifyConfig = "/etc/kernel/uki.conf";
constexpr std::string_view kBlock = "\n# Written by p2pd; undone by `p2pctl revert`.\n";  // the line `options` follows
constexpr std::string_view kAddonsOf = ".extra.d", kAddon = ".extra.d/p2pd.addon.efi";    // of one image
constexpr std::string_view kAddons = "loader/addons", kAddonOfAll = "loader/addons/p2pd.addon.efi";
// EFI_LOADER_FEATURE_ENTRY_ONESHOT, and _SORT_KEY: from then on the first entry is the default, by the order of
// kTrialName
constexpr unsigned kCanBootOnce = 1U << 3, kSorts = 1U << 8;

std::string joined(const Arguments& arguments) { return fmt::format("{}", fmt::join(arguments, " ")); }

/// Name of a file without boot counters, as systemd-boot calls the entry: "debian+2-1.conf" is "debian.conf".
std::string entry_id(const std::string& file) {
  static const std::regex kCounters(R"((.*)\+[0-9]+(-[0-9]+)?(\.[a-z]+))");
  return lower(std::regex_replace(file, kCounters, "$1$3"));
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
    line.erase(line.find_last_not_of(" \t\r") + 1);
    line.erase(0, std::min(line.find_first_not_of(" \t", end), line.size()));
    const bool quoted = line.size() > 1 && line.front() == line.back() && (line[0] == '"' || line[0] == '\'');
    values.push_back(quoted ? line.substr(1, line.size() - 2) : line);
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
    if (name == names.end() && !partition.unmounted()) continue;
    const bool is_mirror = partition.unmounted() && !found.partitions.empty();
    const std::string file = name == names.end() ? "" : fmt::format("{}/{}", directory, *name);
    const std::string text = file.empty() || is_image(id) ? "" : TRY(partition.read(host, file));
    if (file.empty() || (is_mirror && without_block(text) != without_block(found.text)))
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
    const auto note = host.line(host.files().exists(kTrialNote) ? kTrialNote : kBootArguments);
    if (!note) return fail(ErrorCode::state, "this boot is a trial that was undone", "Reboot, then try again.");
    id = note->substr(0, note->find('\n'));
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
  const bool last = values_of(source.text, "sort-key").empty() && !is_image(id) && id.starts_with("a-");
  if (last || source.file.find("+0") != source.file.npos)
    return fail(ErrorCode::invalid, fmt::format("the trial would be sorted before {}, and be the default", source.file),
                last ? "Give that file another name, reboot, then try again."
                     : "It has no tries left: see why boots are not counted as good (\"systemctl status "
                       "systemd-bless-boot\"), then try again.");
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

/// The trial as a text: the source, with a version that sorts behind every other.
std::string trial_text(const Source& source, const Arguments& arguments) {
  static const std::regex kTitle("(^|\n)(title[ \t]+)"), kVersion("(^|\n)version[ \t][^\n]*");
  std::string text = std::regex_replace(without_block(source.text), kTitle, "$1$2p2pd trial: ");
  text = "version ~\n" + std::regex_replace(text, kVersion, "$1#");
  return with_block(std::move(text), marked(arguments));
}

/// Key and certificate by which ukify signs the images of this host; empty: it does not.
Result<std::vector<std::string>> signing_options(const Host& host) {
  const std::string text = host.files().read(kUkifyConfig).value_or("");
  std::vector<std::string> options;
  static const std::regex kSetting(
      "(^|\n)(SecureBootPrivateKey|SecureBootCertificate|SecureBootSigningTool)[ \t]*=[ \t]*([^\n]*)");
  const std::map<std::string, std::string> kOptions = {{"SecureBootPrivateKey", "--secureboot-private-key"},
                                                       {"SecureBootCertificate", "--secureboot-certificate"},
                                                       {"SecureBootSigningTool", "--signtool"}};
  for (std::sregex_iterator at(text.begin(), text.end(), kSetting), end; at != end; ++at)
    options.push_back(fmt::format("{}={}", kOptions.at((*at)[2]), (*at)[3].str()));
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
  const std::string features = TRY(efi_variable(host, "LoaderFeatures", kEfiLoader)).value_or("");
  const unsigned has = features.size() != 8 ? 0
                                            : static_cast<unsigned char>(features[0]) |
                                                  static_cast<unsigned>(static_cast<unsigned char>(features[1])) << 8;
  if ((has & kCanBootOnce) == 0 || (has & kSorts) == 0)
    return fail(ErrorCode::invalid, "this boot loader is too old to boot an entry once (EFI variable LoaderFeatures)",
                "Update it: \"sudo bootctl update\", and reboot.");
  std::vector<std::string> patterns{TRY(loader_text(host, "LoaderEntryDefault"))};
  for (const BootPartition& partition : TRY(boot_partitions(host))) {
    if (!TRY(partition.has(host, kConfig))) continue;
    const std::string text = TRY(partition.read(host, kConfig));
    for (const std::string_view key : {"default", "preferred"})
      for (std::string& value : values_of(text, key)) patterns.push_back(std::move(value));
  }
  for (const std::string& pattern : patterns)
    if (::fnmatch(pattern.c_str(), trial_id(source.id).c_str(), FNM_CASEFOLD) == 0)
      return fail(
          ErrorCode::invalid,
          fmt::format("the default of loader.conf or bootctl, \"{}\", would also choose the trial entry", pattern),
          "Choose a default by name: \"sudo bootctl set-default NAME\", then try again.");
  return {};
}

/// Arguments of the running kernel that are not of its loader, nor of a trial.
std::vector<KernelArgument> own_arguments(const std::string& text) {
  std::vector<KernelArgument> line = parse_kernel_line(text);
  const bool trial = all_in_force({std::string(kTrialArgument)}, line);
  std::erase_if(line, [&](const KernelArgument& word) {
    return word.key == "initrd" || word.key == "BOOT_IMAGE" ||
           (trial && (word.text() == kTrialArgument || word.text() == kTrialPanic));
  });
  return line;
}

Arguments without(Arguments arguments, const Arguments& ended) {
  std::erase_if(arguments, [&](const std::string& one) { return std::ranges::count(ended, one) > 0; });
  return arguments;
}

std::string text_of(const std::vector<KernelArgument>& line) {
  std::string text;
  for (const KernelArgument& word : line) text += (text.empty() ? "" : " ") + word.text();
  return text + "\n";
}

/// What kernel-install makes entries of, if this system has no /etc/kernel/cmdline: the command line of the running
/// kernel. Nothing if it has one, or makes no entries so.
Result<std::optional<std::string>> line_of_kernel_install(const Host& host, const Source& source) {
  const bool installed = source.id.find(host.line("/proc/sys/kernel/osrelease").value_or("/")) != source.id.npos;
  if (host.files().exists(kCommandLine) || !installed || !host.has_program("kernel-install") ||
      host.files().exists("/usr/lib/kernel/cmdline"))
    return std::nullopt;
  const std::string options =
      is_image(source.id) ? TRY(host.line("/proc/cmdline")) : options_of(without_block(source.text));
  return text_of(own_arguments(options));
}

/// Those of `arguments` that `text`, the content of /etc/kernel/cmdline, lacks.
Arguments lacking(const std::string& text, Arguments arguments) {
  const auto line = parse_kernel_line(text);
  std::erase_if(arguments, [&](const std::string& one) { return all_in_force({one}, line); });
  return arguments;
}

/// Content of /etc/kernel/cmdline with them: proxmox-boot-tool reads the first line alone, kernel-install all but
/// comments.
std::string with_lacking(std::string text, const Arguments& arguments) {
  std::size_t from = 0;
  while (text.substr(from).starts_with('#')) from = std::min(text.find('\n', from), text.size() - 1) + 1;
  const std::size_t end = std::min(text.find('\n', from), text.size());
  for (std::size_t at = end; const std::string& one : lacking(text, arguments)) {
    text.insert(at, " " + one);
    at += 1 + one.size();
  }
  return text;
}

using EntryChange = std::function<Result<void>(const BootPartition&, const std::string& file, const std::string& text)>;

/// Calls `change` with the path and the text of each text entry of this system: those that load Linux with the root
/// file system of the running one, and those that have a line of p2pd.
Result<void> for_each_entry(const Host& host, const std::vector<BootPartition>& partitions, const EntryChange& change) {
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
      const bool own = !values_of(text, "linux").empty() && root_of(options_of(text)) == root;
      if (own || text.find(kBlock) != text.npos) TRY(change(partition, file, text));
    }
  return {};
}

/// An entry without what p2pd put into it: a line, or `made` where a tool made it anew of /etc/kernel/cmdline since.
std::string bare(std::string text, const Arguments& made) {
  if (text.find(kBlock) != text.npos) return without_block(std::move(text));
  for (const std::string& argument : made) {
    const std::size_t at = text.find(" " + argument), end = at + 1 + argument.size();
    if (at != text.npos && (end == text.size() || text[end] == ' ' || text[end] == '\n')) text.erase(at, end - at);
  }
  return text;
}

Result<void> describe(const Host& host, const Arguments& wanted, Description& description) {
  const Arguments tried = merged_arguments(noted_in(host, kTrialNote), wanted);
  const Arguments lasting = merged_arguments(noted_in(host, kBootArguments), tried);
  description.commands = {fmt::format("bootctl set-oneshot {}.conf", kTrialName), "reboot"};
  if (host.files().exists("/etc/sdboot-manage.conf"))
    description.notes.push_back("sdboot-manage makes boot entries anew with each kernel: add " + joined(lasting) +
                                " to LINUX_OPTIONS in /etc/sdboot-manage.conf, too");
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
    return {};
  }
  const Arguments made = noted_in(host, kWritten);
  if (first.unmounted())
    for (const BootPartition& partition : source->partitions)
      description.notes.push_back("the entries on " + partition.path(kEntries) + " change, too");
  else {
    regular(first.path(trial_file(source->id)), trial_text(*source, lasting));
    TRY(for_each_entry(host, source->partitions, [&](const auto& partition, const auto& file, const auto& text) {
      regular(partition.path(file), with_block(bare(text, made), lasting));
      return Result<void>();
    }));
  }
  const std::string line = TRY(line_of_kernel_install(host, *source)).value_or(TRY(read_if_any(host, kCommandLine)));
  if (!line.empty()) regular(std::string(kCommandLine), with_lacking(line, lasting));
  return {};
}

/// Notes that undo has something to undo.
Result<void> note_written(Host& host, bool made_line, const Arguments& made) {
  return host.write(kWritten, note(made_line ? kMadeLine : "# p2pd", made), 0644, Restore::by_action);
}
Result<bool> made_line(const Host& host) { return TRY(read_if_any(host, kWritten)).starts_with(kMadeLine); }

Result<void> write_trial(Host& host, const Arguments& arguments) {
  const Source source = TRY(source_entry(host));
  TRY(require_one_time(host, source));
  const Arguments all = merged_arguments(noted_in(host, kTrialNote), arguments);
  const std::string file = trial_file(source.id), addons = file + std::string(kAddon);
  const auto line = TRY(line_of_kernel_install(host, source));
  if (line || !host.files().exists(kWritten)) TRY(note_written(host, line.has_value(), noted_in(host, kWritten)));
  if (line) TRY(host.write(kCommandLine, *line));  // else a kernel installed in the trial boot would keep its arguments
  const bool noted = TRY(read_if_any(host, kTrialNote)) == note(source.id, all);
  for (const BootPartition& partition : source.partitions) {
    if (is_image(source.id)) {
      if (!noted || !TRY(partition.has(host, addons)))
        TRY(partition.write(host, addons, TRY(addon(host, marked(all)))));
      TRY(partition.copy(host, source.file, file));
      continue;
    }
    const std::string text = trial_text(source, merged_arguments(noted_in(host, kBootArguments), all));
    if (!TRY(partition.has(host, file)) || TRY(partition.read(host, file)) != text)
      TRY(partition.write(host, file, text));
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
  const std::string image = trial_file(".efi");
  for (const std::string& file : {trial_file(".conf"), image, image + std::string(kAddonsOf)})
    TRY(partition.remove(host, file));
  return {};
}

Result<void> make_default(Host& host, const Arguments& arguments) {
  const Source source = TRY(source_entry(host));
  const Arguments proven = merged_arguments(noted_in(host, kTrialNote), arguments);
  const Arguments lasting = merged_arguments(noted_in(host, kBootArguments), proven), made = noted_in(host, kWritten);
  if (is_image(source.id)) {
    const std::string content = TRY(addon(host, lasting));
    for (const BootPartition& partition : source.partitions) TRY(partition.write(host, kAddonOfAll, content));
  }
  TRY(for_each_entry(host, source.partitions, [&](const auto& partition, const auto& file, const auto& text) {
    const std::string with = with_block(bare(text, made), lasting);
    return with == text ? Result<void>() : partition.write(host, file, with);
  }));
  const std::string line = TRY(read_if_any(host, kCommandLine));
  if (const Arguments added = lacking(line, lasting); !line.empty() && !added.empty() && !is_image(source.id)) {
    TRY(note_written(host, TRY(made_line(host)), merged_arguments(made, added)));
    TRY(host.write(kCommandLine, with_lacking(line, lasting)));
  }
  TRY(host.write(kBootArguments, note(source.id, lasting)));
  for (const BootPartition& partition : source.partitions) TRY(remove_trial(host, partition));
  return host.files().exists(kTrialNote) ? host.remove(kTrialNote) : Result<void>();
}

/// The partitions must be there if anything was written to them.
Result<void> prepare_undo(Host& host, const Arguments&) {
  if (!host.files().exists(kWritten)) return {};
  for (const BootPartition& partition : TRY(boot_partitions(host))) TRY(partition.list(host, kEntries));
  return {};
}

/// Leaves `kept` in the addon of all images; without any, the folder goes with it if it holds nothing else.
Result<void> undo_addon(Host& host, const BootPartition& partition, const Arguments& kept) {
  if (TRY(partition.has(host, kAddonOfAll))) {
    if (!kept.empty()) return partition.write(host, kAddonOfAll, TRY(addon(host, kept)));
    TRY(partition.remove(host, kAddonOfAll));
  }
  const bool left = TRY(partition.has(host, kAddons)) && TRY(partition.list(host, kAddons)).empty();
  return left ? partition.remove(host, kAddons) : Result<void>();
}

/// In a trial boot that is undone, a kernel that is installed must not get its arguments: the file that says so goes
/// with the boot.
Result<void> keep_line_for_this_boot(Host& host, const Arguments& ended) {
  std::vector<KernelArgument> line = parse_kernel_line(TRY(host.line("/proc/cmdline")));
  if (!all_in_force({std::string(kTrialArgument)}, line) || host.files().exists(kCommandLine)) return {};
  line = own_arguments(TRY(host.line("/proc/cmdline")));
  std::erase_if(line, [&](const KernelArgument& word) { return std::ranges::count(ended, word.text()) > 0; });
  TRY(host.write(kForOneBoot, fmt::format("# Written by p2pd.\nr! {}\nr! {}\n", kCommandLine, kForOneBoot), 0644,
                 Restore::by_action));
  return host.write(kCommandLine, text_of(line), 0644, Restore::by_action);
}

Result<void> undo(Host& host, const Arguments& arguments) {
  if (!host.files().exists(kWritten)) return {};
  TRY(disarm(host));
  const Arguments kept = noted_in(host, kBootArguments);  // of an earlier run
  const Arguments made = noted_in(host, kWritten), ended = lacking(TRY(read_if_any(host, kCommandLine)), made);
  const auto partitions = TRY(boot_partitions(host));
  for (const BootPartition& partition : partitions) {
    TRY(remove_trial(host, partition));
    TRY(undo_addon(host, partition, kept));
  }
  TRY(for_each_entry(host, partitions, [&](const auto& partition, const auto& file, const auto& text) {
    const bool ours = text.find(kBlock) != text.npos;
    const std::string left = ours ? with_block(text, kept) : bare(text, ended);
    return left == text ? Result<void>() : partition.write(host, file, left);
  }));
  if (!kept.empty()) return note_written(host, TRY(made_line(host)), without(made, ended));
  if (TRY(made_line(host))) TRY(keep_line_for_this_boot(host, arguments));
  return host.remove_tree(kWritten);
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
