// SPDX-License-Identifier: MIT
#include "record/record.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "base/host.hpp"
#include "base/json.hpp"
#include "base/recorded.hpp"
#include "base/signatures.hpp"
#include "base/utf8.hpp"
#include "machine/boot/efi_variable.hpp"
#include "machine/boot/kernel_log.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/driver/driver_pins.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/modules/default_kernel.hpp"
#include "machine/modules/initramfs.hpp"
#include "machine/modules/module_file.hpp"
#include "machine/modules/own_place.hpp"
#include "machine/modules/toolchain.hpp"
#include "record/private_words.hpp"
#include "record/record_file.hpp"
#include "record/record_files.hpp"
#include "record/redact.hpp"

namespace p2pd {
namespace {

using Kind = RecordFile::Kind;

/// A machine record during its capture. Paths are the host's, "/proc/cmdline".
class RecordTarget {
 public:
  /// `identity`: words that no text of the record may hold.
  explicit RecordTarget(Identity identity) : identity_(std::move(identity)) {}

  /// Adds a file of at most `limit` bytes.
  void file(const std::string& path, std::string_view content, std::size_t limit = std::string::npos) {
    if (content.size() > limit)
      return leave_out(path, Error{ErrorCode::invalid, "larger than the limit of a record", {}});
    const bool text = content.find('\0') == std::string_view::npos;
    put(path, {Kind::file, text ? without_private_words(std::string(content), identity_) : std::string(content)});
  }
  /// Adds an empty file: only its existence and its name matter.
  void stand_in(std::string_view path, bool executable = false) {
    put(path, {executable ? Kind::program : Kind::file, ""});
  }
  /// Adds a directory with an empty file ".keep", since a record holds no empty directory.
  void directory(std::string_view path) { stand_in(std::string(path) + "/.keep"); }
  void link(std::string_view path, const std::string& target) {
    put(path, {Kind::link, without_private_words(target, identity_)});
  }
  void command(RecordedCommand command) {
    std::string name;
    for (const std::string& word : command.argv)
      name += (name.empty() ? "" : "-") + word.substr(std::min(word.find_first_not_of('-'), word.size()));
    std::ranges::replace(name, '/', '_');
    for (std::string* text : {&command.result.output, &command.result.errors})
      *text = without_private_words(std::move(*text), identity_);
    record.commands.insert_or_assign(name, std::move(command));
  }

  /// Text that was added for `path`, or null.
  const std::string* text(std::string_view path) const {
    const auto found = record.files.find(place(path));
    return found == record.files.end() || found->second.kind == Kind::link ? nullptr : &found->second.content;
  }

  /// Skips a file that has vanished or never existed; adds a file with any other Error to `unreadable`.
  void leave_out(const std::string& path, const Error& error) {
    if (error.code != ErrorCode::not_found) unreadable.push_back(without_private_words(path, identity_));
  }

  MachineRecord record;
  std::vector<std::string> unreadable;

 private:
  /// Place of `path` in the record; the names of programs are those that checks ask for.
  std::string place(std::string_view path) const {
    const std::string name = std::filesystem::path(path).lexically_normal().relative_path();
    return name.find("bin/") == std::string::npos ? without_private_words(name, identity_) : name;
  }
  void put(std::string_view path, RecordFile file) {
    if (is_utf8(path) && (file.kind != Kind::link || is_utf8(file.content)))
      record.files.insert_or_assign(place(path), std::move(file));
    else
      unreadable.push_back(without_private_words(std::string(path), identity_));
  }

