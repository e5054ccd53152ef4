// SPDX-License-Identifier: MIT
#include "record/record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <set>
#include <sstream>

#include "base/json.hpp"
#include "base/recorded.hpp"
#include "base/signatures.hpp"
#include "machine/boot/efi_variable.hpp"
#include "machine/driver/driver_pins.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/modules/default_kernel.hpp"
#include "machine/modules/initramfs.hpp"
#include "machine/modules/own_place.hpp"
#include "record/record_excerpt.hpp"
#include "record/record_files.hpp"
#include "record/record_kernels.hpp"
#include "record/record_target.hpp"
#include "record/redact.hpp"

namespace p2pd {
namespace {

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

void copy_text(const Host& host, RecordTarget& target, const std::string& path, const RecordText& row,
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
  if (row.excerpt != nullptr && !own.contains(*content)) *content = row.excerpt(*content);
  if (content->size() <= kKeptLimit)
    target.file(path, *content);
  else
    target.leave_out(path, Error{ErrorCode::invalid, "larger than the limit of a record", {}});
}

/// Texts of files that p2pd writes as they are, and checks compare as a whole.
std::set<std::string> own_texts(const Host& host) {
  std::set<std::string> texts = {default_kernel_drop_in(), header_hook(), driver_preferences()};
  if (const auto pins = driver_preferences(host, true)) texts.insert(*pins);
  for (const PlaceFile& file : own_place_files(host).value_or(std::vector<PlaceFile>())) texts.insert(file.content);
  return texts;
}

void copy_texts(const Host& host, RecordTarget& target) {
  const std::set<std::string> own = own_texts(host);
  for (const RecordText& row : record_texts())
    for (const std::string& path : record_paths(host.files(), row.pattern)) copy_text(host, target, path, row, own);
}

void copy_links(const Host& host, RecordTarget& target) {
  for (const std::string_view pattern : record_links()) {
    for (const std::string& path : record_paths(host.files(), pattern)) {
      const auto link = host.files().read_link(path);
      if (link)
        target.link(path, path.starts_with("/sys/bus/") ? link_from_bus(*link) : *link);
      else
        target.leave_out(path, link.error());
    }
  }
}

/// Copies paths whose name alone matters.
void copy_names(const Host& host, RecordTarget& target) {
  std::vector<std::string> names = record_programs(host.files());
  for (const std::string_view pattern : record_names()) {
    const auto paths = record_paths(host.files(), pattern);
    names.insert(names.end(), paths.begin(), paths.end());
  }
  for (std::string name : names) {
    const auto info = host.files().stat(name);
    if (!info || (S_ISDIR(info->st_mode) && name.find("/slaves/") == std::string::npos)) continue;
    if (const std::size_t up = name.find("/.."); up != std::string::npos) name.erase(up, 3);
    target.stand_in(name, S_ISREG(info->st_mode) && (info->st_mode & 0111U) != 0);
  }
  for (const std::string_view pattern : record_directories()) {
    for (const std::string& path : record_paths(host.files(), pattern)) {
      const auto info = host.files().stat(path);
      if (info && S_ISDIR(info->st_mode)) target.directory(path);
    }
  }
}

/// Copies the link from the name that programs load to the file with the version.
void copy_libraries(const Host& host, RecordTarget& target) {
  std::error_code error;
  const std::string root = host.live() ? "" : fs::canonical(host.files().directory(), error).string();
  for (const std::string_view path : record_libraries()) {
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
    target.file(key, text);
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
      {"unreadable", target.unreadable()}};
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
  nlohmann::ordered_json about = description(host, target, name);
  return std::move(target).record(std::move(about));
}

}  // namespace p2pd
