// SPDX-License-Identifier: MIT
// Compares builds of modules. Format: elf(5), "Notes"; ld(1), --build-id. `ld -r` keeps the notes of the objects that
// it links, and its own may follow them: all of them together are the build id.
#include "machine/modules/module_identity.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace p2pd {
namespace {

constexpr std::size_t kNotesLimit = 4096;  // bytes; a note of SHA-1 has 36
constexpr std::size_t kShownDigits = 12;
constexpr std::string_view kOwner{"GNU\0", 4};

}  // namespace

bool ModuleIdentity::is(const ModuleIdentity& other) const {
  if (by_build_id(other)) return build_id == other.build_id;
  return !srcversion.empty() && srcversion == other.srcversion;
}

std::string ModuleIdentity::text(const ModuleIdentity& other) const {
  if (!by_build_id(other)) return "srcversion " + srcversion;
  return fmt::format("build id {}{}", build_id.substr(0, kShownDigits), build_id.size() > kShownDigits ? "..." : "");
}

std::string not_installed_text(std::string_view name, const ModuleIdentity& loaded, const ModuleIdentity& installed) {
  return fmt::format("the loaded {} module is not the file that is installed: {} is loaded, {} is installed", name,
                     loaded.text(installed), installed.text(loaded));
}

nlohmann::json to_json(const ModuleIdentity& identity) {
  nlohmann::json json = {{"srcversion", identity.srcversion}};
  if (!identity.build_id.empty()) json["build_id"] = identity.build_id;
  return json;
}

std::string parse_build_id(std::string_view bytes) {
  bytes = bytes.substr(0, kNotesLimit);
  std::string id;
  Elf64_Nhdr note;
  while (bytes.size() >= sizeof note) {
    std::memcpy(&note, bytes.data(), sizeof note);
    bytes.remove_prefix(sizeof note);
    if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != kOwner.size() || !bytes.starts_with(kOwner)) break;
    bytes.remove_prefix(kOwner.size());
    if (note.n_descsz > bytes.size()) break;
    for (const char byte : bytes.substr(0, note.n_descsz))
      id += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    constexpr std::size_t kAlignment = 4;
    bytes.remove_prefix(std::min((note.n_descsz + kAlignment - 1) / kAlignment * kAlignment, bytes.size()));
  }
  return id;
}

}  // namespace p2pd
