// SPDX-License-Identifier: MIT
#include "machine/driver/runfile_install.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/log.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/modules/dkms.hpp"
#include "machine/modules/module_file.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kManifestLimit = 16U << 20;  // limit in bytes; some hundred files take 50 KB
constexpr std::size_t kShownFiles = 3;
constexpr std::size_t kShownOfLog = 300;

/// Text in the line where the installer stopped, its meaning, and what to do about it.
struct Stop {
  std::string_view text, cause, next;
};
constexpr Stop kStops[] = {
    {"using a different installer", "packages of another driver are still installed",
     "Purge them; \"dpkg -S /usr/lib/nvidia/alternate-install-present\" names the one that refuses."},
    {"running an X server", "an X server runs", "Stop the display manager, then try again."},
    {"while Nouveau is loaded", "nouveau drives a GPU", "Blacklist nouveau, rebuild the initramfs and reboot."},
    {"skip the sanity checks", "a module of another NVIDIA driver is loaded", "Unload it or reboot, then try again."},
    {"No space left on device", "the disk is full", "Make room on / and /var, then try again."},
    {"Invalid commandline", "this version does not know a flag that it was given",
     "Report it with the log: the list of flags of p2pd does not fit this version."},
    {"must be run as root", "it did not run as root", "Run p2pd as root."},
    {"pre-install script failed", "a package's script refuses the installation",
     "See /usr/lib/nvidia/pre-install, and purge its package."},
};

bool is_stop(std::string_view line) {
  return line.find("(Answer: Abort installation)") != std::string_view::npos ||
         (line.starts_with("ERROR: ") && line.find("Installation has failed") == std::string_view::npos) ||
         line.find("No space left on device") != std::string_view::npos;
}

}  // namespace

Result<RunfileManifest> parse_runfile_manifest(std::string_view text) {
  std::istringstream lines{std::string(text)};
  RunfileManifest out;
  std::string line, detail;
  if (!std::getline(lines, out.version) || !parse_version(out.version))
    return fail(ErrorCode::invalid, "line 1: not a driver version");
  std::getline(lines, line);  // description for people
  for (int number = 3; std::getline(lines, line); number += 2) {
    const std::size_t colon = line.find(": ");
    const std::string kind = line.substr(0, std::min(colon, line.size()));
    const bool sound = colon != std::string::npos && line.substr(colon + 2).starts_with('/') && kind.size() < 9 &&
                       !kind.empty() && kind.find_first_not_of("0123456789") == std::string::npos;
    if (!sound || !std::getline(lines, detail))
      return fail(ErrorCode::invalid, fmt::format("line {}: not \"NUMBER: /PATH\" and a line about it", number));
    if (kind == "0") out.installed.push_back({line.substr(colon + 2), detail});
    if (kind == "1") out.installed.push_back({line.substr(colon + 2), {}});
    if (kind == "2" && std::getline(lines, detail))
      ++number;  // a link that was moved aside has a line with its owner, too
  }
  return out;
}

Result<std::optional<RunfileManifest>> runfile_manifest(const Host& host) {
  const std::string path = std::string(kInstalledByRunfile) + "/log";
  const auto text = host.files().read(path, kManifestLimit);
  if (!text && text.error().code == ErrorCode::not_found) return std::optional<RunfileManifest>();
  if (!text) return Failure(text.error());
  auto manifest = parse_runfile_manifest(*text);
  if (manifest) return std::optional(std::move(*manifest));
  return fail(manifest.error().code, path + ": " + manifest.error().message,
              "NVIDIA's uninstaller cannot read it either: install that driver's runfile once more, or move " +
                  std::string(kInstalledByRunfile) + " away.");
}

std::string lacking_userspace(const Host& host, const std::optional<RunfileManifest>& manifest,
                              const std::string& version) {
  if (!manifest) return "no runfile has installed a driver";
  if (manifest->version != version) return "a runfile has installed " + manifest->version;
  if (host.files().exists(kInstallerAtWork)) return "its installer was stopped before its end";
  std::vector<std::string> lacking;
  for (const std::string& name : {"libcuda.so." + version, "libnvidia-ml.so." + version, std::string("nvidia-smi")})
    if (std::ranges::none_of(manifest->installed, [&](const auto& one) { return one.path.ends_with("/" + name); }))
      lacking.push_back(name);
  for (const RunfileManifest::Installed& one : manifest->installed) {
    const bool there = one.target.empty() ? host.files().exists(one.path)
                                          : host.files().read_link(one.path).value_or("") == one.target;
    if (!there) lacking.push_back(one.path);
  }
  if (lacking.empty()) return {};
  const std::size_t more = lacking.size() - std::min(lacking.size(), kShownFiles);
  lacking.resize(lacking.size() - more);
  return fmt::format("{} {} not there{}", fmt::join(lacking, ", "), lacking.size() == 1 ? "is" : "are",
                     more == 0 ? "" : fmt::format(", nor {} more", more));
}

std::vector<std::string> installer_arguments(const std::string& version, const std::string& log) {
  std::vector<std::string> out = {"--silent",           "--no-kernel-modules", "--no-kernel-module-source",
                                  "--no-x-check",       "--no-nouveau-check",  "--no-check-for-alternate-installs",
                                  "--no-distro-scripts"};
  out.push_back("--log-file-name=" + log);
  // an unknown flag ends the installer: 535 has neither of these
  if (parse_version(version).value_or(Version()) >= Version{550})
    out.insert(out.end(), {"--skip-module-load", "--no-rebuild-initramfs"});
  return out;
}

