// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.hpp"
#include "base/json.hpp"
#include "base/result.hpp"

namespace p2pd {

/// File names, without ".ko", of the modules of a driver.
inline constexpr std::array<std::string_view, 5> kModuleNames = {"nvidia", "nvidia-modeset", "nvidia-drm", "nvidia-uvm",
                                                                 "nvidia-peermem"};

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

/// Directory of the modules of kernel `release`.
std::string module_directory(std::string_view release);
/// Folder in that directory: "updates/dkms".
std::string place_of(std::string_view release, std::string_view place);

/// Module name ('_' for '-') to file, of every module in `release`'s modules.dep: the file that modprobe would load,
/// since depmod prefers updates/ and updates/dkms to kernel/.
Result<std::map<std::string, std::string>> modules_by_name(const Host& host, std::string_view release);

/// Runs depmod for each kernel without modules.dep, or whose modules.dep lists a missing module of the driver or in
/// updates/, or no driver module although one exists.
Result<void> run_due_depmods(Host& host);

/// Paths of the files that depmod makes.
std::vector<std::string> depmod_files(std::string_view release);

/// Name of the file that `modprobe NAME` loads: "nvidia", or "nvidia_current" if an install line of modprobe.d
/// says so, as Debian's do. ErrorCode::invalid: the install line does something else.
Result<std::string> installed_name(const Host& host, std::string_view name);
/// Name like that of nvidia: "nvidia_current_uvm" for nvidia-uvm beside nvidia_current.
std::string renamed(std::string_view module, std::string_view nvidia);

/// Finds every file of `release` for module `name` in the places where drivers are installed, the file of modules.dep
/// too.
std::vector<std::string> module_copies(const Host& host, std::string_view release, std::string_view name);

/// Build id and source version of each file. The latter, which a file must have, is read from the file, or by one
/// `modinfo` for all that are compressed.
Result<std::vector<ModuleIdentity>> module_identities(const Host& host, const std::vector<std::string>& files);

/// Build id of a module, compressed or not; empty if it has none, or it cannot be read.
std::string module_build_id(const Host& host, const std::string& file);

/// The .modinfo section of an uncompressed module, key to value; of a repeated key the first.
Result<std::map<std::string, std::string>> module_info(const Host& host, std::string_view file);

}  // namespace p2pd
