// SPDX-License-Identifier: MIT
#include "machine/boot/bar1_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "machine/boot/kernel_arguments.hpp"
#include "machine/boot/kernel_log.hpp"

namespace p2pd {
namespace {

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

std::vector<Bar1Room> tried_rooms_for_bar1(const Host& host, const std::vector<Bar1>& gpus) {
  std::vector<Bar1Room> rooms = rooms_for_bar1(host, gpus);
  if (std::ranges::none_of(gpus, &Bar1::must_grow)) return rooms;
  const auto log = kernel_log(host);
  const bool realloc = all_in_force({"pci=realloc"}, parse_kernel_line(host.line("/proc/cmdline").value_or("")));
  for (std::size_t i = 0; log && i < gpus.size(); ++i) {
    if (!gpus[i].must_grow() || (gpus[i].range->length == 0 && !realloc)) continue;
    const std::uint64_t above = gpus[i].range->length, below = 2 * *gpus[i].goal_bytes();
    const auto refuses = [&](const KernelRecord& record) {
      const std::uint64_t bytes = refused_bytes(record, gpus[i]);
      return bytes > above && bytes < below;
    };
    if (std::ranges::any_of(log->records, refuses)) rooms[i] = {Bar1Room::Kind::refused, nullptr};
  }
  return rooms;
}

}  // namespace p2pd
