// SPDX-License-Identifier: MIT
#include "base/record.hpp"

#include <fmt/format.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "base/pci.hpp"
#include "base/redact.hpp"

namespace p2pd {
namespace {

namespace fs = std::filesystem;

/// The files that are captured; `*` stands for any name in one directory.
constexpr std::string_view kFiles[] = {
    "/boot/config-*",
    "/etc/debian_version",
    "/etc/default/grub",
    "/etc/default/grub.d/*.cfg",
    "/etc/modprobe.d/*.conf",
    "/etc/modules-load.d/*.conf",
    "/etc/os-release",
    "/proc/cmdline",
    "/proc/driver/nvidia/gpus/*/information",
    "/proc/driver/nvidia/params",
    "/proc/driver/nvidia/version",
    "/proc/modules",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/random/boot_id",
    "/sys/bus/pci/devices/*/boot_vga",
    "/sys/bus/pci/devices/*/class",
    "/sys/bus/pci/devices/*/current_link_speed",
    "/sys/bus/pci/devices/*/current_link_width",
    "/sys/bus/pci/devices/*/device",
    "/sys/bus/pci/devices/*/max_link_speed",
    "/sys/bus/pci/devices/*/max_link_width",
    "/sys/bus/pci/devices/*/numa_node",
    "/sys/bus/pci/devices/*/resource",
    "/sys/bus/pci/devices/*/vendor",
    "/sys/class/dmi/id/bios_date",
    "/sys/class/dmi/id/bios_vendor",
    "/sys/class/dmi/id/bios_version",
    "/sys/class/dmi/id/board_name",
    "/sys/class/dmi/id/board_vendor",
    "/sys/class/dmi/id/product_name",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/class/drm/card*-*/enabled",
    "/sys/class/drm/card*-*/status",
    "/sys/class/graphics/fb*/name",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/node/node*/cpulist",
    "/sys/firmware/efi/fw_platform_size",
    "/sys/kernel/iommu_groups/*/type",
    "/sys/kernel/security/lockdown",
    "/sys/module/gdrdrv/version",
    "/sys/module/nouveau/srcversion",
    "/sys/module/nvidia/srcversion",
    "/sys/module/nvidia/version",
    "/sys/module/nvidia_peermem/srcversion",
};

/// Links that are captured as links: where they point is the fact.
constexpr std::string_view kLinks[] = {
    "/sys/bus/pci/devices/*/driver",
    "/sys/bus/pci/devices/*/iommu_group",
    "/sys/class/drm/card*/device",
    "/sys/class/graphics/fb*/device",
    "/sys/class/infiniband/*/device",
    "/sys/class/iommu/*",
};

/// Commands that only read, run where the program exists.
const std::vector<std::vector<std::string>>& commands() {
  static const std::vector<std::vector<std::string>> kCommands = {
      {"nvidia-smi", "-q"},
      {"nvidia-smi", "topo", "-m"},
      {"nvidia-smi", "topo", "-p2p", "r"},
      {"p2p-bench", "--driver-peers"},
  };
  return kCommands;
}

constexpr std::chrono::seconds kDeadline{30};
constexpr std::size_t kFileLimit = 1U << 20;  // bytes
constexpr std::uint16_t kSerialNumberId = 0x0003;

void expand(const Root& root, const std::string& above, std::string_view rest, std::vector<std::string>& found) {
  const std::size_t slash = rest.find('/', 1);
  const std::string name(rest.substr(1, slash == std::string_view::npos ? slash : slash - 1));
  const std::string_view below = slash == std::string_view::npos ? std::string_view() : rest.substr(slash);
  std::vector<std::string> names = {name};
  if (name.find('*') != std::string::npos) {
    names = root.list(above.empty() ? "/" : above).value_or(std::vector<std::string>());
    std::erase_if(names, [&](const std::string& entry) { return ::fnmatch(name.c_str(), entry.c_str(), 0) != 0; });
  }
  for (const std::string& entry : names) {
    if (below.empty()) {
      found.push_back(above + "/" + entry);
    } else {
      expand(root, above + "/" + entry, below, found);
    }
  }
}

/// The record being written: plain files of this process, not of the host.
class Target {
 public:
  explicit Target(fs::path directory) : directory_(std::move(directory)) {}

  Result<void> prepare() const {
    std::error_code error;
    fs::create_directories(directory_, error);
    const bool empty = !error && fs::is_empty(directory_, error);
    if (error) return fail_errno(directory_.string(), error.value());
    if (!empty) return fail(ErrorCode::state, directory_.string() + " is not empty", "Name a new directory for the record.");
    return {};
  }

  Result<void> file(std::string_view path, std::string_view content) const {
    const fs::path name = TRY(place(path));
    std::ofstream out(name, std::ios::binary | std::ios::trunc);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    out.close();
    if (!out) return fail_errno(name.string(), errno != 0 ? errno : EIO);
    return {};
  }

  Result<void> link(std::string_view path, const std::string& target) const {
    const fs::path name = TRY(place(path));
    std::error_code error;
    fs::create_symlink(target, name, error);
    if (error) return fail_errno(name.string(), error.value());
    return {};
  }

