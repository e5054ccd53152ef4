// SPDX-License-Identifier: MIT
#include "record/redact.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <vector>

#include "base/signatures.hpp"
#include "base/strings.hpp"
#include "machine/driver/registry_keys.hpp"

namespace p2pd {
namespace {

/// All that a record and a report keep, as patterns of fnmatch(3). What is not here is left out: a check that reads
/// more needs a pattern.
const std::map<PublicKind, std::vector<const char*>> kPublic = {
    {PublicKind::argument,
     // read by iommu, boot-loader, secure-boot, modprobe-options; then what plans set (kernel_arguments.cpp)
     strings("*iommu*", "*intremap*", "*vfio*", "pcie_acs_override", "BOOT_IMAGE", "module.sig_enforce", "lockdown",
             "nvidia*.*", "nouveau.*", "nova*.*", "p2pd.*", "pci", "pcie_aspm", "console", "modprobe.blacklist",
             "module_blacklist", "rd.driver.blacklist",
             // tell a reader how the kernel booted
             "boot", "initrd", "mitigations", "panic", "random.trust_cpu", "reboot", "root",  // as a device
             "swiotlb")},
    {PublicKind::module_option, strings("NVreg_*", "disable_*", "fbdev", "ids", "modeset", "uvm_*")},
    // package-state, driver-pins
    {PublicKind::apt_setting,
     strings("apt::periodic::enable", "apt::periodic::unattended-upgrade", "apt::periodic::update-package-lists",
             "unattended-upgrade::automatic-reboot", "unattended-upgrade::package-blacklist::")},
    {PublicKind::apt_list,
     strings("apt", "apt::periodic", "unattended-upgrade", "unattended-upgrade::package-blacklist")},
    {PublicKind::dpkg_field, strings("Architecture", "Package", "Status", "Version")},
    {PublicKind::pin_field, strings("Package", "Pin-Priority")},
    // nouveau-blacklist, nvidia-modules, persistenced
    {PublicKind::command_word,
     strings("/bin/false", "/bin/true", "/sbin/modprobe", "/usr/bin/false", "/usr/bin/nvidia-persistenced",
             "/usr/bin/true", "/usr/sbin/modprobe", "$CMDLINE_OPTS", "-[a-z]", "--ignore-install",
             "--no-persistence-mode", "--persistence-mode", "--user", "--verbose", "false", "modprobe", "nouveau",
             "nova", "nova[_-]core", "nova[_-]drm", "nvidia*", "true", "&&", ";", "||")},
    {PublicKind::unit_directive, strings("ExecStart")},
    // boot-loader, bootable-kernels
    {PublicKind::grub_environment, strings("next_entry", "saved_entry")},
    {PublicKind::grub_variable, strings("GRUB_CMDLINE_LINUX*")},
    {PublicKind::menu_id, strings("${next_entry}", "${saved_entry}", "$saved_entry", "[0-9]", "[0-9][0-9]",
                                  "gnulinux-*", "p2pd-trial", "uefi-firmware")},
    {PublicKind::menu_word,
     strings("(recovery", "Advanced", "Debian", "Fedora", "Firmware", "GNU/Linux", "GNU/Linux,", "Linux", "Proxmox",
             "Settings", "UEFI", "Ubuntu", "Ubuntu,", "VE", "VE,", "for", "mode)", "options", "p2pd", "trial:", "with",
             "[0-9]*")},  // release of a kernel, which the name of its file has, too
    // boot-loader: what is below /boot; a number is 0
    {PublicKind::disk, strings("[hsv]d[a-z]", "[hsv]d[a-z]0", "dm-0", "loop0", "md0", "md0p0", "mmcblk0p0", "nvme0n0",
                               "nvme0n0p0", "ram0", "root", "xvd[a-z]0", "zram0")},
    // build-tools, nccl, the choice of a driver
    {PublicKind::kernel_config,
     strings("CONFIG_CC_VERSION_TEXT", "CONFIG_DEBUG_INFO_BTF*", "CONFIG_GCC_VERSION", "CONFIG_MODULE_SIG",
             "CONFIG_MODULE_SIG_FORCE", "CONFIG_MODVERSIONS", "CONFIG_OBJTOOL_WERROR", "CONFIG_WERROR")},
    {PublicKind::nccl_variable, strings("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")},
    {PublicKind::os_release, strings("ID", "ID_LIKE", "NAME", "PRETTY_NAME", "*VERSION", "VERSION_ID", "*_CODENAME")},
    // memory of a GPU without p2p-bench; what the driver is
    {PublicKind::nvidia_smi_field, strings("Attached GPUs", "BAR1 Memory Usage", "Bus Id", "* Mode", "* Version",
                                           "FB Memory Usage", "Free", "GPU [0-9]*", "GPU Recovery Action",
                                           "Product Architecture", "Product Brand", "Product Name", "Total", "Used")},
    // fields of the messages that signatures.yaml knows, and of the checks' own sentences
    {PublicKind::log_field,
     strings("NVreg_*", "NVREG_*", "address", "device", "domain", "flags", "pid", "severity", "type", "uvm_*")},
};

/// Comments that p2pd writes and reads, as a whole.
constexpr std::string_view kPublicComments[] = {"# BEGIN p2pd", "# END p2pd", "# nvidia",
                                                "# Written by p2pd; undone by `p2pctl revert`."};
constexpr std::string_view kIdentifies[] = {"serial", "uuid", "guid", "pdi", "host id"};
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool same_letters(char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; }

bool contains_word(std::string_view text, std::string_view word) {
  return std::search(text.begin(), text.end(), word.begin(), word.end(), same_letters) != text.end();
}

void zero(std::string& text, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i)
    if (std::isalnum(static_cast<unsigned char>(text[i])) != 0) text[i] = '0';
}

std::string line_without_identity(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return std::string(line);
  const std::string_view key = line.substr(0, colon);
  const bool identifies = std::ranges::any_of(kIdentifies, [&](std::string_view w) { return contains_word(key, w); });
  return identifies ? std::string(line.substr(0, colon + 1)) + zeroed(line.substr(colon + 1))
                    : without_builder(std::string(line));
}

/// An id: groups of hexadecimal digits with a mark between them.
struct IdForm {
  char between;
  std::vector<int> lengths;
};
const IdForm kIds[] = {{'-', {8, 4, 4, 4, 12}},    // UUID
                       {':', {2, 2, 2, 2, 2, 2}},  // MAC address
                       {':', {4, 4, 4, 4}},        // GUID of an InfiniBand port
                       {'-', {32}}};               // machine id

/// End of an id at `at` that is no part of a longer word; `begin` if there is none.
std::size_t end_of_id(std::string_view text, const std::size_t begin, const IdForm& form) {
  std::size_t at = begin;
  if (at > 0 && (is_word(text[at - 1]) || text[at - 1] == form.between)) return begin;
  for (const int length : form.lengths) {
    if (at > begin && (at >= text.size() || text[at++] != form.between)) return begin;
    for (int i = 0; i < length; ++i)
      if (at >= text.size() || !is_hex(text[at++])) return begin;
  }
  return at < text.size() && (is_word(text[at]) || text[at] == form.between) ? begin : at;
}

/// Zeroes "SerialNumber: 12AB", "Serial No. = 12AB", "serial#12AB"; also "SerialNumber=3" of USB, which is no serial
/// number.
void zero_serials(std::string& line) {
  constexpr std::string_view kSerial = "serial";
  for (auto at = line.begin();;) {
    at = std::search(at, line.end(), kSerial.begin(), kSerial.end(), same_letters);
    if (at == line.end()) return;
    at += static_cast<std::ptrdiff_t>(kSerial.size());
    const auto offset = static_cast<std::size_t>(at - line.begin());
    const std::size_t mark = line.find_first_of(":=#", offset);
    if (mark == std::string::npos || mark - offset > 8) continue;  // " number" at most is in between
    const std::size_t value = std::min(line.find_first_not_of(" :=#", mark), line.size());
    zero(line, value, std::min(line.find_first_of(" ,)", value), line.size()));
  }
}

/// Replaces the name of a process, which a user chooses, in messages that a check reads: it may hold any character.
void hide_process(std::string& line) {
  constexpr std::string_view kBeforeName = ", name=", kClient = "the client '", kLockdown = "Lockdown: ";
  constexpr std::string_view kBehindName[] = {", Ch", ", ch", ", GPU", ", Graphics", ", Timeout", ", intr"};
  if (std::size_t at = line.find(kBeforeName); at != std::string::npos && (at += kBeforeName.size()) < line.size()) {
    std::size_t end = line.size();
    for (const std::string_view behind : kBehindName) end = std::min(end, line.find(behind, at));
    if (line.substr(at, end - at) != "<unknown>") line.replace(at, end - at, "process");
  }
  if (std::size_t at = line.find(kClient); at != std::string::npos) {
    at += kClient.size();
    line.replace(at, std::min(line.rfind("' (pid"), line.size()) - at, "process");
  }
  const std::size_t colon = line.find(": unsigned module loading is restricted");
  if (const std::size_t at = line.find(kLockdown); at < colon && colon != std::string::npos)
    line.replace(at + kLockdown.size(), colon - at - kLockdown.size(), "process");
}

/// Checks for a message of the kernel that a check reads.
bool is_read(std::string_view message) {
  static const std::vector<Signature> kTable = signatures().value_or(std::vector<Signature>());
  return message.starts_with(kDriverLoadBegins) || message.starts_with(kDriverLoaded) ||
         std::ranges::any_of(kTable, [&](const Signature& row) {
           return row.log == "kernel" && (row.matches(message) || row.cured_by(message));
         });
}

/// Checks for a variable of a shell, "$X", or a piece of "${X:+$X }": it holds names alone.
bool is_variable(std::string_view word) {
  if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_${}:+") != word.npos)
    return false;
  for (std::size_t i = 0; i < word.size(); ++i)
    if (is_word(word[i]) && (i == 0 || !is_word(word[i - 1])) && !(i > 0 && word[i - 1] == '$') &&
        !(i > 1 && word.substr(i - 2, 2) == "${"))
      return false;
  return word == "}" || word.find('$') != word.npos;
}

std::string public_argument(std::string_view word, bool bare, std::string_view module) {
  if (is_variable(word)) return std::string(word);
  // in a shell's text, quotes of the kernel are escaped; their number stays even, or they would reach further
  const std::string_view opening = word.substr(0, word.starts_with("\\\"") ? 2
                                                  : word.starts_with('"')  ? 1
                                                                           : 0),
                         closing = std::ranges::count(word, '"') % 2 == 0 ? opening : std::string_view();
  std::string_view text = word.substr(opening.size());
  if (!closing.empty() && text.ends_with(closing)) text.remove_suffix(closing.size());
  const std::size_t equals = text.find('=', 1);
  const std::string_view name = text.substr(0, equals);
  if (!is_plain_name(name)) return std::string(kRemoved);
  if (equals == text.npos)
    return bare || is_public(PublicKind::argument, name) ? std::string(word) : std::string(kRemoved);
  const bool option = module.empty() || is_public(PublicKind::module_option, name);
  const std::string full = module.empty() ? std::string(name) : std::string(module) + "." + std::string(name);
  const bool kept = option && is_public(PublicKind::argument, full);
  if (kept && full != "root") return std::string(word);
  const std::size_t value = std::min(text.find_first_not_of("\"\\", equals + 1), text.size());
  return std::string(opening) + std::string(name) + "=" +
         (kept ? public_device(text.substr(value)) : std::string(kRemoved)) + std::string(closing);
}

/// Checks for "sda1", "nvme0n1p2", "md127": a name that the kernel gives.
bool is_disk(std::string_view name) {
  std::string form;  // numbers as 0
  for (const char c : name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit || !form.ends_with('0')) form += digit ? '0' : c;
  }
  return is_public(PublicKind::disk, form);
}