  Identity identity_;
};

constexpr std::size_t kLogLimit = 16U << 20;  // bytes; a kernel keeps up to 16 MiB
constexpr std::string_view kModuleKeys[] = {"depends", "license", "name", "srcversion", "vermagic", "version"};

template <class T>
std::string bytes_of(const T& object) {
  const char* const at = reinterpret_cast<const char*>(&object);
  return {at, at + sizeof object};
}

/// ELF note of a hexadecimal build id; empty if that is empty.
std::string build_id_note(const std::string& id) {
  if (id.empty()) return "";
  std::string note =
      bytes_of(Elf64_Nhdr{4, static_cast<Elf64_Word>(id.size() / 2), NT_GNU_BUILD_ID}) + std::string("GNU\0", 4);
  for (std::size_t at = 0; at < id.size(); at += 2) note += static_cast<char>(std::stoi(id.substr(at, 2), nullptr, 16));
  return note;
}

/// Makes a 64-bit ELF file with the sections .modinfo, .shstrtab and .note.gnu.build-id.
std::string module_stand_in(const std::map<std::string, std::string>& info, const std::string& note) {
  std::string modinfo;
  for (const std::string_view key : kModuleKeys)
    if (const auto found = info.find(std::string(key)); found != info.end())
      modinfo += fmt::format("{}={}", key, found->second) + '\0';
  constexpr std::string_view kSectionNames{"\0.modinfo\0.shstrtab\0.note.gnu.build-id\0", 39};
  Elf64_Ehdr header{};
  std::copy_n(ELFMAG, SELFMAG, header.e_ident);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 4;
  header.e_shstrndx = 2;
  std::array<Elf64_Shdr, 4> sections{};
  sections[1].sh_name = 1;
  sections[1].sh_type = SHT_PROGBITS;
  sections[1].sh_offset = sizeof header;
  sections[1].sh_size = modinfo.size();
  sections[2].sh_name = 10;
  sections[2].sh_type = SHT_STRTAB;
  sections[2].sh_offset = sizeof header + modinfo.size();
  sections[2].sh_size = kSectionNames.size();
  sections[3].sh_name = 20;
  sections[3].sh_type = SHT_NOTE;
  sections[3].sh_offset = sections[2].sh_offset + kSectionNames.size();
  sections[3].sh_size = note.size();
  header.e_shoff = (sections[3].sh_offset + note.size() + 7) / 8 * 8;
  std::string file = bytes_of(header) + modinfo + std::string(kSectionNames) + note;
  file.resize(header.e_shoff, '\0');
  for (const Elf64_Shdr& section : sections) file += bytes_of(section);
  return file;
}

/// Parses the output of `modinfo`, "version:        570.86.16".
std::map<std::string, std::string> parse_modinfo(const std::string& text) {
  std::map<std::string, std::string> info;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t value = std::min(line.find_first_not_of(' ', colon + 1), line.size());
    info.emplace(line.substr(0, colon), line.substr(value));
  }
  return info;
}

Result<std::map<std::string, std::string>> info_of(const Host& host, const std::string& file) {
  auto info = module_info(host, file);
  if (info || file.ends_with(".ko")) return info;
  return parse_modinfo(TRY(host.output_of({{"modinfo", file}})));
}

/// Keeps lines of a header with the pattern of a compat rule.
std::string header_excerpt(const std::string& text, const std::string& header, const Catalogue& all) {
  return lines_that(text, [&](std::string_view line) {
    return std::ranges::any_of(all.compat_rules, [&](const auto& rule) {
      return rule.second.header == header && line.find(rule.second.pattern) != std::string::npos;
    });
  });
}

void record_headers_of(const Host& host, RecordTarget& target, const BuildTarget& kernel, const Catalogue& all) {
  // headers built by hand may be in a home directory: the record has them where distributions put them
  const std::string place = "/usr/src/linux-headers-" + kernel.release;
  if (host.files().exists(kernel.build())) {
    target.directory(place);
    target.link(kernel.build(), place);
  }
  if (host.files().exists(kernel.build() + "/Makefile")) target.stand_in(place + "/Makefile");
  const auto config = host.files().read(kernel.build() + "/.config");
  if (config) target.file(place + "/.config", config_excerpt(*config));
  for (const auto& [name, rule] : all.compat_rules) {
    const auto text = kernel_header(host, kernel, rule.header);
    const std::string copy = host.files().exists(kernel.build()) ? place : "/lib/modules/" + kernel.release + "/source";
    if (text)
      target.file(copy + "/" + rule.header, header_excerpt(*text, rule.header, all));
    else if (!rule.replaces() || text.error().code != ErrorCode::not_found)
      target.leave_out(kernel.build() + "/" + rule.header, text.error());
  }
}

/// Header of a record, without the host's name in a text log: "Nov 21 19:58:21 box kernel: [    0.1] ".
std::string public_head(std::string head) {
  const std::size_t kernel = head.find(" kernel: ");
  if (kernel == std::string::npos) return head;
  const std::size_t host = head.rfind(' ', kernel - 1) + 1;  // npos + 1 is 0
  return head.replace(host, kernel - host, "host");
}

/// Adds stand-ins of the NVIDIA modules: ELF files with only the build id, and the version, licence and kernel of
/// .modinfo, whether the module is compressed or not.
void record_module_files(const Host& host, RecordTarget& target) {
  for (const std::string& file : record_paths(host.files(), RecordPart::modules)) {
    const auto info = info_of(host, file);
    if (!info) target.leave_out(file, info.error());
    target.file(file, info ? module_stand_in(*info, build_id_note(module_build_id(host, file))) : "");
  }
}

/// Adds stand-ins of the headers of every kernel that modules would be built for, with the lines that compat rules look
/// for.
void record_headers(const Host& host, RecordTarget& target) {
  const auto kernels = build_targets(host);
  const auto all = catalogue(host);
  if (!kernels || !all) return;  // no kernel is known, or a drop-in is broken: the record shows it as the host does
  for (const BuildTarget& kernel : *kernels) record_headers_of(host, target, kernel, *all);
}

/// Adds the kernel's log of this boot, at the path it was read from: every record, with the text of those that checks
/// read.
void record_kernel_log(const Host& host, RecordTarget& target) {
  const auto log = kernel_log(host);
  if (!log) {
    target.leave_out("/dev/kmsg", log.error());
    return;
  }
  std::string text;
  for (const KernelRecord& record : log->records)
    text += public_head(record.head) + public_kernel_message(record.text) + "\n";
  target.file(log->source, text, kLogLimit);
}

namespace fs = std::filesystem;

/// A read-only command, run if the program exists.
struct RecordCommand {
  std::vector<std::string> argv;
  std::string (*excerpt)(const std::string& output) = nullptr;  ///< part of the output that is kept; null: all
};

/// Keeps the matrix of a topology, without the legend, which names network cards.
std::string matrix(const std::string& output) { return output.substr(0, output.find("NIC Legend")); }

/// Keeps the lines that signatures.yaml knows.
std::string known_errors(const std::string& errors) {
  std::string kept;
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);)
    kept += (program_failure(line) ? line : std::string(kRemoved)) + "\n";
  return kept;
}

