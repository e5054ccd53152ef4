// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

inline constexpr std::size_t kConfigHeaderBytes = 64;  ///< readable by everybody
inline constexpr std::size_t kConventional = 256;
inline constexpr std::size_t kExtended = 4096;

/// Directory of PCI functions, by address.
inline constexpr char kPciDevices[] = "/sys/bus/pci/devices";
/// A function's directory there, or a file in it.
std::string sysfs_path(std::string_view address, std::string_view file = {});

/// One PCI function: identity and the readable part of its configuration space.
struct PciDevice {
  std::string address;  ///< "0000:01:00.0"
  std::uint16_t vendor_id = 0;
  std::uint16_t device_id = 0;
  std::uint32_t class_code = 0;  ///< 24 bits: class, subclass, programming interface
  std::string name;              ///< class and model from pci.ids, only with PciDepth::everything
  std::vector<std::uint8_t>
      config;  ///< 0, 64, 256 or 4096 bytes, or those of a truncated dump; unread bytes are all ones
  bool extended_readable = false;  ///< extended configuration space (beyond 256 bytes) was readable

  bool is_display() const { return (class_code >> 16) == 0x03; }
  std::string left_out;  ///< reason why an NVIDIA GPU takes no part in P2P; empty: it does
  std::string group;     ///< peer group of an NVIDIA GPU that takes part, see machine/hardware/peer_groups.hpp

  bool takes_part() const { return is_nvidia_gpu() && left_out.empty(); }
  std::string bus() const;                                                    ///< "0000:01"
  std::string id() const;                                                     ///< vendor and device, "10de:2684"
  bool is_nvidia_gpu() const { return vendor_id == 0x10de && is_display(); }  ///< excludes its audio function
  bool is_bridge() const { return (class_code >> 8) == 0x0604; }
  /// Checks for a port that a hypervisor emulates: QEMU's, VMware's. Its link registers do not describe a real link.
  bool is_emulated() const;
  /// Checks that configuration space reads as all ones: the device fell off the bus (lspci: "unknown header type 7f").
  bool is_lost() const;
  /// Offset of a capability in the first 256 bytes, the first one that the list has after offset `previous`; nullopt
  /// if absent or unreadable. Loops end.
  std::optional<std::size_t> capability(std::uint8_t id, std::size_t previous = 0) const;
  /// Offset of an extended capability, 0x100 or above; nullopt if absent or unreadable. Loops end.
  std::optional<std::uint16_t> extended_capability(std::uint16_t id) const;
  std::uint16_t word(std::size_t offset) const;   ///< little-endian; 0xffff beyond the bytes that were read
  std::uint32_t dword(std::size_t offset) const;  ///< little-endian; 0xffffffff beyond the bytes that were read
};

/// Amount to read: configuration space is slow (about a microsecond a word), and a server has hundreds of functions.
enum class PciDepth {
  paths,       ///< 256 bytes and the extended capabilities that are used of bridges and displays, 64 bytes of any other
               ///< function
  everything,  ///< all of every function, and names: for a machine record
};

/// Lists every PCI function of `host`, by address: from the `lspci-xxxx.txt` of a machine record, else from sysfs.
Result<std::vector<PciDevice>> pci_devices(const Host& host, PciDepth depth = PciDepth::paths);

/// Addresses of the NVIDIA GPUs among `devices` that take part in P2P, in their order.
std::vector<std::string> nvidia_gpus(const std::vector<PciDevice>& devices);

/// Name of the kernel driver that a function is bound to, "vfio-pci"; empty if there is none.
std::string pci_driver(const Host& host, std::string_view address);

/// Writes one 16-bit register of a function's configuration space through sysfs, and reads it back: an Error if the
/// kernel refuses, or the device does not accept the value. The next boot sets the register as firmware and kernel do;
/// nothing is recorded here.
Result<void> write_pci_word(Host& host, const PciDevice& device, std::size_t offset, std::uint16_t value);

inline constexpr std::string_view kAerSeverities[] = {"correctable", "nonfatal", "fatal"};

/// Errors of a severity that the kernel counted at a PCI function since boot, by name: "BadTLP", and the sum of all,
/// "TOTAL_ERR_COR". An Error if it counts none. Reference: Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats.
Result<std::map<std::string, std::uint64_t>> aer_counts(const Host& host, std::string_view address,
                                                        std::string_view severity);

/// Source from which pci_devices() reads `host`, for evidence.
std::string pci_source(const Host& host);

/// Checks for a tree without a PCI bus: it is no machine's, and the hardware that it will boot on is not known.
bool is_image(const Host& host);

/// A range of bus addresses; length 0 if none is assigned.
struct PciRange {
  std::uint64_t first = 0;
  std::uint64_t length = 0;  ///< bytes
  bool prefetchable = false;

  bool holds(const PciRange& other) const {
    return other.first >= first && other.length <= length && other.first - first <= length - other.length;
  }
};

/// Base address registers 0 to 5, from sysfs `resource`; fewer if the file is shorter.
Result<std::vector<PciRange>> pci_bars(const Host& host, const PciDevice& device);

/// Length in bytes of base address register `bar` (0 to 5), from sysfs `resource`; 0 if not assigned.
Result<std::uint64_t> pci_bar_bytes(const Host& host, const PciDevice& device, int bar);

/// Resizable BAR capability of one base address register.
struct ResizableBar {
  std::uint64_t bytes = 0;                     ///< size in force
  std::vector<std::uint64_t> supported_bytes;  ///< ascending; empty on some real devices
};

/// Reads the capability; nullopt if it is absent, lacks `bar`, or cannot be read (see extended_readable).
std::optional<ResizableBar> resizable_bar(const PciDevice& device, int bar);

/// Windows of a bridge for the functions below it, from its registers; both need the first 64 bytes.
PciRange memory_window(const PciDevice& bridge);  ///< window below 4 GiB
PciRange prefetchable_window(const PciDevice& bridge);

/// Number of the base address register that NVIDIA calls BAR1: 2 if BAR0 is 64 bits wide (H200), else 1.
int nvidia_bar1(const PciDevice& device);

/// Tree of bridges above functions. Points into the functions that it is made of: they must outlive it.
class PciTree {
 public:
  /// Ports above a function, the nearest first.
  struct Way {
    std::vector<const PciDevice*> ports;
    bool whole = false;  ///< reaches the root port; false in a virtual machine: emulated ports are left out
  };

  explicit PciTree(const std::vector<PciDevice>& devices);
  Way above(const PciDevice& device) const;
  /// Checks that `bridge` forwards to the bus of `device`.
  static bool is_below(const PciDevice& bridge, const PciDevice& device);

 private:
  std::map<std::string, const PciDevice*> bridges_;  ///< bridges by the bus right below: "0000:01"
};

}  // namespace p2pd