/// End of the value that begins at `at`: of a word, or of a text in quotes.
std::size_t end_of_value(std::string_view text, std::size_t at) {
  if (at < text.size() && (text[at] == '"' || text[at] == '\'')) {
    const std::size_t quote = text.find(text[at], at + 1);
    return quote == text.npos ? text.size() : quote + 1;
  }
  std::size_t end = std::min(text.find_first_of(" \t\r\n\"'", at), text.size());
  while (end > at && std::string_view(".,:;)]").find(text[end - 1]) != text.npos) --end;
  return end;
}

bool is_public_in_prose(std::string_view name) {
  constexpr PublicKind kKinds[] = {PublicKind::argument, PublicKind::log_field, PublicKind::nccl_variable,
                                   PublicKind::unit_directive};
  return is_known_key(name) || std::ranges::any_of(kKinds, [&](PublicKind kind) { return is_public(kind, name); });
}

}  // namespace

std::string by_line(std::string_view text,
                    const std::function<std::optional<std::string>(std::string_view line)>& change) {
  std::string out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const bool ended = line.size() < text.size();
    text.remove_prefix(line.size() + (ended ? 1 : 0));
    if (const std::optional<std::string> kept = change(line)) out += *kept + (ended ? "\n" : "");
  }
  return out;
}

