// SPDX-License-Identifier: MIT
// driver-userspace: installs the libraries and programs of the entry's version by NVIDIA's runfile, without modules.
// Runs a copy, in a folder of root, whose SHA-256 was compared with the catalogue's after the copy. The installer
// removes a driver of another runfile first: that is archived before, with its DKMS state, and undo unpacks it. A
// driver that could not be restored completely is not touched. Writes the files in /var/lib/nvidia/log,
// /etc/ld.so.cache and /var/log/p2pd; undo runs nvidia-uninstall. Reference: option_table.h and backup.c of NVIDIA
// nvidia-installer.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <sstream>

#include "base/action.hpp"
#include "base/kept_state.hpp"
#include "base/log.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/runfile_install.hpp"
#include "machine/modules/archive.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {kEntryParameter, kUserspaceParameter};
constexpr std::string_view kScratch = "/var/cache/p2pd/installer";  // the copy that runs, and its unpacked files
constexpr std::string_view kBefore =
    "/var/lib/p2pd/before-runfile";  // data for undo, by run; written before any file is removed
constexpr std::string_view kLoaderCache = "/etc/ld.so.cache";
constexpr std::string_view kUninstaller = "/usr/bin/nvidia-uninstall";
constexpr std::chrono::minutes kDeadline{30};
constexpr std::uint64_t kUnpacked = 5;  // approximate multiple of the size of the runfile

std::string log_of(std::string_view program, const std::string& version) {
  return fmt::format("{}/{}-{}.log", kLogs, program, version);
}

Command install_of(const CatalogueEntry& entry) {
  Command command{{"sh", std::string(kScratch) + "/" + entry.runfile_path.substr(entry.runfile_path.rfind('/') + 1)}};
  for (std::string& word : installer_arguments(entry.base_version, log_of("nvidia-installer", entry.base_version)))
    command.argv.push_back(std::move(word));
  command.environment["TMPDIR"] = kScratch;
  command.deadline = kDeadline;
  command.own_unit = true;
  return command;
}

/// Copies the staged runfile; Error unless the copy has the catalogue's SHA-256.
Result<void> copy_verified(Host& host, const CatalogueEntry& entry, const std::string& to) {
  const std::string staged = runfile_of(entry);
  if (!S_ISREG(TRY(host.files().stat(staged)).st_mode))
    return fail(ErrorCode::invalid, staged + " is not a regular file", "Remove it.");
  TRY(host.run({{"cp", "--reflink=auto", staged, to}, {}, {}, kDeadline}));
  if (TRY(sha256_of_file(host, to)) == entry.runfile_sha256) return {};
  return fail(ErrorCode::invalid, staged + " is not run: its SHA-256 differs from the catalogue's",
              "Remove it; the step that fetches it (driver-runfile) then fetches it again.");
}

/// Content of the runfile, unpacked below kScratch.
Result<std::string> unpacked_runfile(Host& host, const std::string& runfile) {
  std::string to = std::string(kScratch) + "/unpacked";
  TRY(host.run({{"sh", runfile, "--extract-only", "--target", to}, {}, {}, kDeadline}));
  return to;
}

/// Saves the data for undo: the complete driver of an earlier runfile, and last the new version.
Result<void> keep_before(Host& host, const CatalogueEntry& entry, const std::string& kept) {
  TRY(host.will_change(kInstalledByRunfile, Restore::by_action));
  if (host.files().exists(kept + "/coming")) return {};
  TRY(host.create(kept + "/ld.so.cache", host.files().read(kLoaderCache).value_or("")));
  if (const auto manifest = TRY(runfile_manifest(host)))
    TRY(pack_older_runfile(host, *manifest, fmt::format("{}/{}.tar", kept, manifest->version)));
  TRY(host.files().make_durable());
  TRY(host.create(kept + "/coming", entry.base_version));
  return {};
}