std::vector<RecordCommand> commands(const Host& host) {
  std::vector<RecordCommand> out = {{{"nvidia-smi", "-q"}, nvidia_smi_excerpt},
                                    {{"nvidia-smi", "topo", "-m"}, matrix},
                                    {{"nvidia-smi", "topo", "-p2p", "r"}},
                                    {{"p2p-bench", "--driver-peers"}}};
  for (const Initramfs& one : initramfs_images(host).value_or(std::vector<Initramfs>())) {
    out.push_back({{"lsinitramfs", "-l", one.image}});
    out.push_back({{"lsinitrd", one.image}});
  }
  return out;
}

constexpr std::chrono::seconds kCommandDeadline{30};
constexpr std::size_t kFileLimit = 32U << 20;  // bytes, of a file that is read
constexpr std::size_t kKeptLimit = 4U << 20;   // bytes, of its part that is kept
constexpr std::uint16_t kSerialNumberId = 0x0003;
constexpr std::string_view kRoomOf[] = {"/usr", "/var", "/boot"};
/// Certificates that DKMS signs with: on Ubuntu, on Debian.
constexpr std::string_view kLocalKeys[] = {"/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub"};

/// Makes a sysfs link relative to the bus: in a record, devices are directories of the bus, not of the device tree.
std::string link_from_bus(std::string target) {
  while (target.starts_with("../")) target.erase(0, 3);
  return "../../../../" + target;
}

using Excerpt = decltype(RecordText::excerpt);

void copy_text(const Host& host, RecordTarget& target, const std::string& path, Excerpt excerpt,
               const std::set<std::string>& own) {
  auto content = host.files().read(path, kFileLimit);
  if (!content) {
    // a link to /dev/null, or a dangling one: a file of modprobe.d that masks another one
    const auto link = host.files().read_link(path);
    if (link && path.find("/modprobe.d/") != std::string::npos)
      target.link(path, *link);
    else
      target.leave_out(path, content.error());
    return;
  }
  if (excerpt != nullptr && !own.contains(*content)) *content = excerpt(*content);
  target.file(path, *content, kKeptLimit);
}

