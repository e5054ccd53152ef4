// SPDX-License-Identifier: MIT
// Finds room for BAR1 in the kernel's tree of resources: /proc/iomem, whose addresses only root can read. Windows move
// as in drivers/pci/setup-bus.c: pci_reassign_bridge_resources(), from 6.18 on pbus_reassign_bridge_resources(),
// releases a 64-bit prefetchable window without children on each bus up to the root; nv_resize_pcie_bars() has released
// BAR1 and BAR3 before, asks for the largest size first and steps down while there is no space. If the order of ranges
// matters, this is the optimistic answer: the size of BAR1 is read after the driver was loaded.
#include "machine/boot/bar1_room.hpp"

#include <fmt/format.h>
#include <linux/pci_regs.h>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "machine/boot/kernel_arguments.hpp"
#include "machine/boot/kernel_log.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kTree = "/proc/iomem";
constexpr std::size_t kTreeLimit = 4U << 20;
constexpr std::string_view kBus = "PCI Bus ";
constexpr std::size_t kNone = ~std::size_t{0};

/// A line of the tree, "  4000000000-47ffffffff : PCI Bus 0000:01".
struct Resource {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::string name;
  std::size_t parent = kNone;
  bool released = false;
};

std::optional<Resource> parse(const std::string& line) {
  Resource resource;
  int name = 0;
  std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " : %n", &resource.first, &resource.last, &name);
  if (name == 0 || resource.last <= resource.first) return std::nullopt;
  resource.name = line.substr(static_cast<std::size_t>(name));
  return resource;
}

/// Reads the tree; empty if addresses are hidden.
std::vector<Resource> read_tree(const Host& host) {
  std::vector<Resource> tree;
  std::vector<std::size_t> above;  // parents by depth
  std::istringstream lines(host.files().read(kTree, kTreeLimit).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    auto resource = parse(line);
    if (!resource) continue;
    above.resize(std::min(line.find_first_not_of(' ') / 2, above.size()));
    if (!above.empty()) resource->parent = above.back();
    above.push_back(tree.size());
    tree.push_back(std::move(*resource));
  }
  return tree;
}

struct Range {
  std::uint64_t first;
  std::uint64_t last;
};

/// Finds a place between `first` and `last` for `bar` bytes at a multiple of themselves, and `rest` bytes beside them.
std::optional<Range> fit(std::uint64_t first, std::uint64_t last, std::uint64_t bar, std::uint64_t rest) {
  const std::uint64_t start = (first + bar - 1) / bar * bar;
  if (start < first || start > last || last - start < bar - 1) return std::nullopt;
  if (last - start - (bar - 1) >= rest) return Range{start, start + bar + rest - 1};
  if (start - first >= rest) return Range{start - rest, start + bar - 1};
  return std::nullopt;
}

class Tree {
 public:
  explicit Tree(std::vector<Resource> all) : all_(std::move(all)) {}
  bool empty() const { return all_.empty(); }

  /// Resizes BAR1 of `gpu`, as far as there is room.
  Bar1Room resize(const Host& host, const Bar1& gpu) {
    Bar1Room room;
    std::vector<std::size_t> spaces, released;
    for (const PciDevice* port : gpu.above.ports) {
      const std::size_t window = window_of(*port);
      if (window == kNone && is_wide(*port)) continue;  // a closed window holds nothing
      const std::vector<std::size_t> held = window == kNone ? std::vector<std::size_t>() : children(window);
      const auto moves = [&](std::size_t child) {
        return is_released(host, gpu, all_[child]) || std::ranges::count(released, child) > 0;
      };
      std::ranges::copy_if(held, std::back_inserter(released), moves);
      if (!is_wide(*port) || !std::ranges::all_of(held, moves)) {
        room.fixed = port;
        if (window != kNone) spaces = {window};
        break;
      }
      released.push_back(window);
    }
    if (room.fixed == nullptr) spaces = apertures(*gpu.above.ports.back());
    if (room.fixed == nullptr && spaces.empty()) return {Bar1Room::Kind::unknown, nullptr};
    for (const std::size_t one : released) all_[one].released = true;
    if (place(gpu, rest_of(host, gpu), spaces)) return {};
    for (const std::size_t one : released) all_[one].released = false;  // the kernel restores the old ranges
    room.kind = room.fixed == nullptr ? Bar1Room::Kind::aperture : Bar1Room::Kind::window;
    return room;
  }

 private:
  static bool is_wide(const PciDevice& port) {
    return (port.word(PCI_PREF_MEMORY_BASE) & PCI_PREF_RANGE_TYPE_MASK) == PCI_PREF_RANGE_TYPE_64;
  }  // 64 bits

  /// True for BAR1 and BAR3 of the GPU, which its driver releases. What else has its address (the registers of its
  /// virtual functions) stays, and pins the window.
  static bool is_released(const Host& host, const Bar1& gpu, const Resource& resource) {
    constexpr std::size_t kBar3 = 3;
    if (resource.name != gpu.gpu->address) return false;
    const auto bars = pci_bars(host, *gpu.gpu);
    if (!bars) return true;
    for (const std::size_t bar : {static_cast<std::size_t>(nvidia_bar1(*gpu.gpu)), kBar3})
      if (bar < bars->size() && (*bars)[bar].first == resource.first) return true;
    return false;
  }

