// SPDX-License-Identifier: MIT
#include "machine/hardware/vram.hpp"

#include <algorithm>
#include <charconv>

#include "base/json_members.hpp"
#include "base/units.hpp"
#include "machine/hardware/driver_answer.hpp"

namespace p2pd {
namespace {

/// Address "0000:01:00.0" of "GPU 00000000:01:00.0", whose domain has four digits more than that of sysfs.
std::string address_of(std::string_view line) {
  std::string address(line.substr(std::min<std::size_t>(8, line.size())));
  std::ranges::transform(address, address.begin(), [](char c) { return c >= 'A' && c <= 'F' ? char(c + 32) : c; });
  return address;
}

/// Number in "    Total   : 24564 MiB"; 0 if there is none.
std::uint32_t mib_of(std::string_view line) {
  const std::size_t colon = line.find(": ");
  if (colon == std::string_view::npos || !line.ends_with(" MiB")) return 0;
  std::uint32_t mib = 0;
  std::from_chars(line.data() + colon + 2, line.data() + line.size(), mib);
  return mib;
}

}  // namespace

std::map<std::string, std::uint64_t> parse_vram(std::string_view text) {
  std::map<std::string, std::uint64_t> found;
  std::string address;
  bool framebuffer = false;  // inside the section whose "Total" counts: BAR1 has one, too
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const std::string_view words = line.substr(std::min(line.find_first_not_of(' '), line.size()));
    if (line.starts_with("GPU ")) address = address_of(line);
    if (line.find(':') == std::string_view::npos) framebuffer = words == "FB Memory Usage";
    if (!framebuffer || address.empty() || !words.starts_with("Total ")) continue;
    if (const std::uint32_t mib = mib_of(words)) found[address] = mib * kMiB;
    framebuffer = false;
  }
  return found;
}

std::map<std::string, std::uint64_t> told_vram_bytes(const Host& host) {
  if (!host.files().exists("/sys/module/nvidia/version")) return {};
  std::map<std::string, std::uint64_t> told;
  if (const auto answer = driver_answer(host); answer && answer->is_object())
    for (const nlohmann::json& gpu : answer->value("gpus", nlohmann::json::array())) {
      const auto bytes =
          gpu.is_object() ? json_number<std::uint64_t>(gpu.value("vram_bytes", nlohmann::json())) : std::nullopt;
      const nlohmann::json address = gpu.is_object() ? gpu.value("address", nlohmann::json()) : nlohmann::json();
      if (bytes && address.is_string()) told[address.get<std::string>()] = *bytes;
    }
  if (!told.empty()) return told;
  Command command;
  command.argv = {"nvidia-smi", "-q"};
  const auto answer = host.once<std::string>(command.text(), [&] { return host.output_of(command); });
  return answer ? parse_vram(*answer) : std::map<std::string, std::uint64_t>();
}

}  // namespace p2pd
