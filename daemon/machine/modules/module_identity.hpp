// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"

namespace p2pd {

/// What tells one build of a kernel module from another one of the same version.
struct ModuleIdentity {
  std::string build_id;    ///< hexadecimal, of all that is linked into the module; empty: none, or not known
  std::string srcversion;  ///< of its sources, without prebuilt objects such as nv-kernel.o; empty: not known

  /// True where both have a build id.
  bool by_build_id(const ModuleIdentity& other) const { return !build_id.empty() && !other.build_id.empty(); }
  /// True for the same build: by build id where both have one, else by srcversion.
  bool is(const ModuleIdentity& other) const;
  /// The sign that is() compares with that of `other`: "build id 3fa2b1c4d5e6...", "srcversion 84B123EB0FAF74499C606AB".
  std::string text(const ModuleIdentity& other) const;
};

/// The sentence for a person where what is loaded as `name` is() not what is installed.
std::string not_installed_text(std::string_view name, const ModuleIdentity& loaded, const ModuleIdentity& installed);
/// Said of a comparison by srcversion.
inline constexpr std::string_view kWeakerSign = "the weaker sign: no build id is known";

/// {"srcversion"}, and "build_id" where there is one.
nlohmann::json to_json(const ModuleIdentity& identity);

/// The build id of `bytes`, which begin with the notes of section .note.gnu.build-id; of several notes one after the
/// other, empty where there is none. What follows the notes is not looked at.
std::string parse_build_id(std::string_view bytes);

}  // namespace p2pd
