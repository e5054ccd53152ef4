// SPDX-License-Identifier: MIT
#include "machine/hardware/pci.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <tuple>
#include <utility>

#include "base/recorded.hpp"
#include "machine/hardware/peer_groups.hpp"

extern "C" {
#include <pci/pci.h>
}
#ifndef P2PD_PORTABLE  // which links libpci.a, without versions
// Symbol version for libpci 3.7 of Ubuntu 22.04. The parts that are used here are the same since 3.5.
__asm__(".symver pci_fill_info, pci_fill_info@LIBPCI_3.5");
#endif

namespace p2pd {
namespace {

constexpr char kDump[] = "/lspci-xxxx.txt";
constexpr char kPciBus[] = "/sys/bus/pci";
constexpr off_t kDumpLimit = off_t{32} << 20;  // bytes; 300 functions take 4 MiB
constexpr std::size_t kRow = 16;

/// An extended capability that p2pd uses, and how much of it: error reporting, ACS, resizable BARs.
struct LookedAt {
  std::uint32_t id;
  std::size_t bytes;
};
constexpr LookedAt kLookedAt[] = {{0x01, 0x48}, {0x0d, 8}, {0x15, 52}};

/// Exception of libpci's error hook: the hook must not return, and nothing else carries the text out.
struct LibpciError {
  std::string message;
};

__attribute__((noreturn)) void raise(char* format, ...) {  // clang requires the attribute that libpci's type has
  std::array<char, 512> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  throw LibpciError{text.data()};
}

// Ignores a warning: the missing bytes show its subject.
void ignore(char*, ...) {}

/// One libpci session, with hooks that replace libpci's own.
class Session {
 public:
  Session(pci_access_type method, std::string parameter, std::string path) : access_(pci_alloc()) {
    access_->method = method;
    access_->error = raise;
    access_->warning = ignore;
    access_->debug = ignore;
    pci_set_param(access_, parameter.data(), path.data());  // copies the value
  }
  ~Session() { pci_cleanup(access_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  pci_access* operator->() const { return access_; }
  pci_access* get() const { return access_; }

 private:
  pci_access* access_;
};

std::string address_of(const pci_dev& device) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:d}", device.domain, device.bus, device.dev, device.func);
}

/// Function at "0000:01:00.0", to be freed; null if that is no address.
pci_dev* at_address(pci_access* access, const std::string& address) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  if (std::sscanf(address.c_str(), "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) return nullptr;
  return pci_get_dev(access, static_cast<int>(domain), static_cast<int>(bus), static_cast<int>(device),
                     static_cast<int>(function));
}

/// Reads the first 4096, 256 or 64 bytes, whichever is readable; of a dump that stops in between, up to its last whole
/// row.
std::vector<std::uint8_t> read_config(pci_dev* device, std::size_t wanted) {
  std::vector<std::uint8_t> bytes;
  for (const std::size_t size : {kExtended, kConventional, kConfigHeaderBytes}) {
    if (size > wanted) continue;
    bytes.resize(size);
    if (pci_read_block(device, 0, bytes.data(), static_cast<int>(size)) != 0) break;
    bytes.clear();
  }
  for (std::array<std::uint8_t, kRow> row{}; bytes.size() < wanted; bytes.insert(bytes.end(), row.begin(), row.end())) {
    if (pci_read_block(device, static_cast<int>(bytes.size()), row.data(), static_cast<int>(kRow)) == 0) break;
  }
  return bytes;
}

/// Reads all 256 bytes of the conventional space, and of the extended one the header of each capability and the start
/// of kLookedAt; all ones in between. In a virtual machine each four bytes are a trap: all of a GPU took 20 to 35 ms.
void read_capabilities(pci_dev* from, PciDevice& device) {
  constexpr std::size_t kMost = (kExtended - kConventional) / 8;  // a header and a register each
  std::vector<std::uint8_t>& bytes = device.config = read_config(from, kConventional);
  if (bytes.size() < kConventional) return;
  bytes.resize(kExtended, 0xff);
  std::size_t at = kConventional;
  for (std::size_t step = 0; step < kMost && at >= kConventional; ++step) {
    if (pci_read_block(from, static_cast<int>(at), &bytes[at], 4) == 0) {
      if (at == kConventional) bytes.resize(kConventional);
      break;
    }
    const std::uint32_t header = device.dword(at);
    if (header == 0 || header == 0xffffffffU) break;
    const auto* looked_at = std::ranges::find(kLookedAt, header & 0xffffU, &LookedAt::id);
    if (looked_at != std::end(kLookedAt)) {
      const std::size_t length = std::min(looked_at->bytes, kExtended - at);
      if (pci_read_block(from, static_cast<int>(at), &bytes[at], static_cast<int>(length)) == 0) bytes.resize(at);
      if (bytes.size() == at) break;
    }
    at = (header >> 20) & ~std::size_t{3};
  }
}

std::string name_of(pci_access* access, const pci_dev& device) {
  constexpr int kLocal = PCI_LOOKUP_NO_NUMBERS | PCI_LOOKUP_NO_HWDB;  // pci.ids only, never the network
  const auto lookup = [&](int flags, int first, int second) {
    std::array<char, 128> text{};  // libpci refuses dump lines of 255 characters and more
    const char* name = pci_lookup_name(access, text.data(), text.size(), flags | kLocal, first, second);
    return std::string(name == nullptr ? "" : name);
  };
  const std::string kind = lookup(PCI_LOOKUP_CLASS, device.device_class, 0);
  const std::string model = lookup(PCI_LOOKUP_VENDOR | PCI_LOOKUP_DEVICE, device.vendor_id, device.device_id);
  return kind.empty() || model.empty() ? kind + model : kind + ": " + model;
}

/// Identifies a device that fell off the bus from the kernel's record: its registers are lost.
void identify_lost(const Host& host, PciDevice& device) {
  const auto number = [&](const char* name, std::uint32_t otherwise) {
    const auto line = host.line(sysfs_path(device.address, name));
    return line ? static_cast<std::uint32_t>(std::strtoul(line->c_str(), nullptr, 16)) : otherwise;
  };
  device.vendor_id = static_cast<std::uint16_t>(number("vendor", device.vendor_id));
  device.device_id = static_cast<std::uint16_t>(number("device", device.device_id));
  device.class_code = number("class", device.class_code) & 0xffffffU;
}

PciDevice read_device(const Host& host, pci_access* access, pci_dev* from, PciDepth depth) {
  pci_fill_info(from, PCI_FILL_IDENT | PCI_FILL_CLASS);
  PciDevice device;
  device.address = address_of(*from);
  device.vendor_id = from->vendor_id;
  device.device_id = from->device_id;
  device.class_code = static_cast<std::uint32_t>(from->device_class) << 8;
  const bool whole = depth == PciDepth::everything || device.is_display() || device.is_bridge();
  const bool sparse = depth == PciDepth::paths && access->method == PCI_ACCESS_SYS_BUS_PCI;
  if (whole && sparse)
    read_capabilities(from, device);
  else
    device.config = read_config(from, whole ? kExtended : kConfigHeaderBytes);
  device.extended_readable = device.config.size() > kConventional;
  if (device.is_lost()) {
    identify_lost(host, device);
  } else if (device.config.size() >= kConfigHeaderBytes) {
    device.class_code |= device.config[PCI_CLASS_PROG];
  }
  if (depth == PciDepth::everything) device.name = name_of(access, *from);
  return device;
}

Result<std::vector<PciDevice>> scan(const Host& host, pci_access_type method, std::string parameter, std::string path,
                                    PciDepth depth) {
  std::vector<PciDevice> devices;
  try {
    const Session session(method, std::move(parameter), std::move(path));
    pci_init(session.get());
    pci_scan_bus(session.get());
    for (pci_dev* device = session->devices; device != nullptr; device = device->next) {
      try {
        devices.push_back(read_device(host, session.get(), device, depth));
      } catch (const LibpciError&) {
        // Unplugged between the scan and now: not a device of this machine any more.
        if (host.files().exists(sysfs_path(address_of(*device)))) throw;
      }
    }
  } catch (LibpciError& error) {
    const std::string root = host.files().directory();  // a path that may be temporary: messages show paths below it
    if (const std::size_t at = error.message.find(root); !host.live() && at != std::string::npos)
      error.message.erase(at, root.size());
    return fail(ErrorCode::invalid, error.message);
  }
  const auto position = [](const PciDevice& device) { return std::make_tuple(device.address.size(), device.address); };
  std::ranges::stable_sort(devices, {}, position);
  const auto same = [](const PciDevice& one, const PciDevice& other) { return one.address == other.address; };
  devices.erase(std::unique(devices.begin(), devices.end(), same), devices.end());
  return devices;
}

/// Checks that no symbolic link leads out of the root: libpci follows links as the process sees them.
Result<void> stays_inside(const RootReader& root, const std::filesystem::path& bus) {
  for (const std::string& name : TRY(root.list(kPciDevices))) {
    for (const std::string& entry : {name, name + "/config", name + "/vendor", name + "/device", name + "/class",
                                     name + "/irq", name + "/resource"}) {
      std::error_code error;
      const auto seen = std::filesystem::canonical(bus / "devices" / entry, error);
      if (error) continue;  // libpci cannot open it either
      const auto inside = root.real_path(sysfs_path(entry));
      if (!inside || *inside != seen) {
        return fail(ErrorCode::invalid, fmt::format("{}/{} leads out of the root", kPciDevices, entry),
                    "Use a root whose sysfs is mounted inside it, or a machine record.");
      }
    }
  }
  return {};
}

bool has_dump(const Host& host) { return host.files().exists(kDump); }

Result<std::vector<PciDevice>> from_dump(const Host& host, PciDepth depth) {
  const struct stat info = TRY(host.files().stat(kDump));
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::invalid, "not a regular file");
  if (info.st_size > kDumpLimit) return fail(ErrorCode::invalid, fmt::format("larger than {} bytes", kDumpLimit));
  const auto path = TRY(host.files().real_path(kDump));
  return scan(host, PCI_ACCESS_DUMP, "dump.name", path.string(), depth);
}

Result<std::vector<PciDevice>> from_sysfs(const Host& host, PciDepth depth) {
  const auto bus = TRY(host.files().real_path(kPciBus));
  if (!host.live()) TRY(stays_inside(host.files(), bus));
  return scan(host, PCI_ACCESS_SYS_BUS_PCI, "sysfs.path", bus.string(), depth);
}

}  // namespace

Result<std::vector<PciDevice>> pci_devices(const Host& host, PciDepth depth) {
  const auto read = [&]() -> Result<std::vector<PciDevice>> {
    std::vector<PciDevice> devices =
        has_dump(host) ? TRY_IN(kDump, from_dump(host, depth)) : TRY_IN("PCI bus", from_sysfs(host, depth));
    for (PciDevice& device : devices)
      if (device.is_nvidia_gpu()) device.left_out = why_left_out(host, device);
    if (!host.requires_all_gpus()) divide_into_groups(devices);
    return devices;
  };
  return host.once<std::vector<PciDevice>>(depth == PciDepth::paths ? "pci paths" : "pci", read);
}

std::string pci_driver(const Host& host, std::string_view address) {
  const std::string link = host.files().read_link(sysfs_path(address, "driver")).value_or("");
  return link.substr(link.rfind('/') + 1);
}

Result<void> write_pci_word(Host& host, const PciDevice& device, std::size_t offset, std::uint16_t value) {
  if (has_dump(host)) return fail(ErrorCode::state, "a machine record cannot be written to");
  const auto bus = TRY(host.files().real_path(kPciBus));
  if (!host.live()) TRY(stays_inside(host.files(), bus));
  try {
    for (const bool reads : {false, true}) {  // a session of its own each, so that no answer is cached
      const Session session(PCI_ACCESS_SYS_BUS_PCI, "sysfs.path", bus.string());
      pci_init(session.get());
      pci_dev* found = at_address(session.get(), device.address);
      if (found == nullptr) return fail(ErrorCode::invalid, device.address + " is not a PCI address");
      const std::unique_ptr<pci_dev, decltype(&pci_free_dev)> function(found, pci_free_dev);
      const int at = static_cast<int>(offset);
      if (reads ? pci_read_word(found, at) == value : pci_write_word(found, at, value) != 0) continue;
      return fail(
          reads ? ErrorCode::state : ErrorCode::denied,
          fmt::format("{}: {} 0x{:04x} at offset 0x{:x}", device.address,
                      reads ? "the device did not accept" : "the kernel does not permit writing", value, offset));
    }
  } catch (const LibpciError& error) {
    return fail(ErrorCode::io, device.address + ": " + error.message);
  }
  return {};
}

bool is_image(const Host& host) {
  return !host.live() && !has_dump(host) && !RecordedRunner::is_record(host.files()) && !host.files().exists(kPciBus);
}

std::string pci_source(const Host& host) { return has_dump(host) ? kDump : kPciDevices; }

}  // namespace p2pd
