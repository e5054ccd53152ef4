// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"

namespace p2pd {

/// Identity of one build of a kernel module, among others of the same version.
struct ModuleIdentity {
  std::string build_id;    ///< hexadecimal, of everything that is linked into the module; empty: none, or not known
  std::string srcversion;  ///< version of its sources, without prebuilt objects such as nv-kernel.o; empty: not known

  /// True if both have a build id.
  bool by_build_id(const ModuleIdentity& other) const { return !build_id.empty() && !other.build_id.empty(); }
  /// True for the same build: by build id if both have one, else by srcversion.
  bool is(const ModuleIdentity& other) const;
  /// Value that is() compares with that of `other`: "build id 3fa2b1c4d5e6...", "srcversion 84B123EB0FAF74499C606AB".
  std::string text(const ModuleIdentity& other) const;
};

/// Sentence for a person if the module loaded as `name` is not the installed one.
std::string not_installed_text(std::string_view name, const ModuleIdentity& loaded, const ModuleIdentity& installed);
/// Note on a comparison by srcversion.
inline constexpr std::string_view kWeakerSign = "the weaker sign: no build id is known";

/// Makes {"srcversion"}, and "build_id" if there is one.
nlohmann::json to_json(const ModuleIdentity& identity);

/// Build id of `bytes`, which begin with the notes of section .note.gnu.build-id; of several notes one after the
/// other, empty if there is none. Ignores bytes after the notes.
std::string parse_build_id(std::string_view bytes);

}  // namespace p2pd