Result<void> run_installer(Host& host, const CatalogueEntry& entry) {
  const Command install = install_of(entry);
  const std::string log = log_of("nvidia-installer", entry.base_version);
  const std::string kept = TRY(begin_kept(host, kBefore));
  TRY(host.will_change(kScratch, Restore::discarded));
  TRY(host.remove_tree(kScratch));
  TRY(host.make_directory(kScratch));
  if (auto copied = copy_verified(host, entry, install.argv[1]); !copied) {
    TRY(host.remove_tree(kScratch));
    return copied;
  }
  if (!host.files().exists(kLogs)) TRY(host.will_change(kLogs));  // the log is for people: undo leaves it
  TRY(host.create(log));
  TRY(host.will_change(kLoaderCache, Restore::generated));
  TRY(keep_before(host, entry, kept));
  if (host.files().exists(kInstallerAtWork))
    TRY(clear_unnoted_files(host, TRY(unpacked_runfile(host, install.argv[1]))));
  else
    TRY(host.create(kInstallerAtWork));
  log::info("installing: {}", install.text());
  const auto done = host.run(install);
  if (!done && done.error().code == ErrorCode::interrupted)
    return Failure(done.error());  // the installer may still be running
  TRY(host.remove_tree(kScratch));
  if (done) {
    TRY(host.files().make_durable());  // the installed files survive a power cut before the mark is removed
    return host.remove_tree(kInstallerAtWork);
  }
  if (done.error().code != ErrorCode::command) return Failure(done.error());
  const Error why = installer_failure(host.files().read(log).value_or(""));
  return fail(ErrorCode::command, fmt::format("NVIDIA's installer of {} stopped: {}", entry.base_version, why.message),
              fmt::format("{}{}Full log: {}.", why.next, why.next.empty() ? "" : " ", log));
}

Result<Description> describe(const Host& host, const Parameters& parameters) {
  const CatalogueEntry entry = TRY(staged_userspace(TRY(catalogue(host)), parameters));
  Description description;
  if (keeps_packages(parameters)) return description;
  const auto manifest = TRY(runfile_manifest(host));
  description.summary = fmt::format("install the libraries of {}{} by NVIDIA's runfile", entry.base_version,
                                    entry.cuda.empty() ? "" : fmt::format(" (CUDA {})", entry.cuda));
  if (manifest && manifest->version != entry.base_version && !host.files().exists(kInstallerAtWork)) {
    const OlderRunfile older = TRY(older_runfile(host, *manifest));
    description.summary += fmt::format(
        ", which removes the driver of {}{}; it is saved for the rollback", manifest->version,
        older.trees.empty() ? "" : fmt::format(" and its modules in DKMS for {}", fmt::join(older.kernels, ", ")));
  }
  description.commands.push_back(install_of(entry).text());
  return description;
}

Result<void> apply(Host& host, const Parameters& parameters) {
  const CatalogueEntry entry = TRY(staged_userspace(TRY(catalogue(host)), parameters));
  if (keeps_packages(parameters))
    return fail(
        ErrorCode::state,
        fmt::format("the driver packages are no longer version {}; p2pd does not change them", entry.base_version),
        "Run \"sudo p2pctl apply\" again: it chooses a driver for the installed packages.");
  if (lacking_userspace(host, TRY(runfile_manifest(host)), entry.base_version).empty()) return {};
  TRY(need_room(host, kScratch, entry.runfile_bytes * (1 + kUnpacked)));
  TRY(need_room(host, "/usr/lib", entry.runfile_bytes * kUnpacked));
  return run_installer(host, entry);
}

std::string kept_uninstaller(const Host& host) {
  return kept_for_undo(host, kBefore) + "/nvidia-uninstall";  // it depends on its own name
}

/// Checks whether the runfile must uninstall. After a killed installer the uninstaller may not exist yet.
bool needs_runfile(const Host& host) {
  return host.files().exists(kInstallerAtWork) ||
         !(host.files().exists(kUninstaller) || host.files().exists(kept_uninstaller(host)));
}

/// Copy of the uninstaller, which removes itself too: after a kill it is needed again.
Result<std::string> keep_uninstaller(Host& host) {
  std::string kept = kept_uninstaller(host);
  if (!host.files().exists(kUninstaller) && host.files().exists(kept)) return kept;
  TRY(host.run({{"cp", "--dereference", "--preserve=mode", std::string(kUninstaller), kept + ".new"}, {}, {}}));
  TRY(host.move(kept + ".new", kept));
  return kept;
}

/// Command that uninstalls.
Result<std::vector<std::string>> uninstaller_of(Host& host, const Parameters& parameters) {
  if (!needs_runfile(host)) return std::vector<std::string>{TRY(keep_uninstaller(host))};
  const CatalogueEntry entry = TRY(staged_userspace(TRY(catalogue(host)), parameters));
  const std::string runfile = install_of(entry).argv[1];
  TRY(host.remove_tree(kScratch));
  TRY(host.make_directory(kScratch));
  TRY(copy_verified(host, entry, runfile));
  TRY(clear_unnoted_files(host, TRY(unpacked_runfile(host, runfile))));
  return std::vector<std::string>{"sh", runfile, "--uninstall"};
}

