// SPDX-License-Identifier: MIT
#include "machine/hardware/nvidia_procfs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <vector>

namespace p2pd {
namespace {

constexpr std::string_view kDirectory = "/proc/driver/nvidia/";

/// The one option that the driver shows by another name (NV_DEFINE_PARAMS_TABLE_ENTRY_CUSTOM_NAME in nv-reg.h, which is
/// the same in the tags 530.30.02 to 595.45.04).
constexpr std::string_view kShownAs = "RmProfilingAdminOnly";
constexpr const char* kOption = "RestrictProfilingToAdminUsers";

/// Checks for "570.86.16"; not "x86_64", "12.2.0)" nor "570."
bool is_version(const std::string& word) {
  return word.find_first_not_of(".0123456789") == word.npos && word.find('.') != word.npos && word.front() != '.' &&
         word.back() != '.';
}

/// Name and value of every line "Name: value", without blanks and tabs around both, and without quotes around the
/// value.
std::map<std::string, std::string> fields_of(const std::string& text) {
  const auto trimmed = [](const std::string& part) {
    constexpr const char* kBlank = " \t\v\f\r";
    const std::size_t begin = std::min(part.find_first_not_of(kBlank), part.size());
    return part.substr(begin, part.find_last_not_of(kBlank) + 1 - begin);
  };
  std::map<std::string, std::string> fields;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string value = trimmed(line.substr(colon + 1));
    if (value.size() > 1 && value.starts_with('"') && value.ends_with('"')) value = value.substr(1, value.size() - 2);
    fields[trimmed(line.substr(0, colon))] = value;
  }
  return fields;
}

}  // namespace

std::optional<NvidiaVersion> parse_nvidia_version(std::string_view text) {
  std::istringstream stream{std::string(text)};
  const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
  constexpr std::string_view kName[] = {"NVIDIA", "UNIX"};
  const auto name = std::search(words.begin(), words.end(), std::begin(kName), std::end(kName));
  const auto version = std::find_if(name, words.end(), is_version);
  if (version == words.end() || std::find(name, version, "GCC") != version) return std::nullopt;
  return NvidiaVersion{*version, std::find(name, version, "Open") != version};
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
    params["NVreg_" + (name == kShownAs ? kOption : name)] = std::move(value);
  return params;
}

std::string told_of_gpu(const Host& host, const std::string& address, const std::string& key) {
  return fields_of(host.files().read(fmt::format("{}gpus/{}/information", kDirectory, address)).value_or(""))[key];
}

}  // namespace p2pd
