// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// One PCI function: identity and its configuration space as far as it could be read.
struct PciDevice {
  std::string address;  ///< "0000:01:00.0"
  std::uint16_t vendor_id = 0;
  std::uint16_t device_id = 0;
  std::uint32_t class_code = 0;      ///< 24 bits: class, subclass, programming interface
  std::string name;                  ///< class and model from pci.ids, only with PciDepth::everything
  std::vector<std::uint8_t> config;  ///< 0, 64, 256 or 4096 bytes; a truncated dump gives what it has; all ones where it was not read
  bool extended_readable = false;    ///< extended configuration space (beyond 256 bytes) was readable

  bool is_display() const { return (class_code >> 16) == 0x03; }
  std::string left_out;  ///< of an NVIDIA GPU: why it takes no part in P2P; empty: it does

  bool takes_part() const { return is_nvidia_gpu() && left_out.empty(); }
  std::string id() const;  ///< vendor and device, "10de:2684"
  bool is_nvidia_gpu() const { return vendor_id == 0x10de && is_display(); }  ///< not its audio function
  bool is_bridge() const { return (class_code >> 8) == 0x0604; }
  /// Configuration space reads as all ones: the device fell off the bus (lspci: "unknown header type 7f").
  bool is_lost() const;
  /// Offset of a capability in the first 256 bytes, the first one that the list has after offset `previous`; nothing
  /// when absent or unreadable. Loops end.
  std::optional<std::size_t> capability(std::uint8_t id, std::size_t previous = 0) const;
  /// Offset of an extended capability, 0x100 or above; nothing when absent or unreadable. Loops end.
  std::optional<std::uint16_t> extended_capability(std::uint16_t id) const;
  std::uint16_t word(std::size_t offset) const;   ///< little-endian; 0xffff beyond what was read
  std::uint32_t dword(std::size_t offset) const;  ///< little-endian; 0xffffffff beyond what was read
};

/// How much to read: configuration space is slow (about a microsecond a word), and a server has hundreds of functions.
enum class PciDepth {
  paths,       ///< of bridges and displays 256 bytes and the extended capabilities that are looked at, of anything else 64 bytes
  everything,  ///< all of every function, and names: for a machine record
};

/// Every PCI function of `host`, by address: from the `lspci-xxxx.txt` of a machine record, else from sysfs.
Result<std::vector<PciDevice>> pci_devices(const Host& host, PciDepth depth = PciDepth::paths);

/// Addresses of the NVIDIA GPUs among `devices` that take part in P2P, in their order.
std::vector<std::string> nvidia_gpus(const std::vector<PciDevice>& devices);

/// Name of the kernel driver that a function is bound to, "vfio-pci"; empty where none is.
std::string pci_driver(const Host& host, std::string_view address);

/// Writes one 16-bit register of a function's configuration space through sysfs, and reads it back: an Error where the
/// kernel refuses, or the device does not take the value. The register is back at what firmware and kernel say with the
/// next boot; nothing is recorded here.
Result<void> write_pci_word(Host& host, const PciDevice& device, std::size_t offset, std::uint16_t value);

/// Where pci_devices() reads `host`, for evidence.
std::string pci_source(const Host& host);

/// True of a tree that has no PCI bus: it is no machine's, and what hardware it will boot on is not known.
bool is_image(const Host& host);

/// A range of bus addresses; of length 0 where none is assigned.
struct PciRange {
  std::uint64_t first = 0;
  std::uint64_t length = 0;  ///< bytes
  bool prefetchable = false;

  bool holds(const PciRange& other) const {
    return other.first >= first && other.length <= length && other.first - first <= length - other.length;
  }
};

/// The base address registers 0 to 5, from sysfs `resource`; fewer where the file ends or breaks off earlier.
Result<std::vector<PciRange>> pci_bars(const Host& host, const PciDevice& device);

/// Length in bytes of base address register `bar` (0 to 5), from sysfs `resource`; 0 when not assigned.
Result<std::uint64_t> pci_bar_bytes(const Host& host, const PciDevice& device, int bar);

/// What the Resizable BAR capability says of one base address register.
struct ResizableBar {
  std::uint64_t bytes = 0;                     ///< size in force
  std::vector<std::uint64_t> supported_bytes;  ///< ascending; may be empty, real devices do that
};

/// Nothing when the capability is absent, leaves out `bar`, or cannot be read (see extended_readable).
std::optional<ResizableBar> resizable_bar(const PciDevice& device, int bar);

/// What a bridge lets through to the functions below it, from its registers; both need the first 64 bytes.
PciRange memory_window(const PciDevice& bridge);  ///< below 4 GiB
PciRange prefetchable_window(const PciDevice& bridge);

/// Number of the base address register that NVIDIA calls BAR1: 2 where BAR0 is 64 bits wide (H200), else 1.
int nvidia_bar1(const PciDevice& device);

}  // namespace p2pd