std::string lines_that(std::string_view text, const std::function<bool(std::string_view line)>& wanted) {
  return by_line(text,
                 [&](std::string_view line) { return wanted(line) ? std::optional(std::string(line)) : std::nullopt; });
}

bool is_public(PublicKind kind, std::string_view name) {
  std::string text(name);
  if (kind == PublicKind::argument) std::ranges::replace(text, '-', '_');
  return std::ranges::any_of(kPublic.at(kind),
                             [&](const char* pattern) { return ::fnmatch(pattern, text.c_str(), FNM_NOESCAPE) == 0; });
}

bool is_plain_name(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  return !text.empty() && text.size() <= kLongest && std::ranges::all_of(text, [](char c) {
    return is_word(c) || std::string_view("-.+,:*?").find(c) != std::string_view::npos;
  });
}

std::string public_arguments(std::string_view line, bool bare, std::string_view module) {
  std::string out;
  bool ended = false;  // the rest is for init
  for (std::size_t at = 0; at < line.size();) {
    if (is_blank(line[at])) {
      out += line[at++];
      continue;
    }
    const std::size_t begin = at;
    for (bool quoted = false; at < line.size() && (quoted || !is_blank(line[at])); ++at) quoted ^= line[at] == '"';
    const std::string_view word = line.substr(begin, at - begin);
    out += ended ? std::string(kRemoved) : word == "--" ? "--" : public_argument(word, bare, module);
    ended = ended || word == "--";
  }
  return out;
}

