// SPDX-License-Identifier: MIT
#include "machine/hardware/left_out.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

namespace p2pd {
namespace {

bool names(const std::string& word, const PciDevice& gpu, const std::string& uuid) {
  return word == gpu.id() || (!uuid.empty() && word == uuid) || word == gpu.address || "0000:" + word == gpu.address;
}

}  // namespace

std::string told_of_gpu(const Host& host, const std::string& address, std::string_view key) {
  const std::string text =
      host.files().read(fmt::format("/proc/driver/nvidia/gpus/{}/information", address)).value_or("");
  std::size_t at = text.find(fmt::format("{}:", key));
  if (at == std::string::npos || (at > 0 && text[at - 1] != '\n')) return {};
  at = text.find_first_not_of(" \t", at + key.size() + 1);
  return at == std::string::npos || text[at] == '\n' ? "" : text.substr(at, text.find('\n', at) - at);
}

bool is_gpu_name(std::string_view word) {
  static const std::regex kForms("([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]|10de:[0-9a-f]{4}|GPU-[0-9a-f-]{36}");
  return std::regex_match(word.begin(), word.end(), kForms);
}

std::string why_left_out(const Host& host, const PciDevice& gpu) {
  if (told_of_gpu(host, gpu.address, "GPU Excluded") == "Yes")
    return "the driver was told to leave it out (NVreg_ExcludedGpus)";
  if (const auto alone = host.alone_gpus().find(gpu.address); alone != host.alone_gpus().end())
    return fmt::format("{}{}", kAlone, alone->second);
  if (host.left_out_gpus().empty()) return {};
  const std::string uuid = told_of_gpu(host, gpu.address, "GPU UUID");
  const bool named =
      std::ranges::any_of(host.left_out_gpus(), [&](const std::string& word) { return names(word, gpu, uuid); });
  return named ? "the plan leaves it out" : "";
}

}  // namespace p2pd
