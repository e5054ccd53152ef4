// SPDX-License-Identifier: MIT
#include "record/record_files.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/strings.hpp"
#include "machine/boot/grub.hpp"
#include "machine/boot/mounts.hpp"
#include "machine/hardware/nccl.hpp"
#include "machine/modules/build_log.hpp"
#include "machine/modules/initramfs.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/dpkg_status.hpp"
#include "record/redact.hpp"

namespace p2pd {
namespace {

std::string_view without_indent(std::string_view line) {
  return line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
}

std::string_view indent_of(std::string_view line) { return line.substr(0, line.size() - without_indent(line).size()); }

/// Keeps the lines NAME=VALUE of which `kind` has the name; of others the name stays.
std::string settings(std::string_view text, PublicKind kind) {
  return by_line(text, [&](std::string_view line) -> std::optional<std::string> {
    if (without_indent(line).empty()) return std::string(line);
    if (line.starts_with('#') || line.starts_with(';')) return public_comment(line);
    const std::size_t equals = line.find('=');
    const std::string_view name = line.substr(0, equals);
    const bool section = name.starts_with('[') && name.ends_with(']') && is_plain_name(name.substr(1, name.size() - 2));
    if (equals == line.npos || !is_plain_name(name)) return std::string(section ? name : kRemoved);
    return is_public(kind, name) ? std::string(line) : fmt::format("{}={}", name, kRemoved);
  });
}

/// Keeps the lines "NAME: VALUE" of which `kind` has the name; of others the name stays.
std::string fields(std::string_view text, PublicKind kind) {
  return by_line(text, [&](std::string_view line) -> std::optional<std::string> {
    if (without_indent(line).empty()) return std::string(line);
    if (line.starts_with('#')) return public_comment(line);
    const std::size_t colon = line.find(':');
    const std::string_view word = without_indent(line.substr(0, colon)),
                           name = word.substr(0, word.find_last_not_of(" \t") + 1);
    if (is_public(kind, name)) return std::string(line);
    constexpr std::string_view kInNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-/.# ";
    if (colon == line.npos || name.find_first_not_of(kInNames) != name.npos)
      return fmt::format("{}{}", indent_of(line), kRemoved);
    return fmt::format("{}: {}", line.substr(0, colon), kRemoved);
  });
}

/// Keeps the words for which `keeps` is true; blanks stay.
std::string by_word(std::string_view text, bool (*keeps)(std::string_view word)) {
  std::string out;
  while (!text.empty()) {
    const std::string_view blank = indent_of(text);
    text.remove_prefix(blank.size());
    const std::string_view word = text.substr(0, text.find_first_of(" \t"));
    text.remove_prefix(word.size());
    out += blank;
    if (!word.empty()) out += keeps(word) ? word : kRemoved;
  }
  return out;
}

std::string public_command(std::string_view text) {
  return by_word(text, [](std::string_view word) { return is_public(PublicKind::command_word, word); });
}

/// Title or id of an entry, or a path to one, "1>2".
std::string menu_name(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::string_view level = text.substr(0, text.find('>'));
    text.remove_prefix(level.size());
    out += is_public(PublicKind::menu_id, level)
               ? without_ids(std::string(level))
               : by_word(level, [](std::string_view word) { return is_public(PublicKind::menu_word, word); });
    for (; text.starts_with('>'); text.remove_prefix(1)) out += '>';
  }
  return out;
}

/// Checks for the path of a kernel or an initrd, with a disk of GRUB before it.
bool is_boot_file(std::string_view path) {
  const bool begins = path.starts_with('/') || path.starts_with('(') || path.starts_with('$');
  return begins && std::ranges::all_of(path, [](char c) {
           return is_plain_name(std::string_view(&c, 1)) ||
                  std::string_view("/()@~${}").find(c) != std::string_view::npos;
         });
}

/// Words of a load command, with public arguments.
std::string load_text(const GrubEntry::Load& load) {
  std::string out = load.kernel ? "\tlinux" : "\tinitrd";
  bool ended = false;  // the rest is for init
  for (std::size_t i = 0; i < load.words.size(); ++i) {
    const std::string& word = load.words[i];
    const bool file = !load.kernel || i == 0;
    const bool sound = is_plain_name(word) || word.find_first_of(" \t\n\"") == word.npos;
    const std::string kept = file && !is_boot_file(word) ? std::string(kRemoved)
                             : file                      ? word
                             : ended                     ? std::string(kRemoved)
                             : sound || word == "--"     ? public_arguments(word)
                                                         : public_arguments(kernel_argument(word).key + "=");
    out += " " + grub_quoted(kept);
    ended = ended || (!file && word == "--");
  }
  return out + "\n";
}

/// Writes `entries` anew: what parse_grub() reads of them.
std::string menu_text(const std::vector<GrubEntry>& entries) {
  std::string out;
  for (const GrubEntry& entry : entries) {
    if (entry.conditional) out += "if removed; then\n";
    out += fmt::format("{} '{}'", entry.submenu ? "submenu" : "menuentry", menu_name(entry.title));
    if (!entry.id.empty()) out += fmt::format(" --id '{}'", menu_name(entry.id));
    out += " {\n" + menu_text(entry.children);
    for (const GrubEntry::Load& load : entry.loads) out += load_text(load);
    out += entry.conditional ? "}\nfi\n" : "}\n";
  }
  return out;
}

/// Writes a menu anew; of a broken one the place and the kind of its mistake.
std::string menu_text(std::string_view text) {
  const auto menu = parse_grub(text);
  if (!menu) {
    const std::string& mistake = menu.error().message;  // "line 7: a quotation mark that is not closed"
    const auto line =
        static_cast<std::size_t>(std::max(std::atoi(mistake.c_str() + std::string_view("line ").size()), 1));
    const char* mark = mistake.find("quotation") != mistake.npos    ? "'"
                       : mistake.find("not closed") != mistake.npos ? "{"
                                                                    : "}";
    return std::string(line - 1, '\n') + mark;
  }
  std::string out;
  if (!menu->default_entry.empty()) out += fmt::format("set default='{}'\n", menu_name(menu->default_entry));
  if (menu->one_time) out += "if removed; then\nset default='${next_entry}'\nfi\n";
  out += menu_text(menu->entries);
  return menu->reads_custom ? out + "source /boot/grub/custom.cfg\n" : out;
}

/// Value of a variable in a shell: quotes, variables and public arguments stay; nullopt if more follows it on the line.
std::optional<std::string> shell_value(std::string_view value, bool bare) {
  std::string out;
  bool hidden = false;  // the piece before ends within a value that is left out
  for (std::size_t at = 0; at < value.size();) {
    if (std::string_view(" \t;").find(value[at]) != value.npos) {
      const std::string_view rest = without_indent(value.substr(at));
      return rest.empty() || rest == ";" || rest.starts_with('#') ? std::optional(out) : std::nullopt;
    }
    const bool quoted = value[at] == '\'' || value[at] == '"';
    const std::string_view ends = !quoted ? " \t;'\"" : value[at] == '"' ? "\"" : "'";
    std::size_t end = quoted ? at + 1 : at;
    for (; end < value.size() && ends.find(value[end]) == ends.npos; ++end)
      if (value[end] == '\\' && ends != "'" && ++end == value.size()) return std::nullopt;
    if (quoted && end == value.size()) return std::nullopt;
    const std::string_view piece = value.substr(at + (quoted ? 1 : 0), end - at - (quoted ? 1 : 0));
    if (ends != "'" && (piece.find('`') != piece.npos || piece.find("$(") != piece.npos))
      return "$(" + std::string(kRemoved) + ")";
    const std::string mark(quoted ? 1 : 0, value[at]), kept = hidden ? "" : public_arguments(piece, bare);
    out += mark + kept + mark;
    hidden = hidden || (kept.ends_with(kRemoved) && kept != piece);
    at = quoted ? end + 1 : end;
  }
  return out;
}

/// A line of /etc/default/grub: an assignment, a comment, or a command, which is replaced.
std::string shell_line(std::string_view line) {
  const std::string_view words = without_indent(line);
  if (words.empty()) return "";
  if (words.starts_with('#')) return public_comment(words);
  const std::size_t equals = line.find('=');
  std::string_view declares = words.substr(0, words.find('='));
  for (const std::string_view word : {"export ", "readonly "})
    if (declares.starts_with(word)) declares.remove_prefix(word.size());
  if (equals == line.npos || !is_plain_name(declares)) return std::string(kRemoved);
  const auto value = shell_value(line.substr(equals + 1), is_public(PublicKind::grub_variable, declares));
  return value ? std::string(line.substr(0, equals + 1)) + *value : std::string(kRemoved);
}

std::string modprobe_line(std::string_view rest) {
  if (rest.starts_with('#')) return public_comment(rest);
  const std::string_view verb = take_word(rest), module = take_word(rest);
  std::string begin = fmt::format("{} {}", verb, is_plain_name(module) ? module : kRemoved);
  if (verb.empty()) return "";
  if (verb == "options") {
    const bool closed = std::ranges::count(rest, '"') % 2 == 0;
    return begin + (closed ? public_arguments(rest, true, module) : " \"" + std::string(kRemoved));
  }
  if (verb == "blacklist") return begin;
  if (verb == "softdep") return begin + by_word(rest, is_plain_name);
  if (verb == "install" || verb == "remove") return begin + public_command(rest);
  return verb == "alias" && without_indent(rest) == "off" ? begin + " off" : std::string(kRemoved);
}

/// Source of a mount, without the host of a network mount.
std::string source_of(const Mount& mount) {
  const bool remote = mount.source.find(":/") != std::string::npos || mount.source.starts_with("//");
  return remote ? "host:/" : mount.source == mount.type ? mount.type : public_device(mount.source);
}

std::string plain_excerpt(const std::string& text) { return without_ids(text); }

/// Nothing: only p2pd's own scripts are read.
std::string script_excerpt(const std::string&) { return std::string(kRemoved) + "\n"; }

std::string arguments_excerpt(const std::string& text) { return without_ids(public_arguments(text)); }

/// Assignments with kernel arguments.
std::string grub_defaults_excerpt(const std::string& text) { return without_ids(by_line(text, shell_line)); }

/// Entries with files and arguments, the default.
std::string grub_menu_excerpt(const std::string& text) { return without_ids(menu_text(text)); }

/// The same, and p2pd's trial block.
std::string grub_custom_excerpt(const std::string& text) {
  const auto custom = split_grub_custom(text);
  if (!custom) return std::string(kTrialBegin);
  std::string out = menu_text(custom->user);
  if (custom->trial.empty()) return without_ids(out);
  out += std::string(kTrialBegin) + "# arguments:";
  for (const std::string& argument : noted_arguments(custom->trial)) out += " " + public_arguments(argument);
  return without_ids(out + "\n" + menu_text(custom->trial) + std::string(kTrialEnd));
}

std::string grub_environment_excerpt(const std::string& text) {
  std::string out = "# GRUB Environment Block\n";
  for (const auto& [name, value] : parse_grub_environment(text))
    if (is_plain_name(name))
      out += fmt::format("{}={}\n", name, is_public(PublicKind::grub_environment, name) ? menu_name(value) : kRemoved);
  return out;
}

/// Options of GPU drivers, banned modules.
std::string modprobe_excerpt(const std::string& text) {
  std::string out;
  int lines = 0;
  for (const ModprobeLine& line : modprobe_lines(text)) {  // keeps the number of each line
    for (; lines + 1 < line.number; ++lines) out += "\n";
    out += modprobe_line(line.text) + "\n";
    ++lines;
  }
  if (mentions_driver(text) && !mentions_driver(out)) out += "# nvidia\n";
  return out;
}

std::string depmod_excerpt(const std::string& text) {
  return by_line(text, [](std::string_view line) {
    std::string_view rest = line;
    const std::string_view verb = take_word(rest), module = take_word(rest);
    return verb == "override" && is_plain_name(module) ? fmt::format("override {} {}", module, kRemoved)
                                                       : std::string(verb.empty() ? "" : kRemoved);
  });
}

std::string names_excerpt(const std::string& text) {
  return by_line(text, [](std::string_view line) {
    return line.starts_with('#') ? public_comment(line) : by_word(line, is_plain_name);
  });
}

std::string nccl_excerpt(const std::string& text) { return settings(text, PublicKind::nccl_variable); }

/// Assignments of NCCL's variables, in their lines.
std::string environment_excerpt(const std::string& text) {
  bool any = false;
  std::string kept = by_line(text, [&](std::string_view line) -> std::optional<std::string> {
    std::string words;
    for (const NcclVariable& one : nccl_assignments(line))
      if (is_public(PublicKind::nccl_variable, one.name))
        words +=
            fmt::format("{}{}={}", words.empty() ? "" : " ", one.name, is_plain_name(one.value) ? one.value : kRemoved);
    any = any || !words.empty();
    return words;
  });
  return any ? kept : "";
}

std::string os_release_excerpt(const std::string& text) { return settings(text, PublicKind::os_release); }

std::string pins_excerpt(const std::string& text) { return fields(text, PublicKind::pin_field); }

/// Removes comments of YAML.
std::string catalogue_excerpt(const std::string& text) {
  return by_line(text, [](std::string_view line) {
    bool quoted = false;
    std::size_t end = 0;
    for (; end < line.size(); ++end) {
      quoted ^= line[end] == '"' || line[end] == '\'';
      if (line[end] == '#' && !quoted && (end == 0 || line[end - 1] == ' ' || line[end - 1] == '\t')) break;
    }
    return std::string(line.substr(0, end));
  });
}

std::string nvidia_excerpt(const std::string& text) { return without_ids(without_identity(text)); }

std::string version_excerpt(const std::string& text) { return by_line(text, public_version); }

/// Letters and digits replaced by 0.
std::string zeros_excerpt(const std::string& text) { return zeroed(text); }

std::string first_line_excerpt(const std::string& text) {
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? text : text.substr(0, end + 1);
}

/// The first processor, and every APIC ID.
std::string cpuinfo_excerpt(const std::string& text) {
  const std::size_t end = text.find("\n\n");
  if (end == std::string::npos) return text;
  return text.substr(0, end + 2) + lines_that(std::string_view(text).substr(end + 2),
                                              [](std::string_view line) { return line.starts_with("apicid"); });
}

/// The ranges of PCI buses.
std::string iomem_excerpt(const std::string& text) {
  std::size_t bus = std::string::npos;  // indent of the range of a root bus
  return lines_that(text, [&](std::string_view line) {
    const std::size_t indent = indent_of(line).size();
    if (indent <= bus && bus != std::string::npos) bus = std::string::npos;
    if (bus == std::string::npos && line.find(" : PCI Bus ") != std::string_view::npos) bus = indent;
    return bus != std::string::npos;
  });
}

/// Lines of nvidia's and Nova's modules.
std::string modules_dep_excerpt(const std::string& text) {
  return lines_that(text, [](std::string_view line) {
    const std::string_view file = line.substr(0, line.find(':'));
    return file.find("nvidia") != std::string_view::npos || file.find("/nova") != std::string_view::npos;
  });
}

/// Mounts of the system, not of its users.
std::string mounts_excerpt(const std::string& text) {
  constexpr std::string_view kPoints[] = {"/", "/boot", "/boot/efi", "/boot/grub", "/efi", "/usr", "/var"};
  int number = 0;
  return by_line(text, [&](std::string_view line) -> std::optional<std::string> {
    const auto mounts = parse_mounts(line);
    if (!mounts || mounts->empty()) return std::nullopt;
    const Mount& mount = mounts->front();
    if (std::ranges::find(kPoints, mount.point) == std::end(kPoints)) return std::nullopt;
    const std::string_view mode = mount.read_only ? "ro" : "rw";
    ++number;
    return fmt::format("{} {} {} / {} {} - {} {} {}", 24 + number, number == 1 ? 1 : 25, mount.device, mount.point,
                       mode, mount.type, source_of(mount), mode);
  });
}

/// Prefix of a device-mapper UUID, "LVM-".
std::string dm_excerpt(const std::string& text) { return text.substr(0, text.find('-') + 1) + "\n"; }

/// Times and exceptions of apt's automatic runs.
std::string apt_excerpt(const std::string& text) {
  std::string out;
  for (const AptOption& option : parse_apt_conf(text, "")) {
    if (option.name != "#clear" && is_public(PublicKind::apt_setting, option.name))
      out += fmt::format("{} \"{}\";\n", option.name, option.value);
    else if (option.name == "#clear" && is_public(PublicKind::apt_list, option.value))
      out += fmt::format("#clear {};\n", option.value);
  }
  return out;
}

/// Fields that machine/packages/dpkg_status.hpp reads.
std::string dpkg_excerpt(const std::string& text) {
  if (!parse_dpkg_status(text)) return fields(text, PublicKind::dpkg_field);  // its mistake and line are the fact
  return lines_that(text, [&](std::string_view line) {
    return line.empty() || is_public(PublicKind::dpkg_field, line.substr(0, line.find(':')));
  });
}

/// State of seeding.
std::string snapd_excerpt(const std::string& text) {
  constexpr std::string_view kSeeded = "\"seeded\"";
  const std::size_t at = text.find(kSeeded);
  if (at == std::string::npos) return "{}\n";
  const std::string value = text.substr(at + kSeeded.size(), 32);
  const std::size_t word = value.find_first_not_of(": ");
  const bool known =
      word != value.npos && (value.compare(word, 4, "true") == 0 || value.compare(word, 5, "false") == 0);
  return known ? fmt::format("{{{}:{}}}\n", kSeeded, value[word] == 't') : "{}\n";
}

/// Line that ended the build, if signatures.yaml knows it.
std::string build_log_excerpt(const std::string& text) {
  const auto failure = build_failure(text);
  if (!failure || !*failure) return "";
  const std::string head = text.substr(0, std::min(text.find(": "), text.size()));  // version of p2pd that built it
  return fmt::format("{}: \n{}\n", is_plain_name(head) ? head : kRemoved,
                     (*failure)->signature_id.empty() ? "error: removed" : (*failure)->line);
}

}  // namespace

