// SPDX-License-Identifier: MIT
#include "base/hardware/left_out.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <regex>


namespace p2pd {
namespace {

/// Value of a line "KEY: value" of the driver's words about a GPU; empty where there is none.
std::string value_of(const std::string& information, std::string_view key) {
  const std::size_t at = information.find(key);
  if (at == std::string::npos) return {};
  const std::size_t first = information.find_first_not_of(": \t", at + key.size());
  if (first == std::string::npos) return {};
  return information.substr(first, information.find_first_of("\n", first) - first);
}

bool names(const std::string& word, const PciDevice& gpu, const std::string& uuid) {
  return word == gpu.id() || (!uuid.empty() && word == uuid) || word == gpu.address || "0000:" + word == gpu.address;
}

}  // namespace

bool is_gpu_name(std::string_view word) {
  static const std::regex kForms("([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]|10de:[0-9a-f]{4}|GPU-[0-9a-f-]{36}");
  return std::regex_match(word.begin(), word.end(), kForms);
}

std::string why_left_out(const Host& host, const PciDevice& gpu) {
  const std::string path = fmt::format("/proc/driver/nvidia/gpus/{}/information", gpu.address);
  const std::string information = host.files().read(path).value_or("");
  if (value_of(information, "GPU Excluded") == "Yes") return "the driver was told to leave it out (NVreg_ExcludedGpus)";
  const std::string uuid = value_of(information, "GPU UUID");
  const bool named = std::ranges::any_of(host.left_out_gpus(), [&](const std::string& word) { return names(word, gpu, uuid); });
  return named ? "the plan leaves it out" : "";
}

}  // namespace p2pd