Error installer_failure(std::string_view log) {
  std::string last;
  std::istringstream lines{std::string(log)};
  for (std::string line; std::getline(lines, line);) {
    if (!is_stop(line)) continue;
    for (const Stop& stop : kStops)
      if (line.find(stop.text) != std::string::npos)
        return {ErrorCode::command, std::string(stop.cause), std::string(stop.next)};
    if (last.empty()) last = line.substr(0, kShownOfLog);
  }
  if (last.empty()) return {ErrorCode::command, "its log does not say why", {}};
  return {ErrorCode::command, last, {}};
}

namespace {

constexpr std::string_view kInstallersDkms =
    "/var/lib/dkms/nvidia";  // name that the installer gives its modules in DKMS

bool is_there(const Host& host, const std::string& path) {
  return host.files().exists(path) || host.files().read_link(path).has_value();
}

Failure not_whole(const RunfileManifest& manifest, const std::string& why) {
  return fail(ErrorCode::state,
              fmt::format("the driver of the runfile {} cannot be backed up completely: {}", manifest.version, why),
              "Remove it yourself with \"nvidia-uninstall\", then try again: revert will not restore it.");
}

/// Adds the installer's notes and installed files.
void add_listed(const Host& host, const RunfileManifest& manifest, OlderRunfile& found) {
  found.paths.emplace_back(kInstalledByRunfile);
  for (const std::string& name : host.names(kInstalledByRunfile))
    found.paths.push_back(fmt::format("{}/{}", kInstalledByRunfile, name));
  std::istringstream folders(host.files().read(std::string(kInstalledByRunfile) + "/dirs").value_or(""));
  for (std::string line; std::getline(folders, line);)
    if (line.starts_with('/') && host.files().exists(line)) found.paths.push_back(line);
  for (const RunfileManifest::Installed& one : manifest.installed)
    if (is_there(host, one.path)) found.paths.push_back(one.path);
}

/// Adds the modules of one kernel that DKMS installed from `built`, "VERSION/RELEASE/ARCHITECTURE".
Result<void> add_modules(const Host& host, const RunfileManifest& manifest, const std::string& built,
                         OlderRunfile& found) {
  const std::size_t from = built.find('/') + 1;
  const std::string release = built.substr(from, built.find('/', from) - from);
  const std::string place = fmt::format("{}/{}", module_directory(release), kDkmsPlace);
  for (const std::string& name : host.names(fmt::format("{}/{}/module", kInstallersDkms, built))) {
    if (!host.files().exists(place + "/" + name))
      return not_whole(manifest, fmt::format("DKMS installed {} for {}, and {} has none", name, release, place));
    found.paths.push_back(place + "/" + name);
  }
  found.paths.push_back(place.substr(0, place.rfind('/')));
  found.paths.push_back(place);
  found.kernels.push_back(release);
  return {};
}

/// Adds what the installer gave to DKMS, whose modules are in no list of its own: its uninstaller makes DKMS remove
/// them all.
Result<void> add_dkms(const Host& host, const RunfileManifest& manifest, OlderRunfile& found) {
  const std::string records = fmt::format("{}/{}", kInstallersDkms, manifest.version);
  if (!host.files().exists(records)) return {};
  const std::string source = host.files().read_link(records + "/source").value_or("");
  if (!source.starts_with('/') || !host.files().exists(source + "/dkms.conf"))
    return not_whole(manifest, "DKMS has lost its source, " + (source.empty() ? records + "/source" : source));
  if (const std::string other = fmt::format("{}/original_module", kInstallersDkms); !host.names(other).empty())
    return not_whole(manifest, "DKMS keeps modules in " + other + " that it would put back");
  found.trees = {records, source};
  found.paths.emplace_back(kInstallersDkms);
  for (const std::string& name : host.names(kInstallersDkms)) {
    const std::string link = fmt::format("{}/{}", kInstallersDkms, name),
                      built = host.files().read_link(link).value_or("");
    if (!built.starts_with(manifest.version + "/")) continue;
    found.paths.push_back(link);
    TRY(add_modules(host, manifest, built, found));
  }
  return {};
}

/// Adds releases that a listed file is a module of.
void add_kernels(OlderRunfile& found) {
  std::set<std::string> releases(found.kernels.begin(), found.kernels.end());
  for (const std::string& path : found.paths)
    if (const std::size_t at = path.find("/lib/modules/"); at != std::string::npos && at <= 4) {
      const std::string below = path.substr(path.find("modules/") + 8);
      releases.insert(below.substr(0, below.find('/')));
    }
  found.kernels.assign(releases.begin(), releases.end());
}

}  // namespace

Result<OlderRunfile> older_runfile(const Host& host, const RunfileManifest& manifest) {
  OlderRunfile found;
  add_listed(host, manifest, found);
  TRY(add_dkms(host, manifest, found));
  add_kernels(found);
  return found;
}

Result<void> pack_older_runfile(Host& host, const RunfileManifest& manifest, const std::string& tar) {
  const OlderRunfile all = TRY(older_runfile(host, manifest));
  for (const std::string& release : all.kernels)
    for (const std::string& file : depmod_files(release)) TRY(host.will_change(file, Restore::generated));
  TRY_IN("the driver of the runfile " + manifest.version + " cannot be kept for the rollback", pack(host, all, tar));
  return {};
}

Result<void> unpack_older_runfile(Host& host, const std::string& tar) {
  TRY_IN("the driver that was there before", unpack(host, tar));
  return run_due_depmods(host);
}

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
  Command search{.argv = {"dpkg-query", "--search", "--"}, .deadline = kDpkgDeadline};
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
  const Command find{.argv = {"find", "/usr", "/etc", "-xdev", "(", "-type", "f", "-o", "-type", "l", ")", "-cnewer",
                              std::string(kInstallerAtWork)},
                     .deadline = kDpkgDeadline};
  std::istringstream lines(TRY(host.output_of(find)));
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
