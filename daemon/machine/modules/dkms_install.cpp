// SPDX-License-Identifier: MIT
#include "machine/modules/dkms_install.hpp"

#include <fmt/format.h>

#include "machine/catalogue/patched_source.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/modprobe_files.hpp"
#include "machine/modules/module_file.hpp"
#include "machine/modules/module_install.hpp"
#include "machine/modules/torn_dkms.hpp"

namespace p2pd {
namespace {

constexpr std::uint64_t kSourceBytes = std::uint64_t{1} << 30;  // source, and a build of it in progress
constexpr std::chrono::hours kDkmsDeadline{1};

}  // namespace

Command dkms_command(const CatalogueEntry& entry, std::string_view verb, const std::string& release) {
  Command command{{"dkms", std::string(verb), "-m", std::string(kDkmsName), "-v", entry.base_version, "-k", release}};
  if (verb == "install") command.argv.push_back("--force");  // replaces a module of the same version
  command.environment["TMPDIR"] = kDkmsKept;
  command.deadline = kDkmsDeadline;
  return command;
}

Result<void> lay_dkms_source(Host& host, const Catalogue& all, const CatalogueEntry& entry,
                             const std::vector<ModuleBuild>& builds) {
  const std::string to = dkms_source(entry), conf = dkms_conf(entry);
  const std::string script = dkms_build_script(all, entry);
  std::string list;
  for (const ModuleBuild& build : builds) list += build.target.release + " " + build.directory + "\n";
  const auto holds = [&](const char* name, const std::string& text) {
    return host.files().read(to + name).value_or("") == text;
  };
  if (!holds("/dkms.conf", conf) || !holds("/p2pd-build", script)) {
    TRY(clear_modules(host));
    TRY(need_room(host, to, kSourceBytes));
    const std::string beside = TRY(make_unfinished(host, to));
    TRY(host.run({{"cp", "-a", "--reflink=auto", source_of(entry), beside + "/source"}, {}, {}, kDkmsDeadline}));
    for (const std::string& rule : entry.compat) {
      const std::string& header = all.compat_rules.at(rule).include;
      if (!header.empty()) TRY(host.create(beside + "/compat/" + header, TRY(compat_header(host, header))));
    }
    TRY(host.create(beside + "/p2pd-build", script));
    TRY(host.run({{"chmod", "755", beside + "/p2pd-build"}, {}, {}}));
    TRY(host.create(beside + "/dkms.conf", conf));
    TRY(host.move(beside, to));
  }
  TRY(host.create(to + "/builds", list));
  return {};
}

Result<void> install_by_dkms(Host& host, const CatalogueEntry& entry, const ModuleBuild& build) {
  const std::string& release = build.target.release;
  const std::string place = module_directory(release) + "/" + std::string(kDkmsPlace);
  TRY(host.make_directory(kDkmsKept));
  const std::string built = fmt::format("{}/{}/{}", kDkmsTree, entry.base_version, release);
  const bool begun = host.files().exists(built);
  TRY(forget_torn_dkms(host));
  if (host.files().exists(built)) TRY(host.run(dkms_command(entry, "remove", release)));
  TRY(host.remove_tree(built));  // DKMS does not know a build that was killed, and yet would not build there again
  for (const std::string_view module : kModuleNames)  // DKMS would overwrite a file of its name
    for (const std::string& file : module_copies(host, release, kernel_name(module)))
      if (file.starts_with(place) && host.files().exists(file))  // files of a killed DKMS are p2pd's
        TRY(begun ? host.remove_tree(file) : put_aside(host, release, file));
  TRY(host.run(dkms_command(entry, "install", release)));
  return {};
}

}  // namespace p2pd
