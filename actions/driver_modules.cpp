// SPDX-License-Identifier: MIT
// driver-modules: installs the built modules for every kernel that can boot, through DKMS or beside it.
// DKMS gets a package and a source of ours and takes the modules that are built already; it builds them for later
// kernels, where they fit. Until P2P is proven modprobe.d bans them: `blacklist` for devices, `install` by name, which
// nvidia-modprobe (setuid), container runtimes and exporters use. A module of another origin that would win over ours is
// put aside where nobody owns it, else named. Modules of an earlier run are kept in an archive, and undo brings them back.
// Writes /usr/src/p2pd-nvidia-VERSION, /var/lib/dkms, updates/ and modules.* of each kernel,
// modprobe.d/00-p2pd-trial.conf. Reference: dkms(8), depmod.d(5), modprobe.d(5);
// Documentation/admin-guide/module-signing.rst of Linux.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/action.hpp"
#include "base/driver/gpu_services.hpp"
#include "base/driver/patched_source.hpp"
#include "base/driver/staging.hpp"
#include "base/log.hpp"
#include "base/modules/modprobe_d.hpp"
#include "base/modules/module_file.hpp"
#include "base/modules/module_install.hpp"
#include "base/modules/module_signing.hpp"
#include "base/modules/torn_dkms.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter, kByParameter};
constexpr std::uint64_t kSourceBytes = std::uint64_t{1} << 30;    // source, and a build of it on its way
constexpr std::uint64_t kModuleBytes = std::uint64_t{256} << 20;  // of one kernel
constexpr std::chrono::hours kDeadline{1};
/// What DKMS signs with, and makes where it is not there.
constexpr std::string_view kKeys[] = {"/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub",
                                      "/var/lib/shim-signed/mok/MOK.priv", "/var/lib/shim-signed/mok/MOK.der"};

struct Wanted {
  Catalogue all;
  CatalogueEntry entry;
  std::vector<ModuleBuild> builds;
  bool dkms = true;
};

Result<Wanted> wanted(const Host& host, const Parameters& parameters) {
  Wanted out;
  out.all = TRY(catalogue(host));
  out.entry = TRY(staged_entry(out.all, parameters));
  out.builds = TRY(wanted_builds(host, out.all, out.entry));
  out.dkms = by_dkms(parameters);
  return out;
}

bool installed(const Host& host, const Wanted& what, const ModuleBuild& build) {
  const auto found = installed_modules(host, what.entry, build.target.release, what.dkms);
  return found && found->lacking.empty();
}

Command dkms(const CatalogueEntry& entry, std::string_view verb, const std::string& release) {
  Command command{{"dkms", std::string(verb), "-m", std::string(kDkmsName), "-v", entry.base_version, "-k", release}};
  if (verb == "install") command.argv.push_back("--force");  // else a module of the same version stays in its way
  command.environment["TMPDIR"] = kDkmsKept;
  command.deadline = kDeadline;
  return command;
}

std::string trial_ban() {
  std::string text = "# Written by p2pd: until P2P is proven, nothing but p2pd loads these.\n";
  for (const std::string_view module : kDriverModules)
    text += fmt::format("blacklist {0}\ninstall {0} /bin/false\n", kernel_name(module));  // '-' is '_' for libkmod
  return text;
}

/// Our source, complete or not there; DKMS forgets what it had of another one.
Result<void> lay_source(Host& host, const Wanted& what) {
  const std::string to = dkms_source(what.entry), conf = dkms_conf(what.entry);
  const std::string script = dkms_build_script(what.all, what.entry);
  std::string builds;
  for (const ModuleBuild& build : what.builds) builds += build.target.release + " " + build.directory + "\n";
  const auto holds = [&](const char* name, const std::string& text) {
    return host.files().read(to + name).value_or("") == text;
  };
  if (!holds("/dkms.conf", conf) || !holds("/p2pd-build", script)) {
    TRY(clear_modules(host));
    TRY(need_room(host, to, kSourceBytes));
    const std::string beside = TRY(make_unfinished(host, to));
    TRY(host.run({{"cp", "-a", "--reflink=auto", source_of(what.entry), beside + "/source"}, {}, {}, kDeadline}));
    for (const std::string& rule : what.entry.compat) {
      const std::string& header = what.all.compat_rules.at(rule).include;
      if (!header.empty()) TRY(host.create(beside + "/compat/" + header, TRY(compat_header(host, header))));
    }
    TRY(host.create(beside + "/p2pd-build", script));
    TRY(host.run({{"chmod", "755", beside + "/p2pd-build"}, {}, {}}));
    TRY(host.create(beside + "/dkms.conf", conf));
    TRY(host.move(beside, to));
  }
  TRY(host.create(to + "/builds", builds));
  return {};
}

Result<void> record(Host& host, const Wanted& what) {
  TRY(host.will_change(kDkmsTree, Restore::by_action));
  TRY(host.will_change(dkms_source(what.entry), Restore::by_action));
  for (const std::string_view key : kKeys)
    if (what.dkms && host.files().exists(key.substr(0, key.rfind('/')))) TRY(host.will_change(key));
  for (const ModuleBuild& build : what.builds) {
    const std::string place = module_directory(build.target.release) + "/";
    for (const std::string& file : depmod_files(build.target.release)) TRY(host.will_change(file, Restore::generated));
    if (!what.dkms) TRY(host.will_change(place + std::string(kOwnPlace), Restore::discarded));
    for (const std::string_view module : kDriverModules) {
      const std::string file = fmt::format("{}{}/{}.ko", place, kDkmsPlace, module);
      if (what.dkms && !host.files().exists(file)) TRY(host.will_change(file, Restore::discarded));
    }
  }
  return {};
}

