// SPDX-License-Identifier: MIT
#include "machine/driver/runfile_install.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "machine/catalogue/catalogue.hpp"

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
  std::vector<std::string> out = {"--silent",
                                  "--no-kernel-modules",
                                  "--no-kernel-module-source",
                                  "--no-x-check",
                                  "--no-nouveau-check",
                                  "--no-check-for-alternate-installs",
                                  "--no-distro-scripts",
                                  "--log-file-name=" + log};
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

}  // namespace p2pd