std::string config_excerpt(const std::string& text) {
  return lines_that(
      text, [](std::string_view line) { return is_public(PublicKind::kernel_config, line.substr(0, line.find('='))); });
}

std::string framebuffer_excerpt(const std::string& text) {
  // of struct screen_info, with which boot_params begins: orig_video_isVGA, lfb_base, lfb_size, capabilities,
  // ext_lfb_base
  constexpr std::pair<std::size_t, std::size_t> kFields[] = {{0x0f, 1}, {0x18, 8}, {0x36, 8}};
  std::string kept(0x40, '\0');
  if (text.size() < kept.size()) return {};
  for (const auto& [at, size] : kFields) kept.replace(at, size, text, at, size);
  return kept;
}

std::string nvidia_smi_excerpt(const std::string& text) { return fields(text, PublicKind::nvidia_smi_field); }

std::string unit_excerpt(const std::string& text) {
  constexpr std::string_view kCommand = "ExecStart=";
  return by_line(settings(text, PublicKind::unit_directive), [&](std::string_view line) {
    return line.starts_with(kCommand) ? std::string(kCommand) + public_command(line.substr(kCommand.size()))
                                      : std::string(line);
  });
}

namespace {

constexpr std::string_view kProgramDirectories[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                                    "/usr/bin",        "/sbin",          "/bin"};

void expand(const RootReader& root, const std::string& above, std::string_view rest, std::vector<std::string>& found) {
  const std::size_t slash = rest.find('/', 1);
  const std::string name(rest.substr(1, slash == std::string_view::npos ? slash : slash - 1));
  const std::string_view below = slash == std::string_view::npos ? std::string_view() : rest.substr(slash);
  std::vector<std::string> names = {name};
  if (name.find('*') != std::string::npos) {
    names = root.list(above.empty() ? "/" : above).value_or(std::vector<std::string>());
    std::erase_if(names, [&](const std::string& entry) { return ::fnmatch(name.c_str(), entry.c_str(), 0) != 0; });
  }
  for (const std::string& entry : names) {
    if (below.empty())
      found.push_back(above + "/" + entry);
    else
      expand(root, above + "/" + entry, below, found);
  }
}

}  // namespace