  /// Bytes of the GPU's other prefetchable registers, BAR3, beside BAR1.
  static std::uint64_t rest_of(const Host& host, const Bar1& gpu) {
    std::uint64_t bytes = 0;
    const auto bars = pci_bars(host, *gpu.gpu).value_or(std::vector<PciRange>());
    for (std::size_t i = 0; i < bars.size(); ++i)
      if (bars[i].prefetchable && std::cmp_not_equal(i, nvidia_bar1(*gpu.gpu)))
        bytes += std::min(bars[i].length, ~bytes);
    return bytes;
  }

  std::vector<std::size_t> children(std::size_t parent) const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < all_.size(); ++i)
      if (all_[i].parent == parent && !all_[i].released) found.push_back(i);
    return found;
  }

  std::size_t window_of(const PciDevice& port) const {
    const PciRange window = prefetchable_window(port);
    const std::string name = fmt::format("{}{}:{:02x}", kBus, port.address.substr(0, port.address.find(':')),
                                         port.word(PCI_SECONDARY_BUS) & 0xffU);
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const Resource& one = all_[i];
      if (!one.released && one.name == name && one.first == window.first && one.last - one.first + 1 == window.length)
        return i;
    }
    return kNone;
  }

  /// Ranges that the host bridge forwards to the bus of a root port.
  std::vector<std::size_t> apertures(const PciDevice& root_port) const {
    const std::string name = std::string(kBus) + root_port.address.substr(0, root_port.address.rfind(':'));
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const std::size_t parent = all_[i].parent;
      if (all_[i].name == name && (parent == kNone || !all_[parent].name.starts_with(kBus))) found.push_back(i);
    }
    return found;
  }

  bool place(const Bar1& gpu, std::uint64_t rest, const std::vector<std::size_t>& spaces) {
    std::vector<std::uint64_t> sizes = {*gpu.goal_bytes()};
    if (gpu.resizable)
      std::ranges::copy_if(gpu.resizable->supported_bytes, std::back_inserter(sizes),
                           [&](std::uint64_t size) { return size > sizes.front(); });
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      for (const std::size_t space : spaces) {
        if (const auto range = gap(space, *size, rest)) {
          all_.push_back({range->first, range->last, std::string(kBus), space, false});
          return true;
        }
      }
    }
    return false;
  }

  std::optional<Range> gap(std::size_t space, std::uint64_t bar, std::uint64_t rest) const {
    std::vector<std::size_t> taken = children(space);
    std::ranges::sort(taken, {}, [&](std::size_t one) { return all_[one].first; });
    std::uint64_t free = all_[space].first;
    for (const std::size_t one : taken) {
      if (all_[one].first > free)
        if (const auto range = fit(free, all_[one].first - 1, bar, rest)) return range;
      if (all_[one].last >= all_[space].last) return std::nullopt;
      free = std::max(free, all_[one].last + 1);
    }
    return fit(free, all_[space].last, bar, rest);
  }

  std::vector<Resource> all_;
};

/// Size that `record` says the kernel found no space for in BAR1 of `gpu`; 0: it says nothing of the kind.
std::uint64_t refused_bytes(const KernelRecord& record, const Bar1& gpu) {
  constexpr std::string_view kSize = "[mem size 0x";
  const std::string name = fmt::format(" {}: BAR {}", gpu.gpu->address, nvidia_bar1(*gpu.gpu));
  const std::string_view text = record.text;
  const std::size_t size = text.find(kSize);
  if (text.substr(std::min(text.find(' '), text.size())).substr(0, name.size()) != name) return 0;
  if (size == std::string_view::npos || text.find("no space") == std::string_view::npos) return 0;
  std::uint64_t bytes = 0;
  std::from_chars(text.data() + size + kSize.size(), text.data() + text.size(), bytes, 16);
  return bytes;
}

}  // namespace

std::vector<Bar1Room> rooms_for_bar1(const Host& host, const std::vector<Bar1>& gpus) {
  std::vector<Bar1Room> rooms(gpus.size());
  if (std::ranges::none_of(gpus, &Bar1::must_grow)) return rooms;
  Tree tree(read_tree(host));
  const auto log = kernel_log(host);
  const bool realloc = all_in_force({"pci=realloc"}, parse_kernel_line(host.line("/proc/cmdline").value_or("")));
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (!gpus[i].must_grow()) continue;
    rooms[i] = tree.empty() ? Bar1Room{Bar1Room::Kind::unknown, nullptr} : tree.resize(host, gpus[i]);
    const std::uint64_t above = gpus[i].range->length, below = 2 * *gpus[i].goal_bytes();
    const auto refuses = [&](const KernelRecord& record) {
      const std::uint64_t bytes = refused_bytes(record, gpus[i]);
      return bytes > above && bytes < below;
    };
    const bool tried = above > 0 || realloc;
    if (tried && log && std::ranges::any_of(log->records, refuses)) rooms[i] = {Bar1Room::Kind::refused, nullptr};
  }
  return rooms;
}

}  // namespace p2pd
