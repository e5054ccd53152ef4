// SPDX-License-Identifier: MIT
#include "machine/packages/staged_debs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
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
std::string cached_name(const PackageVersion& package) {
  std::string version = package.version;
  for (std::size_t at = 0; (at = version.find(':', at)) != std::string::npos;) version.replace(at, 1, "%3a");
  return fmt::format("{}_{}_{}.deb", package.name, version, package.architecture);
}

std::string info_of(const Host& host, const PackageVersion& package, std::string_view member) {
  const std::string qualified = fmt::format("{}/{}:{}.{}", kInfo, package.name, package.architecture, member);
  return host.files().exists(qualified) ? qualified : fmt::format("{}/{}.{}", kInfo, package.name, member);
}

using Packages = std::vector<PackageVersion>;
using Sums = std::map<std::string, std::string>;  // SHA-256 by package id

/// SHA-256 of the .deb files whose versions apt's lists have.
Result<Sums> listed_sums(const Host& host, const Packages& packages) {
  Command show{{"apt-cache", "show"}, {}, {}, kDownloadDeadline};
  for (const PackageVersion& package : packages) show.argv.push_back(package.id() + "=" + package.version);
  const CommandResult shown =
      TRY(host.run_readonly(show));  // the status reports an unknown package; others are printed anyway
  Sums sums;
  for (const Paragraph& one :
       TRY_IN("apt-cache show", parse_paragraphs(shown.output, {"package", "version", "architecture", "sha256"}))) {
    const PackageVersion listed{one.value("package"), one.value("architecture"), one.value("version")};
    if (std::ranges::count(packages, listed) != 0 && !one.value("sha256").empty())
      sums[listed.id()] = one.value("sha256");
  }
  return sums;
}

/// Checks that the .deb is the installed package: by its sum, or else by dpkg's sums of its files.
bool is_exact(const Host& host, const PackageVersion& package, const std::string& deb, const std::string& sha256) {
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
  Command get = apt_get({"download"}, wanted);
  get.argv.insert(get.argv.begin(), {"env", fmt::format("--chdir={}", kDownloads)});
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

/// Copies the .deb of each package from apt's cache if `is_good`, or else downloads it if its sum is `listed`. Returns
/// the ids of those from the cache.
Result<std::set<std::string>> collect(
    Host& host, const Packages& packages, const Sums& listed, const std::string& directory,
    const std::function<bool(const PackageVersion&, const std::string& deb)>& is_good) {
  std::set<std::string> cached;
  std::vector<std::string> wanted;
  for (const PackageVersion& package : packages) {
    const std::string file = fmt::format("{}/{}", kArchives, cached_name(package));
    if (is_good(package, file)) {
      TRY(host.run({{"cp", "--reflink=auto", file, directory}, {}, {}, kDownloadDeadline}));
      cached.insert(package.id());
    } else if (listed.contains(package.id())) {
      wanted.push_back(package.id() + "=" + package.version);
    }
  }
  TRY(download(host, wanted, directory));
  return cached;
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

Result<void> fetch_again(Host& host, const std::vector<StagedDeb>& lost, const std::string& directory) {
  const Packages packages(lost.begin(), lost.end());
  Sums sums;
  for (const StagedDeb& one : lost) sums[one.id()] = one.sha256;
  Sums listed = TRY(listed_sums(host, packages));
  std::erase_if(listed, [&](const auto& row) { return sums.at(row.first) != row.second; });
  const std::string scratch = unfinished(directory);
  TRY(host.remove_tree(scratch));
  TRY(host.make_directory(directory));
  TRY(host.make_directory(scratch));
  const auto is_whole = [&](const PackageVersion& package, const std::string& deb) {
    return sha256_of_file(host, deb).value_or("") == sums.at(package.id());
  };
  TRY(collect(host, packages, listed, scratch, is_whole));
  for (const PackageVersion& package : packages)
    if (const std::string name = "/" + cached_name(package); is_whole(package, scratch + name))
      TRY(host.move(scratch + name, directory + name));
  return host.remove_tree(scratch);
}

Result<std::vector<StagedDeb>> stage_debs(Host& host, const DriverPackages& list, const std::string& directory) {
  Packages packages;
  for (const DriverPackages::Purged& one : list.purged) packages.push_back(one.package);
  TRY(host.make_directory(directory));
  Sums sums = TRY(listed_sums(host, packages));
  const auto is_good = [&](const PackageVersion& package, const std::string& deb) {
    const auto sum = sums.find(package.id());
    return is_exact(host, package, deb, sum == sums.end() ? "" : sum->second);
  };
  const std::set<std::string> cached = TRY(collect(host, packages, sums, directory, is_good));
  std::vector<StagedDeb> staged;
  for (const auto& [package, because, need, automatic] : list.purged) {
    StagedDeb one{package, cached_name(package), {}, "archive", automatic, package.held()};
    const std::string deb = directory + "/" + one.deb;
    if (cached.contains(one.id())) {
      one.from = "cache";
    } else if (!sums.contains(one.id()) || !is_good(one, deb)) {
      TRY(host.remove_tree(deb));
      TRY_IN(one.id() + " can neither be fetched nor built again", rebuild(host, package, deb));
      one.from = "rebuilt";
    }
    one.sha256 = TRY(sha256_of_file(host, deb));
    staged.push_back(std::move(one));
  }
  return staged;
}

}  // namespace p2pd