Result<void> depmod(Host& host, const std::string& release) {
  TRY(host.run({{"depmod", release}, {}, {}, kDeadline}));
  return {};
}

Result<void> install_by_dkms(Host& host, const Wanted& what, const ModuleBuild& build) {
  const std::string& release = build.target.release;
  const std::string place = module_directory(release) + "/" + std::string(kDkmsPlace);
  TRY(host.make_directory(kDkmsKept));
  const std::string built = fmt::format("{}/{}/{}", kDkmsTree, what.entry.base_version, release);
  const bool begun = host.files().exists(built);
  TRY(forget_torn_dkms(host));
  if (host.files().exists(built)) TRY(host.run(dkms(what.entry, "remove", release)));
  TRY(host.discard(built));  // of a build that was killed DKMS knows nothing, and yet would not build there again
  for (const std::string_view module : kDriverModules)  // DKMS would write over a file of its name
    for (const std::string& file : module_copies(host, release, kernel_name(module)))
      if (file.starts_with(place) && host.files().exists(file))  // what a killed DKMS had laid there is ours
        TRY(begun ? host.discard(file) : put_aside(host, release, file));
  TRY(host.run(dkms(what.entry, "install", release)));
  return {};
}

Result<void> install_beside(Host& host, const ModuleBuild& build) {
  const std::string place = module_directory(build.target.release) + "/" + std::string(kOwnPlace);
  const std::string beside = TRY(make_unfinished(host, place));
  Command copy{{"cp", "--reflink=auto"}, {}, {}, kDeadline};
  for (const std::string_view module : kDriverModules) copy.argv.push_back(build.module_file(module));
  copy.argv.push_back(build.directory + std::string(kBuildRecord));  // what to compare with, when the build is gone
  copy.argv.push_back(beside);
  TRY(host.run(copy));
  TRY(sign_modules(host, build.target, beside));
  TRY(host.discard(place));
  TRY(host.move(beside, place));
  return depmod(host, build.target.release);
}

Result<void> install(Host& host, const Wanted& what, const ModuleBuild& build) {
  const std::string& release = build.target.release;
  TRY_IN("there is no build to install for " + release, check_build(host, build));
  TRY(need_room(host, module_directory(release) + "/x", kModuleBytes));
  log::info("installing the modules of {} for {}", what.entry.id, release);
  TRY(what.dkms ? install_by_dkms(host, what, build) : install_beside(host, build));
  for (const std::string& file : TRY(installed_modules(host, what.entry, release, what.dkms)).foreign) {
    TRY(put_aside(host, release, file));
    TRY(depmod(host, release));
  }
  return {};
}

Result<Description> describe(const Host& host, const Parameters& parameters) {
  const Wanted what = TRY(wanted(host, parameters));
  Description description;
  description.summary =
      fmt::format("install the modules of {} {}", what.entry.id, what.dkms ? "through DKMS" : "by hand");
  description.files.push_back({std::string(kTrialBan), FileState::Kind::regular, trial_ban()});
  if (what.dkms)
    description.files.push_back(
        {dkms_source(what.entry) + "/dkms.conf", FileState::Kind::regular, dkms_conf(what.entry)});
  for (const ModuleBuild& build : what.builds) {
    if (installed(host, what, build)) continue;
    const std::string& release = build.target.release;
    description.commands.push_back(what.dkms ? dkms(what.entry, "install", release).text()
                                             : fmt::format("cp {0}/*.ko {1}/{2}/ && depmod {3}", build.directory,
                                                           module_directory(release), kOwnPlace, release));
  }
  return description;
}

Result<void> apply(Host& host, const Parameters& parameters) {
  const Wanted what = TRY(wanted(host, parameters));
  if (std::ranges::all_of(what.builds, [&](const ModuleBuild& build) { return installed(host, what, build); }))
    return {};
  if (what.dkms && !host.has_program("dkms"))
    return fail(ErrorCode::not_found, "dkms is not installed",
                "apt-get install dkms; or give the step \"by: modules_install\".");
  TRY(keep_modules(host));
  TRY(host.write_own(kTrialBan, trial_ban()));
  TRY(record(host, what));
  if (what.dkms)
    TRY(lay_source(host, what));
  else if (host.files().exists(kDkmsTree))
    TRY(clear_modules(host));  // installed the other way before
  for (const ModuleBuild& build : what.builds)
    if (!installed(host, what, build)) TRY(install(host, what, build));
  return {};
}

/// The boot starts containers before p2pd loads the banned modules: those that want a GPU fail, and no runtime tries again.
Result<void> before_reboot(Host& host, const Parameters&) {
  if (!host.live()) return {};
  return note_services(host, TRY(gpu_users(host)).services);
}

Result<void> commit(Host& host, const Parameters&) { return host.remove(kTrialBan); }

Result<void> undo(Host& host, const Parameters&) { return undo_modules(host); }

}  // namespace

extern const Action kDriverModulesAction;
const Action kDriverModulesAction = {
    .id = "driver-modules",
    .does = "installs the entry's built modules for every kernel that can boot, through DKMS or beside it",
    .parameters = kParameters,
    .effect = Effect::live,
    .validate = validate_module_install,
    .describe = describe,
    .apply = apply,
    .before_reboot = before_reboot,
    .commit = commit,
    .undo = undo,
};

}  // namespace p2pd
