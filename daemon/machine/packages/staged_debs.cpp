// SPDX-License-Identifier: MIT
#include "machine/packages/staged_debs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/log.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/packages/apt.hpp"
#include "machine/packages/dpkg_status.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kArchives = "/var/cache/apt/archives";
constexpr std::string_view kDownloads = "/var/cache/p2pd/.debs.new";
constexpr std::string_view kInfo = "/var/lib/dpkg/info";
constexpr std::string_view kDiversions = "/var/lib/dpkg/diversions";
constexpr std::chrono::minutes kDownloadDeadline{30};
constexpr const char* kMembers[] = {"preinst",  "postinst", "prerm",   "postrm",   "config",
                                    "triggers", "shlibs",   "symbols", "templates"};

/// Name of a file in apt's cache, "libpci3_1%3a3.9.0-4_amd64.deb".
std::string cached_name(const DpkgPackage& package) {
  std::string version = package.version;
  for (std::size_t at = 0; (at = version.find(':', at)) != std::string::npos;) version.replace(at, 1, "%3a");
  return fmt::format("{}_{}_{}.deb", package.name, version, package.architecture);
}

std::string info_of(const Host& host, const DpkgPackage& package, std::string_view member) {
  const std::string qualified = fmt::format("{}/{}:{}.{}", kInfo, package.name, package.architecture, member);
  return host.files().exists(qualified) ? qualified : fmt::format("{}/{}.{}", kInfo, package.name, member);
}

/// SHA-256 of the .deb files by package id, if apt's lists have the installed versions.
Result<std::map<std::string, std::string>> listed_sums(const Host& host, const std::vector<DpkgPackage>& packages) {
  Command show{{"apt-cache", "show"}, {}, {}, kDownloadDeadline};
  for (const DpkgPackage& package : packages) show.argv.push_back(package.id() + "=" + package.version);
  const CommandResult shown =
      TRY(host.run_readonly(show));  // the status reports an unknown package; others are printed anyway
  std::map<std::string, std::string> sums;
  for (const Paragraph& one :
       TRY_IN("apt-cache show", parse_paragraphs(shown.output, {"package", "version", "architecture", "sha256"})))
    for (const DpkgPackage& package : packages)
      if (one.value("package") == package.name && one.value("version") == package.version &&
          one.value("architecture") == package.architecture && !one.value("sha256").empty())
        sums[package.id()] = one.value("sha256");
  return sums;
}

/// Checks that the .deb is the installed package: by its sum, or else by dpkg's sums of its files.
bool is_exact(const Host& host, const DpkgPackage& package, const std::string& deb, const std::string& sha256) {
  if (!host.files().exists(deb)) return false;
  if (!sha256.empty()) return sha256_of_file(host, deb).value_or("") == sha256;
  const auto about = host.output_of({{"dpkg-deb", "--field", deb, "Package", "Version", "Architecture"}, {}, {}});
  const auto sums = host.output_of({{"dpkg-deb", "--info", deb, "md5sums"}, {}, {}});
  const auto known = host.files().read(info_of(host, package, "md5sums"));
  return about && sums && known && *sums == *known &&
         *about == fmt::format("Package: {}\nVersion: {}\nArchitecture: {}\n", package.name, package.version,
                               package.architecture);
}

/// Files at the package's paths now, as arguments of tar; files that are missing on the disk are missing in the .deb.
Result<std::string> files_of(const Host& host, const DpkgPackage& package, std::vector<std::string>& moved) {
  const std::string diversions = host.files().read(kDiversions).value_or("");
  std::istringstream lines(TRY(host.files().read(info_of(host, package, "list"))));
  std::string files;
  for (std::string path; std::getline(lines, path);) {
    if (path.empty() || path == "/.") continue;
    const bool is_link = host.files().read_link(path).has_value();
    if (is_link && path.rfind('/') == 0)
      continue;  // /lib leads into /usr: the package has the files in it, not the link
    if (diverted(diversions, path, package.name) != path)
      moved.push_back(path);
    else if (is_link || host.files().exists(path))
      files += "." + path + '\0';
    else
      log::warning("{} of {} is not there", path, package.id());
  }
  return files;
}