std::string public_device(std::string_view device) {
  constexpr std::string_view kSystems[] = {"none", "overlay", "tmpfs", "rootfs", "host:/", "rpool/ROOT/pve-1"};
  constexpr std::string_view kIdentified[] = {"UUID=", "PARTUUID="}, kDev = "/dev/", kMapper = "/dev/mapper/",
                             kZfs = "ZFS=";
  for (const std::string_view id : kIdentified)
    if (device.starts_with(id)) return std::string(id) + zeroed(device.substr(id.size()));
  if (device.starts_with(kZfs)) return std::string(kZfs) + public_device(device.substr(kZfs.size()));
  const bool disk = device.starts_with(kDev) && is_disk(device.substr(kDev.size()));
  if (disk || std::ranges::find(kSystems, device) != std::end(kSystems)) return std::string(device);
  return std::string(device.starts_with(kMapper) ? kMapper : std::string_view()) + std::string(kRemoved);
}

std::string public_comment(std::string_view line) {
  constexpr std::string_view kArguments = "# arguments:", kKeys = "# registry keys: ";
  if (std::ranges::find(kPublicComments, line) != std::end(kPublicComments)) return std::string(line);
  if (line.starts_with(kArguments)) return std::string(kArguments) + public_arguments(line.substr(kArguments.size()));
  const bool keys = line.starts_with(kKeys) && line.find_first_not_of(
                                                   "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                   "0123456789_=;",
                                                   kKeys.size()) == line.npos;
  return keys ? std::string(line) : "#";
}

