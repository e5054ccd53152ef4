// SPDX-License-Identifier: MIT
// driver-modules: installs the built modules for every kernel that can boot, through DKMS or in updates/p2pd.
// DKMS gets a package and a source of p2pd and the modules that are already built; it builds them for later kernels
// that they fit. If the driver's packages stay, so do their modules: p2pd's are in updates/p2pd, a link
// that DKMS does not follow, a depmod override gives them precedence, and hooks of the kernel's packages build them for
// later kernels. Until P2P is proven modprobe.d bans them: `blacklist` for devices, `install` by name. A module with
// precedence over them is moved aside if no package owns it, else reported. Modules of an earlier run are archived for
// undo. Reference: dkms(8), depmod.d(5), modprobe.d(5); Documentation/admin-guide/module-signing.rst of Linux.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/action.hpp"
#include "base/host.hpp"
#include "base/log.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/catalogue/patched_source.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/gpu_holders.hpp"
#include "machine/modules/dkms.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "machine/modules/module_build.hpp"
#include "machine/modules/module_file.hpp"
#include "machine/modules/module_install.hpp"

namespace p2pd {
namespace {

constexpr std::uint64_t kSourceBytes = std::uint64_t{1} << 30;  // source, and a build of it in progress
constexpr std::chrono::hours kDkmsDeadline{1};

/// DKMS command that does `verb` with p2pd's package of `entry` for kernel `release`.
Command dkms_command(const CatalogueEntry& entry, std::string_view verb, const std::string& release) {
  Command command{{"dkms", std::string(verb), "-m", std::string(kDkmsName), "-v", entry.base_version, "-k", release}};
  if (verb == "install") command.argv.push_back("--force");  // replaces a module of the same version
  command.environment["TMPDIR"] = kDkmsKept;
  command.deadline = kDkmsDeadline;
  return command;
}

/// Writes dkms_source() of `entry`, complete or not at all; removes another one from DKMS.
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

/// Makes DKMS install `build`, whose source is written.
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

constexpr Parameter kParameters[] = {kEntryParameter, kUserspaceParameter, kByParameter};
constexpr std::uint64_t kModuleBytes = std::uint64_t{256} << 20;  // for one kernel
/// Signing keys of DKMS, which makes them if they do not exist.
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

/// Packages may rename the module files; such a name gets no install line. modprobe would run it for a dependency: it
/// looks for a loaded module of that name, and the kernel has the module under NVIDIA's name.
std::string trial_ban(const Host& host) {
  std::string text = "# Written by p2pd: until P2P is proven, nothing but p2pd loads these.\n";
  const std::string base = installed_name(host, "nvidia").value_or("nvidia");
  for (const std::string_view module : kModuleNames) {
    text += fmt::format("blacklist {0}\ninstall {0} /bin/false\n", kernel_name(module));  // libkmod treats '-' as '_'
    if (base != "nvidia") text += fmt::format("blacklist {}\n", renamed(module, base));
  }
  return text;
}

Result<void> record(Host& host, const Wanted& what) {
  TRY(host.will_change(kDkmsTree, Restore::by_action));
  TRY(host.will_change(dkms_source(what.entry), Restore::by_action));
  for (const std::string_view key : kKeys)
    if (what.dkms && host.files().exists(key.substr(0, key.rfind('/')))) TRY(host.will_change(key));
  for (const ModuleBuild& build : what.builds) {
    const std::string place = module_directory(build.target.release) + "/";
    for (const std::string& file : depmod_files(build.target.release)) TRY(host.will_change(file, Restore::generated));
    if (!what.dkms)
      for (const std::string& path : {place + std::string(kOwnPlace), own_files(build.target.release)})
        TRY(host.will_change(path, Restore::discarded));
    for (const std::string_view module : kModuleNames) {
      const std::string file = fmt::format("{}{}/{}.ko", place, kDkmsPlace, module);
      if (what.dkms && !host.files().exists(file)) TRY(host.will_change(file, Restore::discarded));
    }
  }
  return {};
}

Result<void> put_aside_all(Host& host, const std::string& release, const std::vector<std::string>& files) {
  for (const std::string& file : files) TRY(put_aside(host, release, file));
  if (!files.empty()) TRY(host.run({{"depmod", release}, {}, {}, std::chrono::hours(1)}));
  return {};
}

/// Error if an override of another owner makes modprobe load a different module.
Result<void> refuse_overrides(const Host& host) {
  for (const std::string_view module : kModuleNames)
    if (const std::string line = TRY(overruling_override(host, TRY(name_here(host, module)))); !line.empty())
      return fail(ErrorCode::state, fmt::format("{} makes modprobe load a {} that is not p2pd's", line, module),
                  fmt::format("Remove that line of {}, then try again.", line.substr(0, line.find(':'))));
  return {};
}

/// Error if modprobe would still load another module.
Result<void> refuse_foreign(const std::vector<std::string>& files) {
  if (files.empty()) return {};
  return fail(ErrorCode::state, fmt::format("modprobe would load {}, not p2pd's module", files.front()),
              "Remove the setting of depmod that prefers it, see depmod.d(5).");
}

Result<void> install(Host& host, const Wanted& what, const ModuleBuild& build) {
  const std::string& release = build.target.release;
  TRY_IN("no build to install for " + release, check_build(host, build));
  TRY(need_room(host, module_directory(release) + "/x", kModuleBytes));
  log::info("installing the modules of {} for {}", what.entry.id, release);
  TRY(what.dkms ? install_by_dkms(host, what.entry, build) : install_in_own_place(host, build));
  const InstalledModules now = TRY(installed_modules(host, what.entry, release, what.dkms));
  return what.dkms ? put_aside_all(host, release, now.foreign) : refuse_foreign(now.foreign);
}

Result<Description> describe(const Host& host, const Parameters& parameters) {
  const Wanted what = TRY(wanted(host, parameters));
  Description description;
  description.summary = what.dkms ? "install modules by DKMS" : "install modules in updates/p2pd";
  description.files.push_back({std::string(kTrialBan), FileState::Kind::regular, trial_ban(host)});
  if (what.dkms)
    description.files.push_back(
        {dkms_source(what.entry) + "/dkms.conf", FileState::Kind::regular, dkms_conf(what.entry)});
  else
    for (PlaceFile& file : TRY(own_place_files(host)))
      description.files.push_back({std::move(file.path), FileState::Kind::regular, std::move(file.content)});
  for (const ModuleBuild& build : what.builds) {
    if (installed(host, what, build)) continue;
    const std::string& release = build.target.release;
    const std::string name = what.dkms ? "nvidia" : TRY(name_here(host, "nvidia"));
    description.commands.push_back(
        what.dkms ? dkms_command(what.entry, "install", release).text()
                  : fmt::format("cp {}/*.ko {} && depmod {}{}", build.directory, place_of(release, kOwnPlace), release,
                                name == "nvidia" ? "" : fmt::format("    # nvidia.ko as {}.ko", name)));
  }
  return description;
}

Result<void> install_all(Host& host, const Parameters& parameters, bool on_trial) {
  const Wanted what = TRY(wanted(host, parameters));
  const auto is_installed = [&](const ModuleBuild& build) { return installed(host, what, build); };
  const std::string lacking = what.dkms ? "" : TRY(missing_place_file(host));
  if (std::ranges::all_of(what.builds, is_installed) && lacking.empty()) return {};
  if (what.dkms && !host.has_program("dkms"))
    return fail(ErrorCode::not_found, "dkms is not installed",
                "apt-get install dkms; or give the step \"by: modules_install\".");
  if (!what.dkms) TRY(refuse_overrides(host));
  TRY(keep_modules(host));
  if (on_trial) TRY(host.write_own(kTrialBan, trial_ban(host)));
  TRY(record(host, what));
  if (what.dkms) {
    TRY(lay_dkms_source(host, what.all, what.entry, what.builds));
  } else {
    if (host.files().exists(kDkmsTree)) TRY(clear_modules(host));  // installed by DKMS before
    for (const PlaceFile& file : TRY(own_place_files(host))) TRY(host.write(file.path, file.content, file.mode));
  }
  for (const ModuleBuild& build : what.builds)
    if (!is_installed(build)) TRY(install(host, what, build));
  return {};
}

Result<void> apply(Host& host, const Parameters& parameters) { return install_all(host, parameters, true); }

Result<void> new_kernel(Host& host, const Parameters& parameters) { return install_all(host, parameters, false); }

/// Saves the services that use a GPU. The boot starts them before p2pd loads the banned modules: they fail, and no
/// runtime tries again.
Result<void> before_reboot(Host& host, const Parameters&) {
  if (!host.live()) return {};
  return note_services(host, TRY(gpu_users(host)).services);
}

Result<void> commit(Host& host, const Parameters&) { return host.remove(kTrialBan); }

Result<void> prepare_undo(Host& host, const Parameters&) { return prepare_undo_modules(host); }

Result<void> undo(Host& host, const Parameters&) { return undo_modules(host); }

}  // namespace

extern const Action kDriverModulesAction = {
    .id = "driver-modules",
    .topic = "modules",
    .does = "installs the entry's built modules for every kernel that can boot, through DKMS or in updates/p2pd",
    .parameters = kParameters,
    .validate = validate_module_install,
    .describe = describe,
    .apply = apply,
    .new_kernel = new_kernel,
    .before_reboot = before_reboot,
    .commit = commit,
    .prepare_undo = prepare_undo,
    .undo = undo,
};

}  // namespace p2pd