/// Texts of files that p2pd writes as they are, and checks compare as a whole.
std::set<std::string> own_texts(const Host& host) {
  std::set<std::string> texts = {driver_preferences()};
  for (const bool systemd_boot : {false, true})
    for (DefaultKernelFile& file : default_kernel_files(systemd_boot)) texts.insert(std::move(file.content));
  if (const auto pins = driver_preferences(host, true)) texts.insert(*pins);
  for (const PlaceFile& file : own_place_files(host).value_or(std::vector<PlaceFile>())) texts.insert(file.content);
  return texts;
}

void copy_texts(const Host& host, RecordTarget& target) {
  const std::set<std::string> own = own_texts(host);
  std::map<std::string, Excerpt> excerpts;  // by path
  for (const RecordText& row : record_texts())
    for (const char* pattern : row.patterns)
      for (const std::string& path : record_paths(host.files(), pattern)) excerpts[path] = row.excerpt;
  for (const auto& [path, excerpt] : excerpts) copy_text(host, target, path, excerpt, own);
}

void copy_links(const Host& host, RecordTarget& target) {
  for (const std::string& path : record_paths(host.files(), RecordPart::links)) {
    const auto link = host.files().read_link(path);
    if (link)
      target.link(path, path.starts_with("/sys/bus/") ? link_from_bus(*link) : *link);
    else
      target.leave_out(path, link.error());
  }
}

/// Copies paths whose name alone matters.
void copy_names(const Host& host, RecordTarget& target) {
  std::vector<std::string> names = record_programs(host.files());
  const std::vector<std::string> others = record_paths(host.files(), RecordPart::names);
  names.insert(names.end(), others.begin(), others.end());
  for (std::string name : names) {
    const auto info = host.files().stat(name);
    if (!info || (S_ISDIR(info->st_mode) && name.find("/slaves/") == std::string::npos)) continue;
    if (const std::size_t up = name.find("/.."); up != std::string::npos) name.erase(up, 3);
    target.stand_in(name, S_ISREG(info->st_mode) && (info->st_mode & 0111U) != 0);
  }
  for (const std::string& path : record_paths(host.files(), RecordPart::directories)) {
    const auto info = host.files().stat(path);
    if (info && S_ISDIR(info->st_mode)) target.directory(path);
  }
}

/// Copies the link from the name that programs load to the file with the version.
void copy_libraries(const Host& host, RecordTarget& target) {
  std::error_code error;
  const std::string root = host.live() ? "" : fs::canonical(host.files().directory(), error).string();
  for (const std::string& path : record_paths(host.files(), RecordPart::libraries)) {
    const auto real = host.files().real_path(path);
    if (!real || !real->string().starts_with(root)) continue;
    const std::string file = real->string().substr(root.size());
    target.stand_in(file);
    if (file != path) target.link(path, file);
  }
}

/// Copies the package id of the first CPU of every NUMA node: its socket.
void copy_sockets(const Host& host, RecordTarget& target) {
  for (const std::string& node : record_paths(host.files(), "/sys/devices/system/node/node*/cpulist")) {
    const std::string list = host.line(node).value_or("");
    const std::string first = list.substr(0, list.find_first_not_of("0123456789"));
    if (first.empty()) continue;
    const std::string path = "/sys/devices/system/cpu/cpu" + first + "/topology/physical_package_id";
    const auto package = host.files().read(path);
    if (package) target.file(path, *package);
  }
}

/// Replaces certificates, which contain the host's name, with texts, in the list of enrolled ones too.
void copy_keys(const Host& host, RecordTarget& target) {
  const std::string path = efi_variable_path("MokListRT", kEfiShim);
  const auto list = host.files().read(path, kFileLimit);
  std::string enrolled = list ? list->substr(0, 4) : "";  // attributes of the variable
  for (const std::string_view key : kLocalKeys) {
    const auto certificate = host.files().read(key, kFileLimit);
    if (!certificate) {
      target.leave_out(std::string(key), certificate.error());
      continue;
    }
    const std::string text = certificate->empty() ? "" : fmt::format("stand-in of {}\n", key);
    target.file(std::string(key), text);
    if (list && list->find(*certificate) != std::string::npos) enrolled += text;
  }
  if (list)
    target.file(path, enrolled);
  else
    target.leave_out(path, list.error());
}