std::string public_version(std::string_view text) {
  const std::size_t open = text.find(" ("), close = std::min(text.find(") ("), text.find_last_of(')'));
  if (!text.starts_with("Linux version ") || open == text.npos || close == text.npos || close < open)
    return std::string(kRemoved) + (text.ends_with('\n') ? "\n" : "");
  return std::string(text.substr(0, open)) + " (user@host" + std::string(text.substr(close));
}

std::string public_kernel_message(std::string_view text, std::string_view between) {
  if (text.starts_with("Linux version ")) return public_version(text);
  if (!is_read(text)) return std::string(kRemoved);
  std::string out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(between, at), text.size());
    std::string line(text.substr(at, end - at));
    if (at > 0 && !line.starts_with("NVRM: ")) line = kRemoved;  // of another message, or of a name with a line break
    hide_process(line);
    out += (at == 0 ? std::string() : std::string(between)) + without_builder(without_ids(std::move(line)));
    at = end + between.size();
  }
  return out;
}

std::string public_prose(std::string text) {
  if (is_read(text)) text = public_kernel_message(text, kKernelLogJoint);
  hide_process(text);
  zero_serials(text);
  for (std::size_t at = text.find('='); at != std::string::npos; at = text.find('=', at + 1)) {
    std::size_t name = at;
    while (name > 0 && (is_word(text[name - 1]) || text[name - 1] == '-' || text[name - 1] == '.')) --name;
    const std::size_t value = at + 1, end = end_of_value(text, value);
    if (name == at || end == value) continue;
    const std::string_view word = std::string_view(text).substr(name, at - name);
    if (is_public(PublicKind::grub_variable, word)) continue;  // its value holds arguments
    const bool root = word == "root";
    if (root || !is_public_in_prose(word)) {
      const std::string kept = root ? public_device(text.substr(value, end - value)) : std::string(kRemoved);
      text.replace(value, end - value, kept);
      at = value + kept.size() - 1;
    } else {
      at = end - 1;
    }
  }
  return without_builder(without_ids(std::move(text)));
}

std::string zeroed(std::string_view value) {
  std::string text(value);
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos || text.compare(first, std::string::npos, "N/A") == 0) return text;
  zero(text, text.compare(first, 4, "GPU-") == 0 ? first + 4 : first, text.size());
  return text;
}

std::string without_identity(std::string_view text) { return by_line(text, line_without_identity); }

std::string without_ids(std::string text) {
  constexpr std::string_view kBefore = "UUID=";  // prefix of a FAT id, "2E1F-7C40", and of PARTUUID=
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const IdForm& form : kIds)
      if (is_hex(text[at])) zero(text, at, end_of_id(text, at, form));
    if (text[at] == 'U' && text.compare(at, kBefore.size(), kBefore) == 0)
      zero(text, at + kBefore.size(), std::min(text.find_first_of(" \t\n\"',)", at), text.size()));
  }
  return text;
}

std::string without_builder(std::string text) {
  for (std::size_t at = text.find('@'); at != std::string::npos; at = text.find('@', at + 1)) {
    const std::size_t open = text.find_last_of("( \n", at);
    const std::size_t close = text.find_first_of(") \n", at);
    if (open == std::string::npos || close == std::string::npos || text[open] != '(' || text[close] != ')') continue;
    const bool root = text.compare(open, 6, "(root@") == 0;
    text.replace(open + 1, close - open - 1, root ? "root@host" : "user@host");
    at = open + 5;
  }
  return text;
}

}  // namespace p2pd
