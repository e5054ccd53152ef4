// SPDX-License-Identifier: MIT
#include "machine/driver/unnoted_files.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/log.hpp"
#include "machine/driver/runfile_install.hpp"

namespace p2pd {
namespace {

constexpr std::chrono::minutes kDpkgDeadline{10};

/// Content of a line of .manifest: a file of the runfile, or a link and its target, which is the line's last word.
struct Packed {
  std::string file, target;
};
using PackedByName = std::multimap<std::string, Packed>;

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Result<PackedByName> packed_files(const Host& host, const std::string& unpacked) {
  PackedByName packed;
  std::istringstream lines(TRY(host.files().read(unpacked + "/.manifest")));
  for (std::string line; std::getline(lines, line);) {
    const std::string file = line.substr(0, line.find(' '));
    packed.emplace(name_of(file), Packed{unpacked + "/" + file, line.substr(line.rfind(' ') + 1)});
  }
  return packed;
}

/// Checks that `path` has the bytes of `source`, or zeros and fewer of them: NVIDIA's installer makes a file of the
/// full size first, then copies into it.
bool is_copy_of(const Host& host, const std::string& path, const std::string& source) {
  const auto name = host.files().real_path(path), original_name = host.files().real_path(source);
  if (!name || !original_name) return false;
  std::ifstream copy(*name, std::ios::binary), original(*original_name, std::ios::binary);
  std::array<char, 65536> here, there;
  while (copy.read(here.data(), here.size()), copy.gcount() > 0) {
    original.read(there.data(), copy.gcount());
    if (original.gcount() < copy.gcount()) return false;
    for (std::size_t at = 0; at < static_cast<std::size_t>(copy.gcount()); ++at)
      if (here[at] != there[at] && here[at] != '\0') return false;
  }
  return copy.eof();
}

bool is_packed(const Host& host, const std::string& path, const PackedByName& packed) {
  const auto [first, last] = packed.equal_range(name_of(path));
  const auto target = host.files().read_link(path);
  return std::any_of(first, last, [&](const auto& one) {
    return target ? *target == one.second.target : is_copy_of(host, path, one.second.file);
  });
}

/// Paths that dpkg has on record; with a merged /usr, packages use either name.
Result<std::set<std::string>> paths_of_packages(const Host& host, const std::vector<std::string>& paths) {
  std::set<std::string> owned;
  if (paths.empty()) return owned;
  Command search{{"dpkg-query", "--search", "--"}, {}, {}, kDpkgDeadline};
  for (const std::string& path : paths) {
    search.argv.push_back(path);
    if (path.starts_with("/usr/")) search.argv.push_back(path.substr(4));
  }
  const CommandResult answer = TRY(host.run_readonly(search));
  if (answer.status > 1) TRY(require_success(search, answer));  // 1: a path of no package; others are printed anyway
  std::istringstream lines(answer.output);
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t at = line.find(": /"); at != std::string::npos) {
      const std::string path = line.substr(at + 2);
      owned.insert(path);
      if (!path.starts_with("/usr/")) owned.insert("/usr" + path);
    }
  return owned;
}

/// Paths with a name of the runfile that were changed since the installer began, and that it has not noted.
Result<std::vector<std::string>> changed_since(const Host& host, const PackedByName& packed) {
  std::set<std::string> noted;
  if (const auto manifest = TRY(runfile_manifest(host)))
    for (const RunfileManifest::Installed& one : manifest->installed)
      noted.insert((one.path.starts_with("/lib") ? "/usr" : "") + one.path);
  std::vector<std::string> paths;
  std::istringstream lines(TRY(host.output_of({{"find", "/usr", "/etc", "-xdev", "(", "-type", "f", "-o", "-type", "l",
                                                ")", "-cnewer", std::string(kInstallerAtWork)},
                                               {},
                                               {},
                                               kDpkgDeadline})));
  for (std::string path; std::getline(lines, path);)
    if (packed.contains(name_of(path)) && !noted.contains(path)) paths.push_back(std::move(path));
  return paths;
}

}  // namespace

Result<void> clear_unnoted_files(Host& host, const std::string& unpacked) {
  const PackedByName packed = TRY(packed_files(host, unpacked));
  const std::vector<std::string> paths = TRY(changed_since(host, packed));
  const std::set<std::string> owned = TRY(paths_of_packages(host, paths));
  for (const std::string& path : paths) {
    if (owned.contains(path) || !is_packed(host, path, packed)) continue;
    log::info("{} is removed: NVIDIA's installer was killed before it noted it", path);
    TRY(host.will_change(path, Restore::by_action));  // belongs to the runfile, like noted files
    TRY(host.remove_tree(path));
  }
  return host.remove_tree(unpacked);
}

}  // namespace p2pd