const std::vector<RecordText>& record_texts() {  // one more file that a check reads needs a pattern here
  static const std::vector<RecordText> kTexts = {
      {config_excerpt, strings("/boot/config-*")},
      {grub_custom_excerpt, strings("/boot/grub/custom.cfg")},
      {grub_menu_excerpt, strings("/boot/grub/grub.cfg")},
      {grub_environment_excerpt, strings("/boot/grub/grubenv")},
      {apt_excerpt, strings("/etc/apt/apt.conf", "/etc/apt/apt.conf.d/*")},
      {pins_excerpt, strings("/etc/apt/preferences", "/etc/apt/preferences.d/*")},
      {environment_excerpt,
       strings("/etc/bash.bashrc", "/etc/environment", "/etc/environment.d/*.conf", "/etc/profile",
               "/etc/profile.d/*.sh", "/etc/security/pam_env.conf", "/etc/systemd/system.conf",
               "/etc/systemd/system.conf.d/*.conf", "/etc/systemd/user.conf", "/etc/systemd/user.conf.d/*.conf",
               "/run/environment.d/*.conf", "/run/systemd/system.conf.d/*.conf", "/run/systemd/user.conf.d/*.conf",
               "/usr/lib/environment.d/*.conf", "/usr/lib/systemd/system.conf.d/*.conf",
               "/usr/lib/systemd/user.conf.d/*.conf", "/usr/local/lib/environment.d/*.conf",
               "/usr/local/lib/systemd/system.conf.d/*.conf", "/usr/local/lib/systemd/user.conf.d/*.conf")},
      {first_line_excerpt, strings("/etc/debian_version", "/var/lib/nvidia/log")},
      {grub_defaults_excerpt, strings("/etc/default/grub", "/etc/default/grub.d/*.cfg")},
      {depmod_excerpt, strings("/etc/depmod.d/*.conf")},
      {script_excerpt,
       strings("/etc/kernel/*/dkms-p2pd", "/etc/kernel/header_postinst.d/zz-p2pd", "/etc/kernel/postinst.d/zzz-p2pd")},
      {arguments_excerpt, strings("/etc/kernel/cmdline", "/proc/cmdline")},
      {zeros_excerpt, strings("/etc/kernel/proxmox-boot-uuids")},
      {modprobe_excerpt, strings("/etc/modprobe.d/*.alias", "/etc/modprobe.d/*.conf", "/lib/modprobe.d/*.alias",
                                 "/lib/modprobe.d/*.conf", "/run/modprobe.d/*.conf", "/usr/lib/modprobe.d/*.alias",
                                 "/usr/lib/modprobe.d/*.conf", "/usr/local/lib/modprobe.d/*.conf")},
      {names_excerpt, strings("/etc/modules-load.d/*.conf")},
      {nccl_excerpt, strings("/etc/nccl.conf")},
      {os_release_excerpt, strings("/etc/os-release", "/usr/lib/os-release")},
      {catalogue_excerpt, strings("/etc/p2pd/catalogue.d/*.yaml")},
      {unit_excerpt, strings("/etc/systemd/system/nvidia-persistenced.service",
                             "/etc/systemd/system/nvidia-persistenced.service.d/*.conf",
                             "/lib/systemd/system/nvidia-persistenced.service")},
      {modules_dep_excerpt, strings("/lib/modules/*/modules.dep")},
      {plain_excerpt,
       strings("/lib/modules/*/updates/p2pd/build.json", "/proc/modules", "/proc/sys/kernel/osrelease",
               "/proc/sys/kernel/random/boot_id", "/sys/bus/pci/devices/*/aer_dev_correctable",
               "/sys/bus/pci/devices/*/boot_vga", "/sys/bus/pci/devices/*/class",
               "/sys/bus/pci/devices/*/current_link_speed", "/sys/bus/pci/devices/*/current_link_width",
               "/sys/bus/pci/devices/*/device", "/sys/bus/pci/devices/*/dma_mask_bits",
               "/sys/bus/pci/devices/*/local_cpulist", "/sys/bus/pci/devices/*/max_link_speed",
               "/sys/bus/pci/devices/*/max_link_width", "/sys/bus/pci/devices/*/numa_node",
               "/sys/bus/pci/devices/*/resource", "/sys/bus/pci/devices/*/vendor", "/sys/class/dmi/id/bios_date",
               "/sys/class/dmi/id/bios_vendor", "/sys/class/dmi/id/bios_version", "/sys/class/dmi/id/board_name",
               "/sys/class/dmi/id/board_vendor", "/sys/class/dmi/id/product_name", "/sys/class/dmi/id/sys_vendor",
               "/sys/class/drm/card*-*/enabled", "/sys/class/drm/card*-*/status", "/sys/class/graphics/fb*/name",
               "/sys/devices/system/cpu/online", "/sys/devices/system/cpu/possible", "/sys/devices/system/cpu/present",
               "/sys/devices/system/node/node*/cpulist", "/sys/firmware/efi/fw_platform_size",
               "/sys/kernel/iommu_groups/*/type", "/sys/kernel/security/lockdown", "/sys/kernel/security/lsm",
               "/sys/module/gdrdrv/version", "/sys/module/kvm_amd/refcnt", "/sys/module/kvm_intel/refcnt",
               "/sys/module/module/parameters/sig_enforce", "/sys/module/nova*/initstate", "/sys/module/nova*/refcnt",
               "/sys/module/nova*/srcversion", "/sys/module/nouveau/initstate", "/sys/module/nouveau/refcnt",
               "/sys/module/nouveau/srcversion", "/sys/module/nvidia*/initstate", "/sys/module/nvidia*/parameters/*",
               "/sys/module/nvidia*/refcnt", "/sys/module/nvidia*/srcversion", "/sys/module/nvidia*/taint",
               "/sys/module/nvidia*/version")},
      {cpuinfo_excerpt, strings("/proc/cpuinfo")},
      {nvidia_excerpt,
       strings("/proc/driver/nvidia/gpus/*/information", "/proc/driver/nvidia/params", "/proc/driver/nvidia/version")},
      {iomem_excerpt, strings("/proc/iomem")},
      {mounts_excerpt, strings("/proc/self/mountinfo")},
      {version_excerpt, strings("/proc/version")},
      {dm_excerpt, strings("/sys/class/block/*/dm/uuid", "/sys/dev/block/*/dm/uuid")},
      {nullptr, strings("/sys/firmware/efi/efivars/LoaderInfo-*", "/sys/firmware/efi/efivars/SecureBoot-*",
                        "/sys/firmware/efi/efivars/SetupMode-*", "/sys/module/nvidia*/notes/.note.gnu.build-id")},
      {framebuffer_excerpt, strings("/sys/kernel/boot_params/data")},
      {dpkg_excerpt, strings("/var/lib/dpkg/status")},
      {snapd_excerpt, strings("/var/lib/snapd/state.json")},
      {build_log_excerpt, strings("/var/log/p2pd/driver-build-*.log")},
  };
  return kTexts;
}

