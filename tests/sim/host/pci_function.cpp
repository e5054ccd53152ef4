// SPDX-License-Identifier: MIT
// Reference: PCI Express Base Specification, 7.5.3 (PCI Express capability), 7.7.11 (ACS), 2.2 (packet headers).
#include "tests/sim/host/pci_function.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <stdexcept>

namespace p2pd::sim {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kAddressLength = 12;  // "0000:01:00.0"
constexpr std::size_t kPlainConfig = 256;   // bytes; extended capabilities come behind
constexpr unsigned kExpressId = 0x10;
constexpr unsigned kAcsId = 0x0d;
constexpr unsigned long kIntel = 0x8086;
constexpr int kIntelSplitBytes = 64;     // what root ports of Intel forward at once
constexpr int kWriteOverheadBytes = 24;  // framing, sequence number, header and LCRC of a memory write

unsigned word(const std::string& bytes, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(bytes.at(i))); };
  return byte(at) | byte(at + 1) << 8;
}

bool is_address(const std::string& name) {
  return name.size() == kAddressLength && name[4] == ':' && name[7] == ':' && name[10] == '.';
}

}  // namespace

std::optional<std::string> read_text(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return std::nullopt;
  std::string text((std::istreambuf_iterator<char>(stream)), {});
  return stream.bad() ? std::nullopt : std::optional(std::move(text));
}

PciFunction::PciFunction(const fs::path& folder) : folder_(fs::canonical(folder)) {}

std::string PciFunction::line(const char* name) const {
  const auto text = read_text(folder_ / name);
  if (!text) throw std::runtime_error((folder_ / name).string() + " cannot be read");
  return text->substr(0, text->find('\n'));
}

unsigned long PciFunction::number(const char* name) const {
  const std::string text = line(name);
  char* end = nullptr;
  const unsigned long value = std::strtoul(text.c_str(), &end, 0);
  if (end == text.c_str()) throw std::runtime_error((folder_ / name).string() + " holds no number: " + text);
  return value;
}

double PciFunction::transfers(const char* name) const {
  double value = 0;
  if (!(std::istringstream(line(name)) >> value))
    throw std::runtime_error((folder_ / name).string() + " holds no speed: " + line(name));
  return value;
}

std::string PciFunction::driver() const {
  std::error_code none;
  return fs::read_symlink(folder_ / "driver", none).filename();
}

std::optional<std::string> PciFunction::iommu_type() const {
  if (!fs::exists(folder_ / "iommu_group")) return std::nullopt;
  return line("iommu_group/type");
}

/// A line of `resource` is first byte, last byte and flags; one that is not there is zeros.
std::uint64_t PciFunction::bar_bytes(std::size_t bar) const {
  std::istringstream lines(read_text(folder_ / "resource").value_or(""));
  std::string row;
  for (std::size_t i = 0; i <= bar; ++i)
    if (!std::getline(lines, row)) return 0;
  std::istringstream numbers(row);
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  if (!(numbers >> std::hex >> first >> last) || last == 0) return 0;
  return last - first + 1;
}

std::vector<PciFunction> PciFunction::way() const {
  std::vector<PciFunction> found;
  fs::path folder;
  for (const fs::path& part : folder_) {
    folder /= part;
    if (is_address(part)) found.emplace_back(folder);
  }
  return found;
}

double PciFunction::link_gb_s() const {
  const double bits = transfers("current_link_speed");
  const double coded = bits < 8 ? 8.0 / 10 : 128.0 / 130;
  return bits * coded / 8 * static_cast<double>(number("current_link_width"));
}

int PciFunction::link_generation(const char* speed) const {
  constexpr double kTransfers[] = {2.5, 5, 8, 16, 32, 64};  // GT/s, by generation
  const double now = transfers(speed);
  return static_cast<int>(std::ranges::count_if(kTransfers, [&](double one) { return one <= now; }));
}

std::string PciFunction::config(std::size_t least) const {
  std::string bytes = read_text(folder_ / "config").value_or("");
  if (bytes.size() < least)
    throw std::runtime_error((folder_ / "config").string() + " cannot be read to its end: root can");
  return bytes;
}

int PciFunction::max_payload_bytes() const {
  constexpr std::size_t kFirst = 0x34;
  constexpr std::size_t kDeviceControl = 0x08;
  const std::string bytes = config(kPlainConfig);
  std::size_t at = word(bytes, kFirst) & 0xff;
  for (int left = 48; at != 0 && left > 0; --left, at = word(bytes, at) >> 8)
    if ((word(bytes, at) & 0xff) == kExpressId) return 128 << (word(bytes, at + kDeviceControl) >> 5 & 7);
  throw std::runtime_error(address() + " has no PCI Express capability");
}

unsigned PciFunction::acs_control() const {
  constexpr std::size_t kControl = 6;
  const std::string bytes = config(kPlainConfig + 1);
  std::size_t at = kPlainConfig;
  for (int left = 480; at >= kPlainConfig && left > 0; --left, at = word(bytes, at + 2) >> 4)
    if (word(bytes, at) == kAcsId) return word(bytes, at + kControl);
  return 0;
}

double PciPath::payload_gb_s() const {
  double raw = std::numeric_limits<double>::max();
  int payload = intel_root ? kIntelSplitBytes : std::numeric_limits<int>::max();
  for (const PciFunction& port : ports) {
    raw = std::min(raw, port.link_gb_s());
    payload = std::min(payload, port.max_payload_bytes());
  }
  return raw * payload / (payload + kWriteOverheadBytes);
}

PciPath path_between(const PciFunction& one, const PciFunction& other) {
  const std::vector<PciFunction> ways[] = {one.way(), other.way()};
  const auto common = std::ranges::mismatch(ways[0], ways[1]).in1 - ways[0].begin();
  PciPath path;
  path.below_switch = common > 0;
  path.one_switch = path.below_switch;
  for (const std::vector<PciFunction>& way : ways) {
    const auto begin = way.begin() + common;
    path.ports.insert(path.ports.end(), begin, way.end());
    if (way.end() - begin > 1) path.parting.push_back(*begin);
    if (way.end() - begin > 2) path.one_switch = false;
    if (!path.below_switch) path.intel_root |= begin->number("vendor") == kIntel;
  }
  return path;
}

}  // namespace p2pd::sim
