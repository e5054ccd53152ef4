// SPDX-License-Identifier: MIT
#include "machine/hardware/pci.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <tuple>
#include <utility>

#include "base/recorded.hpp"
#include "machine/hardware/left_out.hpp"

extern "C" {
#include <pci/pci.h>
}
// Symbol versions for libpci 3.7 of Ubuntu 22.04. The parts of these that are used here are the same since 3.5.
__asm__(".symver pci_fill_info, pci_fill_info@LIBPCI_3.5");
__asm__(".symver pci_filter_init, pci_filter_init@LIBPCI_3.3");
__asm__(".symver pci_filter_parse_slot, pci_filter_parse_slot@LIBPCI_3.3");

namespace p2pd {
namespace {

constexpr char kDump[] = "/lspci-xxxx.txt";
constexpr char kPciBus[] = "/sys/bus/pci";
constexpr char kDevices[] = "/sys/bus/pci/devices";
constexpr off_t kDumpLimit = off_t{32} << 20;  // bytes; 300 functions take 4 MiB
constexpr std::size_t kConfigHeaderBytes = 64;
constexpr std::size_t kConventional = 256;
constexpr std::size_t kExtended = 4096;
constexpr std::size_t kRow = 16;
constexpr std::uint16_t kResizableBarId = 0x15;

/// An extended capability that p2pd uses, and how much of it: error reporting, ACS, resizable BARs.
struct LookedAt {
  std::uint32_t id;
  std::size_t bytes;
};
constexpr LookedAt kLookedAt[] = {{0x01, 0x48}, {0x0d, 8}, {kResizableBarId, 52}};

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
  pci_filter filter;
  pci_filter_init(access, &filter);
  std::string text = address;
  if (pci_filter_parse_slot(&filter, text.data()) != nullptr) return nullptr;
  if (filter.domain < 0 || filter.bus < 0 || filter.slot < 0 || filter.func < 0) return nullptr;
  return pci_get_dev(access, filter.domain, filter.bus, filter.slot, filter.func);
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

template <class Number>
Number little_endian(const std::vector<std::uint8_t>& bytes, std::size_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(Number)) return static_cast<Number>(~Number{0});
  Number number = 0;
  for (std::size_t i = sizeof(Number); i-- > 0;) number = static_cast<Number>((number << 8) | bytes[offset + i]);
  return number;
}

/// Reads all 256 bytes of the conventional space, and of the extended one the header of each capability and the start
/// of kLookedAt; all ones in between. In a virtual machine each four bytes are a trap: all of a GPU took 20 to 35 ms.
std::vector<std::uint8_t> read_capabilities(pci_dev* device) {
  constexpr std::size_t kMost = (kExtended - kConventional) / 8;  // a header and a register each
  std::vector<std::uint8_t> bytes = read_config(device, kConventional);
  if (bytes.size() < kConventional) return bytes;
  bytes.resize(kExtended, 0xff);
  std::size_t at = kConventional;
  for (std::size_t step = 0; step < kMost && at >= kConventional; ++step) {
    if (pci_read_block(device, static_cast<int>(at), &bytes[at], 4) == 0) {
      if (at == kConventional) bytes.resize(kConventional);
      break;
    }
    const std::uint32_t header = little_endian<std::uint32_t>(bytes, at);
    if (header == 0 || header == 0xffffffffU) break;
    const auto* looked_at = std::ranges::find(kLookedAt, header & 0xffffU, &LookedAt::id);
    if (looked_at != std::end(kLookedAt)) {
      const std::size_t length = std::min(looked_at->bytes, kExtended - at);
      if (pci_read_block(device, static_cast<int>(at), &bytes[at], static_cast<int>(length)) == 0) bytes.resize(at);
      if (bytes.size() == at) break;
    }
    at = (header >> 20) & ~std::size_t{3};
  }
  return bytes;
}

template <class Number>
std::optional<Number> hexadecimal(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string attribute(const PciDevice& device, std::string_view name) {
  return fmt::format("{}/{}/{}", kDevices, device.address, name);
}

/// Identifies a device that fell off the bus from the kernel's record: its registers are lost.
void identify_lost(const Host& host, PciDevice& device) {
  const auto number = [&](std::string_view name) -> std::optional<std::uint32_t> {
    const auto line = host.line(attribute(device, name));
    return line ? hexadecimal<std::uint32_t>(*line) : std::nullopt;
  };
  device.vendor_id = static_cast<std::uint16_t>(number("vendor").value_or(device.vendor_id));
  device.device_id = static_cast<std::uint16_t>(number("device").value_or(device.device_id));
  device.class_code = number("class").value_or(device.class_code) & 0xffffffU;
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

PciDevice read_device(const Host& host, pci_access* access, pci_dev* from, PciDepth depth) {
  pci_fill_info(from, PCI_FILL_IDENT | PCI_FILL_CLASS);
  PciDevice device;
  device.address = address_of(*from);
  device.vendor_id = from->vendor_id;
  device.device_id = from->device_id;
  device.class_code = static_cast<std::uint32_t>(from->device_class) << 8;
  const bool whole = depth == PciDepth::everything || device.is_display() || device.is_bridge();
  const bool sparse = depth == PciDepth::paths && access->method == PCI_ACCESS_SYS_BUS_PCI;
  device.config = !whole   ? read_config(from, kConfigHeaderBytes)
                  : sparse ? read_capabilities(from)
                           : read_config(from, kExtended);
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
        if (host.files().exists(std::string(kDevices) + "/" + address_of(*device))) throw;
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
  for (const std::string& name : TRY(root.list(kDevices))) {
    for (const std::string& entry : {name, name + "/config", name + "/vendor", name + "/device", name + "/class",
                                     name + "/irq", name + "/resource"}) {
      std::error_code error;
      const auto seen = std::filesystem::canonical(bus / "devices" / entry, error);
      if (error) continue;  // libpci cannot open it either
      const auto inside = root.real_path(std::string(kDevices) + "/" + entry);
      if (!inside || *inside != seen) {
        return fail(ErrorCode::invalid, fmt::format("{}/{} leads out of the root", kDevices, entry),
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

/// Parses first address, last address, flags.
std::optional<PciRange> parse_resource(std::string_view line) {
  constexpr std::uint64_t kUnset = 0x20000000;  // IORESOURCE_UNSET: sized, but no address was found for it
  constexpr std::uint64_t kPrefetch = 0x2000;
  std::array<std::uint64_t, 3> fields{};
  for (std::uint64_t& field : fields) {
    const std::size_t end = line.find(' ');
    const auto number = hexadecimal<std::uint64_t>(line.substr(0, end));
    if (!number) return std::nullopt;
    field = *number;
    line = end == std::string_view::npos ? std::string_view() : line.substr(end + 1);
  }
  const auto [first, last, flags] = fields;
  const bool assigned = flags != 0 && (flags & kUnset) == 0 && last > first;
  return PciRange{first, assigned ? last - first + 1 : 0, (flags & kPrefetch) != 0};
}

/// Makes a range of `base` and `limit`, the upper bits of the first and the last MiB; a limit below the base: closed.
PciRange window(std::uint64_t base, std::uint64_t limit, bool prefetchable) {
  if (limit < base) return {0, 0, prefetchable};
  return {base << 16, ((limit - base) << 16) + 0x100000, prefetchable};
}

}  // namespace

std::string PciDevice::id() const { return fmt::format("{:04x}:{:04x}", vendor_id, device_id); }

bool PciDevice::is_lost() const {
  return config.size() >= kConfigHeaderBytes && std::all_of(config.begin(), config.begin() + kConfigHeaderBytes,
                                                            [](std::uint8_t byte) { return byte == 0xff; });
}

std::uint16_t PciDevice::word(std::size_t offset) const { return little_endian<std::uint16_t>(config, offset); }

std::uint32_t PciDevice::dword(std::size_t offset) const { return little_endian<std::uint32_t>(config, offset); }

std::optional<std::size_t> PciDevice::capability(std::uint8_t id, std::size_t previous) const {
  constexpr int kMost = (kConventional - kConfigHeaderBytes) / 4;
  if (config.size() <= kConfigHeaderBytes || (config[PCI_STATUS] & PCI_STATUS_CAP_LIST) == 0) return std::nullopt;
  std::size_t offset = (previous == 0 ? config[PCI_CAPABILITY_LIST] : config[previous + 1]) & 0xfcU;
  for (int step = 0; step < kMost && offset >= kConfigHeaderBytes && offset + 2 <= config.size(); ++step) {
    if (config[offset] == id) return offset;
    offset = config[offset + 1] & 0xfcU;
  }
  return std::nullopt;
}

std::optional<std::uint16_t> PciDevice::extended_capability(std::uint16_t id) const {
  constexpr std::size_t kMost = (kExtended - kConventional) / 8;  // a header and a register each
  std::size_t offset = kConventional;
  for (std::size_t step = 0; step < kMost && offset >= kConventional && offset + 4 <= config.size(); ++step) {
    const std::uint32_t header = dword(offset);
    if (header == 0 || header == 0xffffffffU) break;
    if ((header & 0xffffU) == id) return static_cast<std::uint16_t>(offset);
    offset = (header >> 20) & ~std::size_t{3};
  }
  return std::nullopt;
}

Result<std::vector<PciDevice>> pci_devices(const Host& host, PciDepth depth) {
  const auto read = [&]() -> Result<std::vector<PciDevice>> {
    std::vector<PciDevice> devices =
        has_dump(host) ? TRY_IN(kDump, from_dump(host, depth)) : TRY_IN("PCI bus", from_sysfs(host, depth));
    for (PciDevice& device : devices)
      if (device.is_nvidia_gpu()) device.left_out = why_left_out(host, device);
    return devices;
  };
  return host.once<std::vector<PciDevice>>(depth == PciDepth::paths ? "pci paths" : "pci", read);
}

std::string pci_driver(const Host& host, std::string_view address) {
  const std::string link = host.files().read_link(fmt::format("{}/{}/driver", kDevices, address)).value_or("");
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

std::vector<std::string> nvidia_gpus(const std::vector<PciDevice>& devices) {
  std::vector<std::string> gpus;
  for (const PciDevice& device : devices) {
    if (device.takes_part()) gpus.push_back(device.address);
  }
  return gpus;
}

bool is_image(const Host& host) {
  return !host.live() && !has_dump(host) && !RecordedRunner::is_record(host.files()) && !host.files().exists(kPciBus);
}

std::string pci_source(const Host& host) { return has_dump(host) ? kDump : kDevices; }

Result<std::vector<PciRange>> pci_bars(const Host& host, const PciDevice& device) {
  const std::string content = TRY(host.files().read(attribute(device, "resource"), kExtended));
  std::vector<PciRange> bars;
  for (std::string_view rest = content; bars.size() < 6 && !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const auto bar = parse_resource(rest.substr(0, end));
    if (!bar) break;
    bars.push_back(*bar);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return bars;
}

Result<std::uint64_t> pci_bar_bytes(const Host& host, const PciDevice& device, int bar) {
  const std::vector<PciRange> bars = TRY(pci_bars(host, device));
  if (std::cmp_less(bar, bars.size())) return bars[static_cast<std::size_t>(bar)].length;
  return fail(ErrorCode::invalid, fmt::format("{}: no three numbers for BAR {}", attribute(device, "resource"), bar));
}

PciRange memory_window(const PciDevice& bridge) {
  return window(bridge.word(PCI_MEMORY_BASE) & 0xfff0U, bridge.word(PCI_MEMORY_LIMIT) & 0xfff0U, false);
}

PciRange prefetchable_window(const PciDevice& bridge) {
  constexpr unsigned kWide = 1;  // value of bits 0 to 3: 64-bit, the upper halves count
  std::uint64_t base = bridge.word(PCI_PREF_MEMORY_BASE) & 0xfff0U;
  std::uint64_t limit = bridge.word(PCI_PREF_MEMORY_LIMIT) & 0xfff0U;
  if ((bridge.word(PCI_PREF_MEMORY_BASE) & 0xfU) == kWide) {
    base |= std::uint64_t{bridge.dword(PCI_PREF_BASE_UPPER32)} << 16;
    limit |= std::uint64_t{bridge.dword(PCI_PREF_LIMIT_UPPER32)} << 16;
  }
  return window(base, limit, true);
}

std::optional<ResizableBar> resizable_bar(const PciDevice& device, int bar) {
  constexpr std::uint32_t kMostSizes = 28;  // capability bits 4 to 31: 1 MiB to 128 TiB
  const auto capability = device.extended_capability(kResizableBarId);
  if (!capability) return std::nullopt;
  const std::uint32_t bars = std::min((device.dword(*capability + 8U) >> 5) & 7U, 6U);
  for (std::uint32_t i = 0; i < bars; ++i) {
    const std::size_t entry = *capability + 4U + 8U * i;
    if (entry + 8 > device.config.size()) break;
    const std::uint32_t control = device.dword(entry + 4);
    if ((control & 7U) != static_cast<std::uint32_t>(bar)) continue;
    ResizableBar found;
    found.bytes = std::uint64_t{1} << (20 + std::min((control >> 8) & 0x3fU, 43U));
    for (std::uint32_t size = 0; size < kMostSizes; ++size) {
      if ((device.dword(entry) >> (size + 4) & 1U) != 0)
        found.supported_bytes.push_back(std::uint64_t{1} << (20 + size));
    }
    return found;
  }
  return std::nullopt;
}

int nvidia_bar1(const PciDevice& device) {
  constexpr std::uint32_t kMemory64 = 4;  // value of bits 0 to 2: not an I/O port, 64-bit
  return (device.dword(PCI_BASE_ADDRESS_0) & 7U) == kMemory64 ? 2 : 1;
}

}  // namespace p2pd