std::vector<std::string> record_paths(const RootReader& root, RecordPart part) {
  static const std::map<RecordPart, std::vector<const char*>> kPaths = {
      {RecordPart::names,
       strings(
           "/boot/grub2/grub.cfg", "/boot/initramfs-*", "/boot/initrd*", "/boot/loader/loader.conf", "/boot/vmlinuz-*",
           "/lib/firmware/nvidia/*/gsp_*", "/run/cloud-init/disabled", "/run/cloud-init/result.json",
           "/run/reboot-required", "/sys/class/block/*/md/level", "/sys/class/block/*/slaves/*",
           "/sys/dev/block/*/../md/level",  // partition on a RAID; in the record, a block device is a plain directory
           "/sys/dev/block/*/md/level", "/sys/dev/block/*/slaves/*", "/sys/firmware/acpi/tables/*",
           "/sys/firmware/efi/efivars/MokNew-*", "/usr/lib/firmware/nvidia/*/gsp_*",
           "/usr/lib/nvidia/alternate-install-present", "/var/lib/dkms/mok.key", "/var/lib/dpkg/updates/*",
           "/var/lib/shim-signed/mok/MOK.priv", "/var/lib/snapd/seed/seed.yaml", "/var/log/nvidia-installer.log")},
      {RecordPart::directories,
       strings("/boot/EFI/systemd", "/boot/efi/EFI/systemd", "/efi/EFI/systemd", "/lib/modules/*", "/run/cloud-init",
               "/sys/fs/cgroup/system.slice/apt-daily*.service", "/sys/fs/cgroup/system.slice/snapd.seeded.service",
               "/sys/fs/cgroup/systemd/system.slice/apt-daily*.service",
               "/sys/fs/cgroup/systemd/system.slice/snapd.seeded.service", "/usr/bin",
               "/var/lib/dkms/nvidia*/*/[0-9]*",  // one for each kernel
               "/var/lib/dpkg/updates")},
      {RecordPart::links,
       strings("/etc/systemd/system/*.wants/nvidia-persistenced.service", "/sys/bus/pci/devices/*/driver",
               "/sys/bus/pci/devices/*/iommu_group", "/sys/class/drm/card*/device", "/sys/class/graphics/fb*/device",
               "/sys/class/infiniband/*/device", "/sys/class/iommu/*", "/sys/module/nvidia*/holders/*",
               "/var/lib/dkms/nvidia*/*/source", "/var/lib/dkms/p2pd-nvidia/kernel-*")},
      {RecordPart::libraries,
       strings("/run/opengl-driver/lib/libcuda.so.1", "/run/opengl-driver/lib/libnvidia-ml.so.1",
               "/usr/lib/aarch64-linux-gnu/libcuda.so.1", "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
               "/usr/lib/libcuda.so.1", "/usr/lib/libnvidia-ml.so.1", "/usr/lib/wsl/lib/libcuda.so.1",
               "/usr/lib/wsl/lib/libnvidia-ml.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
               "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "/usr/lib64/libcuda.so.1", "/usr/lib64/libnvidia-ml.so.1",
               "/usr/local/lib/libcuda.so.1", "/usr/local/lib/libnvidia-ml.so.1")},
      {RecordPart::modules,
       strings("/lib/modules/*/extra/nvidia*.ko*", "/lib/modules/*/extra/nvidia/nvidia*.ko*",
               "/lib/modules/*/kernel/drivers/char/drm/nvidia*.ko*", "/lib/modules/*/kernel/drivers/video/nvidia*.ko*",
               "/lib/modules/*/kernel/drivers/video/nvidia/nvidia*.ko*", "/lib/modules/*/kernel/nvidia*/nvidia*.ko*",
               "/lib/modules/*/misc/nvidia*.ko*", "/lib/modules/*/updates/dkms/nvidia*.ko*",
               "/lib/modules/*/updates/nvidia*.ko*", "/lib/modules/*/updates/p2pd/nvidia*.ko*")},
  };
  std::vector<std::string> found;
  for (const char* pattern : kPaths.at(part)) expand(root, "", pattern, found);
  return found;
}

std::vector<std::string> record_programs(const RootReader& root) {
  static const std::vector<const char*> kPrograms =
      strings("clang-[0-9]*", "depmod", "dkms", "g++", "gcc", "gcc-[0-9]*", "git", "ld", "lsinitramfs", "lsinitrd",
              "make", "modinfo", "modprobe", "grub-mkconfig", "mokutil", "dpkg", "nvidia-persistenced", "nvidia-smi",
              "nvidia-uninstall", "proxmox-boot-tool", "update-grub", "update-initramfs", "xz");
  std::vector<std::string> found;
  for (const std::string_view directory : kProgramDirectories) {
    if (root.read_link(directory)) continue;  // /bin is a link to /usr/bin, which is listed already
    for (const char* program : kPrograms) expand(root, "", fmt::format("{}/{}", directory, program), found);
  }
  return found;
}

std::vector<std::string> record_paths(const RootReader& root, std::string_view pattern) {
  std::vector<std::string> paths;
  expand(root, "", pattern, paths);
  return paths;
}

}  // namespace p2pd