/// Writes DEBIAN/ of the tree that becomes a .deb.
Result<void> lay_control(Host& host, const DpkgPackage& package, const std::string& tree) {
  const std::string status = TRY(dpkg_status_text(host));
  for (const Paragraph& one : TRY_IN(kDpkgStatus, parse_paragraphs(status, {"package", "architecture"})))
    if (one.value("package") == package.name && one.value("architecture") == package.architecture)
      TRY(host.create(tree + "/DEBIAN/control", control_of(one.text)));
  std::string conffiles;
  for (const std::string& path : package.conffiles)
    if (host.files().exists(tree + path)) conffiles += path + "\n";
  if (!conffiles.empty()) TRY(host.create(tree + "/DEBIAN/conffiles", conffiles));
  for (const char* member : kMembers) {
    const std::string file = info_of(host, package, member);
    if (host.files().exists(file))
      TRY(host.run({{"cp", "--preserve=mode", file, fmt::format("{}/DEBIAN/{}", tree, member)}, {}, {}}));
  }
  return {};
}

Result<void> rebuild(Host& host, const DpkgPackage& package, const std::string& deb) {
  const std::string tree = deb + ".tree", tar = deb + ".tar";
  std::vector<std::string> moved;
  Command pack{{"tar", "--create", "--file=" + tar, "--directory=/", "--no-recursion", "--xattrs", "--null",
                "--verbatim-files-from", "--files-from=-"},
               {},
               {},
               kDownloadDeadline};
  pack.input = TRY(files_of(host, package, moved));
  TRY(host.make_directory(tree));
  if (!pack.input.empty()) {
    TRY(host.run(pack));
    TRY(host.run({{"tar", "--extract", "--file=" + tar, "--directory=" + tree, "--xattrs", "--same-owner",
                   "--preserve-permissions"},
                  {},
                  {},
                  kDownloadDeadline}));
    TRY(host.remove_tree(tar));
  }
  const std::string diversions = host.files().read(kDiversions).value_or("");
  for (const std::string& path : moved)
    TRY(host.run({{"cp", "--archive", diverted(diversions, path, package.name), tree + path}, {}, {}}));
  TRY(lay_control(host, package, tree));
  TRY(host.run({{"dpkg-deb", "-Zgzip", "-z1", "--build", tree, deb}, {}, {}, kDownloadDeadline}));
  return host.remove_tree(tree);
}

/// Downloads packages whose installed version is in apt's lists; without network, none. apt does so as its user _apt,
/// which cannot enter root's folder: it gets one of its own. Root's copies are checked, which _apt cannot change.
Result<void> download(Host& host, const std::vector<std::string>& wanted, const std::string& directory) {
  if (wanted.empty()) return {};
  TRY(host.will_change(kDownloads, Restore::discarded));
  TRY(host.remove_tree(kDownloads));
  TRY(host.make_directory(kDownloads));
  TRY(host.run({{"chown", "_apt", std::string(kDownloads)}}));
  Command get = apt_get({"download"});
  get.argv.insert(get.argv.begin(), {"env", fmt::format("--chdir={}", kDownloads)});
  get.argv.insert(get.argv.end(), wanted.begin(), wanted.end());
  get.deadline = kDownloadDeadline;
  log::info("downloading {} packages: {}", wanted.size(), fmt::join(wanted, " "));
  const auto got = host.run(get);
  if (!got && got.error().code != ErrorCode::command) return Failure(got.error());
  if (!got) log::warning("not all packages can be downloaded: {}", got.error().message);
  Command copy{{"cp", "--no-dereference", "--reflink=auto", "--"}, {}, {}, kDownloadDeadline};
  for (const std::string& name : TRY(host.files().list(kDownloads)))
    if (name.ends_with(".deb")) copy.argv.push_back(fmt::format("{}/{}", kDownloads, name));
  const bool any = copy.argv.back() != "--";
  copy.argv.push_back(directory);
  if (any) TRY(host.run(copy));
  return host.remove_tree(kDownloads);
}

}  // namespace