/// Prints like `lspci -D -xxxx`, with the Device Serial Number capability zeroed.
std::string lspci_text(const std::vector<PciDevice>& devices) {
  std::string text;
  for (PciDevice device : devices) {
    if (const auto serial = device.extended_capability(kSerialNumberId)) {
      const std::size_t end = std::min<std::size_t>(*serial + 12U, device.config.size());
      for (std::size_t i = *serial + 4U; i < end; ++i) device.config[i] = 0;
    }
    if (device.name.empty()) {
      device.name =
          fmt::format("Class {:04x}: Device {:04x}:{:04x}", device.class_code >> 8, device.vendor_id, device.device_id);
    }
    text += fmt::format("{} {}", device.address, device.name);
    for (std::size_t i = 0; i < device.config.size(); ++i) {
      if (i % 16 == 0) text += fmt::format("\n{:02x}:", i);
      text += fmt::format(" {:02x}", device.config[i]);
    }
    text += "\n\n";
  }
  return text;
}

/// Lists the files of an initramfs that concern a driver. A file of modprobe.d has the size of its part in the record
/// if it has the host's: a check compares them.
std::string initramfs_excerpt(const std::string& output, const Host& host, const RecordTarget& target) {
  std::string kept;
  for (const auto& [path, bytes] : parse_initramfs_list(output)) {
    const bool configuration = path.find("modprobe.d/") != std::string::npos;
    if (!configuration && path.find("nvidia") == std::string::npos) continue;
    std::uint64_t size = bytes.value_or(0);
    const auto now = host.files().stat("/" + path);
    if (const std::string* const text = target.text("/" + path); configuration && text != nullptr && now)
      size = text->size() + (static_cast<std::uint64_t>(now->st_size) == size ? 0 : 1);
    kept += fmt::format("{} 1 root root {} Jan 1 00:00 {}\n", bytes ? "-rw-r--r--" : "lrwxrwxrwx", size, path);
  }
  return kept;
}

void copy_commands(const Host& host, RecordTarget& target) {
  for (const auto& [argv, excerpt] : commands(host)) {
    if (!host.has_program(argv.front()) && !RecordedRunner::is_record(host.files())) continue;
    Command command;
    command.argv = argv;
    command.deadline = kCommandDeadline;
    const auto result = host.run_readonly(command);
    if (!result) {
      target.leave_out(command.text(), result.error());
      continue;
    }
    const std::string output = argv.front().starts_with("lsinit") ? initramfs_excerpt(result->output, host, target)
                               : excerpt == nullptr               ? result->output
                                                                  : excerpt(result->output);
    target.command({argv,
                    {result->status, without_ids(without_identity(output)),
                     without_ids(without_identity(known_errors(result->errors)))}});
  }
}

nlohmann::ordered_json description(const Host& host, const RecordTarget& target, const std::string& name) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm date{};
  ::gmtime_r(&now, &date);
  nlohmann::ordered_json machine = {
      {"schema", "p2pd.machine/1"},
      {"name", name},
      {"title", "captured machine"},
      {"source", "captured by p2pd " P2PD_VERSION},
      {"captured", fmt::format("{:04}-{:02}-{:02}", date.tm_year + 1900, date.tm_mon + 1, date.tm_mday)},
      {"notes", nlohmann::ordered_json::array()},
      {"free_bytes", nlohmann::ordered_json::object()},
      {"unreadable", target.unreadable}};
  for (const std::string_view path : kRoomOf)
    if (const auto bytes = free_bytes(host, path)) machine["free_bytes"][std::string(path)] = *bytes;
  return machine;
}

}  // namespace

Result<MachineRecord> record_machine(const Host& host, const std::string& name) {
  RecordTarget target(identity_of(host));
  target.file("/lspci-xxxx.txt", lspci_text(TRY(pci_devices(host, PciDepth::everything))));
  copy_texts(host, target);
  copy_names(host, target);
  copy_links(host, target);
  copy_libraries(host, target);
  copy_sockets(host, target);
  copy_keys(host, target);
  record_module_files(host, target);
  record_headers(host, target);
  record_kernel_log(host, target);
  copy_commands(host, target);
  target.record.machine = description(host, target, name);
  return std::move(target.record);
}

}  // namespace p2pd