 private:
  Result<fs::path> place(std::string_view path) const {
    fs::path name = directory_ / fs::path(path).relative_path();
    std::error_code error;
    fs::create_directories(name.parent_path(), error);
    if (error) return fail_errno(name.parent_path().string(), error.value());
    errno = 0;
    return name;
  }

  fs::path directory_;
};

/// Links in sysfs start from a device's place in the tree; in a record, devices are directories of the bus.
std::string link_from_bus(std::string target) {
  while (target.starts_with("../")) target.erase(0, 3);
  return "../../../../" + target;
}

std::string redacted(std::string_view path, std::string content) {
  if (path.starts_with("/proc/driver/nvidia/")) return without_identity(content);
  if (path == "/proc/cmdline" || path.starts_with("/etc/default/")) return without_private_arguments(std::move(content));
  return content;
}

/// What vanished since it was listed, or never was there, is no part of the record; the rest is told.
void leave_out(const std::string& path, const Error& error, Capture& capture) {
  if (error.code != ErrorCode::not_found) capture.unreadable.push_back(path);
}

Result<void> copy_file(const Host& host, const Target& target, const std::string& path, Capture& capture) {
  const auto content = host.files().read(path, kFileLimit);
  if (!content) {
    leave_out(path, content.error(), capture);
    return {};
  }
  ++capture.files;
  return target.file(path, redacted(path, *content));
}

Result<void> copy_link(const Host& host, const Target& target, const std::string& path, Capture& capture) {
  const auto link = host.files().read_link(path);
  if (!link) {
    leave_out(path, link.error(), capture);
    return {};
  }
  ++capture.files;
  return target.link(path, path.starts_with("/sys/bus/") ? link_from_bus(*link) : *link);
}

/// Every path of `root` that one of `patterns` may mean.
std::vector<std::string> expanded(const Root& root, std::span<const std::string_view> patterns) {
  std::vector<std::string> paths;
  for (const std::string_view pattern : patterns) expand(root, "", pattern, paths);
  return paths;
}

/// As `lspci -D -xxxx` prints it, the Device Serial Number capability zeroed.
std::string lspci_text(const std::vector<PciDevice>& devices) {
  std::string text;
  for (PciDevice device : devices) {
    if (const auto serial = device.extended_capability(kSerialNumberId)) {
      const std::size_t end = std::min<std::size_t>(*serial + 12U, device.config.size());
      for (std::size_t i = *serial + 4U; i < end; ++i) device.config[i] = 0;
    }
    if (device.name.empty()) {
      device.name = fmt::format("Class {:04x}: Device {:04x}:{:04x}", device.class_code >> 8, device.vendor_id, device.device_id);
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

Result<void> copy_commands(const Host& host, const Target& target, Capture& capture) {
  for (const std::vector<std::string>& argv : commands()) {
    if (!host.has_program(argv.front())) continue;
    Command command;
    command.argv = argv;
    command.deadline = kDeadline;
    const auto output = host.query(command);
    if (!output) {
      capture.unreadable.push_back(command.text());
      continue;
    }
    const nlohmann::json recorded = {{"argv", argv}, {"status", 0}, {"output", without_identity(*output)}, {"errors", ""}};
    std::string name;
    for (const std::string& word : argv) name += (name.empty() ? "" : "-") + word.substr(word.find_first_not_of('-'));
    TRY(target.file("/commands/" + name + ".json",
                    recorded.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
    ++capture.commands;
  }
  return {};
}

Result<void> write_description(const Target& target, const std::string& name, const Capture& capture) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm date{};
  ::gmtime_r(&now, &date);
  const nlohmann::ordered_json machine = {
      {"schema", "p2pd.machine/1"},
      {"name", name},
      {"title", "captured machine"},
      {"source", "captured by p2pd " P2PD_VERSION},
      {"captured", fmt::format("{:04}-{:02}-{:02}", date.tm_year + 1900, date.tm_mon + 1, date.tm_mday)},
      {"notes", nlohmann::ordered_json::array()},
      {"unreadable", capture.unreadable}};
  return target.file("/machine.json", machine.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace

Result<Capture> record_machine(const Host& host, const std::filesystem::path& directory) {
  const Target target(directory);
  TRY(target.prepare());
  const std::vector<PciDevice> devices = TRY(pci_devices(host, PciDepth::everything));
  TRY(target.file("/lspci-xxxx.txt", lspci_text(devices)));
  Capture capture;
  capture.files = 1;
  for (const std::string& path : expanded(host.files(), kFiles)) TRY(copy_file(host, target, path, capture));
  for (const std::string& path : expanded(host.files(), kLinks)) TRY(copy_link(host, target, path, capture));
  TRY(copy_commands(host, target, capture));
  const fs::path absolute = fs::absolute(directory).lexically_normal();
  TRY(write_description(target, (absolute.has_filename() ? absolute : absolute.parent_path()).filename().string(), capture));
  return capture;
}

}  // namespace p2pd