std::string control_of(std::string_view paragraph) {
  std::string control;
  bool dropped = false;
  std::istringstream lines{std::string(paragraph)};
  for (std::string line; std::getline(lines, line);) {
    const bool goes_on = line.starts_with(' ') || line.starts_with('\t');
    if (!goes_on) {
      dropped = false;
      for (const char* field : {"Status:", "Conffiles:", "Config-Version:", "Triggers-Pending:", "Triggers-Awaited:"})
        dropped |= line.starts_with(field);
    }
    if (!dropped) control += line + "\n";
  }
  return control;
}

std::string diverted(std::string_view diversions, const std::string& path, const std::string& package) {
  std::istringstream lines{std::string(diversions)};  // three lines each: from, to, package
  for (std::string from, to, by; std::getline(lines, from) && std::getline(lines, to) && std::getline(lines, by);)
    if (from == path && by != package) return to;
  return path;
}

Result<void> fetch_again(Host& host, const std::vector<LostDeb>& lost, const std::string& directory) {
  std::vector<DpkgPackage> packages;
  for (const LostDeb& one : lost) packages.push_back(one.package);
  const auto listed = TRY(listed_sums(host, packages));
  const std::string scratch = unfinished(directory);
  TRY(host.remove_tree(scratch));
  TRY(host.make_directory(directory));
  TRY(host.make_directory(scratch));
  const auto is_at = [&](const std::string& place, const LostDeb& one) {
    return sha256_of_file(host, place + "/" + cached_name(one.package)).value_or("") == one.sha256;
  };
  std::vector<std::string> wanted;
  for (const LostDeb& one : lost) {
    const std::string id = one.package.id(), cache(kArchives);
    const auto sum = listed.find(id);
    if (is_at(cache, one))
      TRY(host.run(
          {{"cp", "--reflink=auto", cache + "/" + cached_name(one.package), scratch}, {}, {}, kDownloadDeadline}));
    else if (sum != listed.end() && sum->second == one.sha256)
      wanted.push_back(id + "=" + one.package.version);
  }
  TRY(download(host, wanted, scratch));
  for (const LostDeb& one : lost)
    if (const std::string name = "/" + cached_name(one.package); is_at(scratch, one))
      TRY(host.move(scratch + name, directory + name));
  return host.remove_tree(scratch);
}

Result<std::vector<StagedDeb>> stage_debs(Host& host, const std::vector<DpkgPackage>& packages,
                                          const std::string& directory) {
  TRY(host.make_directory(directory));
  auto sums = TRY(listed_sums(host, packages));
  std::map<std::string, std::string> from;  // sources by package id
  std::vector<std::string> wanted;
  for (const DpkgPackage& package : packages) {
    const std::string cached = fmt::format("{}/{}", kArchives, cached_name(package));
    if (is_exact(host, package, cached, sums[package.id()])) {
      TRY(host.run({{"cp", "--reflink=auto", cached, directory}, {}, {}, kDownloadDeadline}));
      from[package.id()] = "cache";
    } else if (!sums[package.id()].empty()) {
      wanted.push_back(package.id() + "=" + package.version);
    }
  }
  TRY(download(host, wanted, directory));
  std::vector<StagedDeb> staged;
  for (const DpkgPackage& package : packages) {
    const std::string deb = directory + "/" + cached_name(package), sum = sums[package.id()];
    std::string& origin = from[package.id()];
    if (origin.empty() && !sum.empty() && is_exact(host, package, deb, sum)) origin = "archive";
    if (origin.empty()) {
      TRY(host.remove_tree(deb));
      TRY_IN(package.id() + " can neither be fetched nor built again", rebuild(host, package, deb));
      origin = "rebuilt";
    }
    staged.push_back({cached_name(package), origin});
  }
  return staged;
}

}  // namespace p2pd
