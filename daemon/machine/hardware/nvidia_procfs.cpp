// SPDX-License-Identifier: MIT
#include "machine/hardware/nvidia_procfs.hpp"

#include <algorithm>

namespace p2pd {
namespace {

constexpr std::string_view kDirectory = "/proc/driver/nvidia/";

/// The one option that the driver shows by another name (NV_DEFINE_PARAMS_TABLE_ENTRY_CUSTOM_NAME in nv-reg.h, which is
/// the same in the tags 530.30.02 to 595.45.04).
constexpr std::string_view kShownAs = "RmProfilingAdminOnly";
constexpr std::string_view kOption = "RestrictProfilingToAdminUsers";

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Checks for "570.86.16"; not "x86_64", "12.2.0)" nor "570."
bool is_version(std::string_view word) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !word.empty() && digit(word.front()) && digit(word.back()) && word.find('.') != word.npos &&
         std::ranges::all_of(word, [&](char c) { return c == '.' || digit(c); });
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    if (text.empty()) return words;
    const auto end = static_cast<std::size_t>(std::ranges::find_if(text, is_blank) - text.begin());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

/// Name and value of every line "Name: value", without blanks and tabs around both, and without quotes around the
/// value.
std::map<std::string, std::string> fields_of(std::string_view text) {
  const auto trimmed = [](std::string_view part) {
    while (!part.empty() && is_blank(part.front())) part.remove_prefix(1);
    while (!part.empty() && is_blank(part.back())) part.remove_suffix(1);
    return part;
  };
  std::map<std::string, std::string> fields;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view value = trimmed(line.substr(colon + 1));
    if (value.size() > 1 && value.starts_with('"') && value.ends_with('"')) value = value.substr(1, value.size() - 2);
    fields[std::string(trimmed(line.substr(0, colon)))] = value;
  }
  return fields;
}

}  // namespace

std::optional<NvidiaVersion> parse_nvidia_version(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  constexpr std::string_view kName[] = {"NVIDIA", "UNIX"};
  const auto name = std::search(words.begin(), words.end(), std::begin(kName), std::end(kName));
  if (name == words.end()) return std::nullopt;
  const auto version = std::find_if(name, words.end(), is_version);
  if (version == words.end() || std::find(name, version, "GCC") != version) return std::nullopt;
  return NvidiaVersion{std::string(*version), std::find(name, version, "Open") != version};
}

Result<NvidiaVersion> nvidia_version(const Host& host) {
  const std::string path = std::string(kDirectory) + "version";
  const auto version = parse_nvidia_version(TRY(host.files().read(path)));
  if (!version) return fail(ErrorCode::invalid, path + " names no NVIDIA kernel module");
  return *version;
}

Result<std::map<std::string, std::string>> nvidia_params(const Host& host) {
  auto text = host.files().read(std::string(kDirectory) + "params");
  if (!text && text.error().code == ErrorCode::not_found) {
    if (auto older = host.files().read(std::string(kDirectory) + "registry")) text = std::move(older);
  }
  std::map<std::string, std::string> params;
  for (auto& [name, value] : fields_of(TRY(std::move(text))))
    params["NVreg_" + (name == kShownAs ? std::string(kOption) : name)] = std::move(value);
  return params;
}

}  // namespace p2pd