/// Runs the uninstaller, and reports files of `manifest` that it left because they were changed.
Result<void> uninstall(Host& host, const RunfileManifest& manifest, const Parameters& parameters) {
  Command command{TRY(uninstaller_of(host, parameters))};
  Command options = command;
  for (const char* word : {"--silent", "--skip-module-unload"}) command.argv.emplace_back(word);
  command.argv.push_back("--log-file-name=" + log_of("nvidia-uninstall", manifest.version));
  if (command.argv[0] == "sh") command.environment["TMPDIR"] = options.environment["TMPDIR"] = kScratch;
  command.deadline = kDeadline;
  command.own_unit = true;
  // depmod would change files that the kernel's own step has restored
  options.argv.emplace_back("--advanced-options");
  const auto known = host.run_readonly(options);
  if (known && known->output.find("--skip-depmod") != std::string::npos) command.argv.push_back("--skip-depmod");
  TRY_IN("the user space of " + manifest.version + " is not removed", host.run(command));
  for (const RunfileManifest::Installed& one : manifest.installed)
    if (host.files().exists(one.path)) log::warning("{} stays: it was changed since it was installed", one.path);
  return {};
}

Result<void> clear(Host& host) {
  TRY(host.remove_tree(kScratch));
  TRY(clear_kept(host, kBefore));
  (void)host.remove(kCache);  // the engine found it not empty; it stays if others still need it
  return {};
}

/// Checks that the user space can be removed, and an older one restored from its archive.
Result<void> prepare_undo(Host& host, const Parameters& parameters) {
  const std::string kept = kept_for_undo(host, kBefore);
  if (!host.files().exists(kept + "/coming")) return {};
  const std::string coming = TRY(host.line(kept + "/coming"));
  std::uint64_t older_bytes = 0;
  for (const std::string& name : host.names(kept))
    if (name.ends_with(".tar")) older_bytes += TRY(archive_bytes(host, kept + "/" + name));
  if (older_bytes > 0) TRY(need_room(host, "/usr/lib", older_bytes));
  const auto manifest = TRY(runfile_manifest(host));
  if (!manifest || manifest->version != coming || !needs_runfile(host)) return {};
  const CatalogueEntry entry = TRY(staged_userspace(TRY(catalogue(host)), parameters));
  const std::string runfile = runfile_of(entry);
  if (sha256_of_file(host, runfile).value_or("") != entry.runfile_sha256)
    return fail(ErrorCode::invalid,
                fmt::format("{}, which removes the user space of {}, is damaged or missing", runfile, coming),
                fmt::format("Put NVIDIA's runfile with the SHA-256 {} there, then try again.", entry.runfile_sha256));
  return need_room(host, kScratch, entry.runfile_bytes * (1 + kUnpacked));
}

Result<void> undo(Host& host, const Parameters& parameters) {
  const std::string kept = kept_for_undo(host, kBefore);
  const auto coming = host.line(kept + "/coming");
  if (!coming && coming.error().code == ErrorCode::not_found) return clear(host);
  if (!coming) return Failure(coming.error());
  const std::string cache = host.files().read(kept + "/ld.so.cache").value_or("");
  const std::string as_it_was = kept + "/ld.so.cache-returns";  // the engine has restored it
  if (!cache.empty() && cache == host.files().read(kLoaderCache).value_or("")) TRY(host.create(as_it_was));
  auto manifest = TRY(runfile_manifest(host));
  if (manifest && manifest->version == *coming) {
    TRY(uninstall(host, *manifest, parameters));
    manifest.reset();
  }
  for (const std::string& name : TRY(host.files().list(kept))) {
    if (!name.ends_with(".tar")) continue;
    if (manifest && manifest->version + ".tar" != name) {
      log::warning("the driver of the runfile {} stays: it was installed after the run", manifest->version);
      continue;
    }
    TRY(unpack_older_runfile(host, fmt::format("{}/{}", kept, name)));
  }
  if (host.files().exists(as_it_was)) {
    TRY(host.write(kLoaderCache, cache));  // the uninstaller regenerated it, with the same libraries in another order
  } else {
    TRY(host.run({{"ldconfig"}, {}, {}, kDeadline}));
  }
  TRY(host.remove_tree(kInstallerAtWork));
  TRY(host.remove_tree(kept + "/coming"));  // first: from now on undo only has to clean up
  return clear(host);
}

}  // namespace

extern const Action kDriverUserspaceAction = {
    .id = "driver-userspace",
    .topic = "libraries",
    .does = "installs the libraries and programs of the entry's version by NVIDIA's runfile, without modules",
    .parameters = kParameters,
    .validate = validate_staging,
    .describe = describe,
    .apply = apply,
    .prepare_undo = prepare_undo,
    .undo = undo,
};

}  // namespace p2pd
