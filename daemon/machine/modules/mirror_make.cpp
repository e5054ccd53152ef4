// SPDX-License-Identifier: MIT
#include "machine/modules/mirror_make.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.hpp"
#include "machine/catalogue/patched_source.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/module_build.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kManifestLimit = 4U << 20;       // bytes
constexpr std::chrono::minutes kPackDeadline{10};      // of one source
constexpr std::chrono::minutes kCopyDeadline{30};      // of one file
constexpr auto kReadable = static_cast<mode_t>(0644);  // a web server reads it

/// Writes the files of one mirror.
class MirrorMaker {
 public:
  MirrorMaker(const Host& machine, Host& here, const MirrorOrder& order)
      : machine_(machine), here_(here), order_(order) {}

  /// Makes the directory if it is missing; refuses one in which others could put links in the way.
  Result<void> open() {
    if (!here_.files().exists(order_.directory)) TRY(here_.make_directory(order_.directory));
    const auto info = TRY(here_.files().stat(order_.directory));
    if (S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
    return fail(ErrorCode::denied, order_.directory + " is not a directory that you alone can write to",
                "Name a directory of your own, with mode 0755.");
  }

  Result<void> skip(const std::string& what, const Error& error) {
    made_.skipped.push_back(what + ": " + error.message);
    return {};
  }

  /// Lets `write` make the file beside `path`, and renames it if its content is new. `sha256` may be empty.
  Result<void> put(const std::string& path, const std::string& sha256,
                   const std::function<Result<void>(const std::string& file)>& write) {
    const std::string file = order_.directory + "/" + path, beside = unfinished(file);
    const auto before = sha256_of_file(here_, file);
    std::string sum = before.value_or("");
    if (!before || sha256.empty() || sum != sha256) {
      TRY(here_.make_directory(file.substr(0, file.rfind('/'))));
      TRY(here_.remove_tree(beside));
      TRY_IN(path, write(beside));
      sum = TRY(sha256_of_file(here_, beside));
      if (!sha256.empty() && sum != sha256)
        return fail(ErrorCode::invalid, fmt::format("{} changed while it was copied", path), "Try again.");
      if (before && *before == sum) {
        TRY(here_.remove_tree(beside));
      } else {
        if (::chmod(beside.c_str(), kReadable) != 0) return fail_errno(beside);
        TRY(here_.move(beside, file));
        made_.written.push_back(path);
      }
    }
    const auto bytes = static_cast<std::uint64_t>(TRY(here_.files().stat(file)).st_size);
    made_.manifest.files[path] = {bytes, std::move(sum)};
    return {};
  }

  Result<void> put_text(const std::string& path, const std::string& text) {
    return put(path, sha256_of(text), [&](const std::string& file) -> Result<void> {
      TRY(here_.create(file, text));
      return {};
    });
  }

  /// Copies a file of the machine.
  Result<void> put_copy(const std::string& path, const std::string& from, const std::string& sha256) {
    const std::string source = TRY(machine_.files().real_path(from));
    return put(path, sha256, [&](const std::string& file) -> Result<void> {
      TRY(here_.run(
          {.argv = {"cp", "--no-dereference", "--reflink=auto", "--", source, file}, .deadline = kCopyDeadline}));
      return {};
    });
  }

  /// Packs a directory of the machine; equal trees make equal archives.
  Result<void> put_archive(const std::string& path, const std::string& from) {
    const std::string source = TRY(machine_.files().real_path(from));
    return put(path, "", [&](const std::string& file) -> Result<void> {
      TRY(here_.run(
          {.argv = {"tar", "--create", "--gzip", "--format=gnu", "--sort=name", "--mtime=@0", "--owner=0", "--group=0",
                    "--numeric-owner", "--mode=u=rwX,go=rX", "--file=" + file, "--directory=" + source, "."},
           .deadline = kPackDeadline}));
      return {};
    });
  }

  Result<MirrorMade> finish() {
    if (made_.manifest.files.empty())
      return fail(ErrorCode::not_found, fmt::format("{} has no sound build, source or runfile", kCache),
                  "\"sudo p2pctl apply\" fetches and builds them; make the mirror after it.");
    TRY(keep_listed());
    made_.manifest.made = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    made_.manifest.valid_until = made_.manifest.made + order_.valid;
    const std::string file = order_.directory + std::string(kMirrorManifest), beside = unfinished(file);
    TRY(here_.create(beside, TRY(signed_manifest(made_.manifest, order_.key))));
    TRY(here_.move(beside, file));
    return std::move(made_);
  }

 private:
  /// Adds the files of the present manifest that are unchanged, if this key signed it.
  Result<void> keep_listed() {
    const auto text = here_.files().read(order_.directory + std::string(kMirrorManifest), kManifestLimit);
    if (!text) return {};
    const KeyFile key = TRY(public_key_of(order_.key));
    const auto before = read_manifest(*text, {key});
    if (!before) return skip("the present manifest", before.error());
    for (const auto& [path, file] : before->files) {
      if (made_.manifest.files.contains(path)) continue;
      const auto sum = sha256_of_file(here_, order_.directory + "/" + path);
      if (sum && *sum == file.sha256) made_.manifest.files.emplace(path, file);
    }
    return {};
  }

  const Host& machine_;
  Host& here_;
  const MirrorOrder& order_;
  MirrorMade made_;
};

/// Build of a directory of the cache, as its record describes it; an Error unless it is valid.
Result<nlohmann::json> sound_build(const Host& machine, ModuleBuild& build) {
  const std::string path = build.directory + std::string(kBuildRecord);
  const auto record = parse_json(TRY(machine.files().read(path, kBuildRecordLimit)));
  build.made_of = record.is_object() ? record.value("made_of", nlohmann::json()) : nlohmann::json();
  for (const char* key : {"kernel", "release"})
    if (!build.made_of.is_object() || !build.made_of.contains(key) || !build.made_of[key].is_string())
      return fail(ErrorCode::invalid, path + " is not the record of a build");
  build.target.release = build.made_of["kernel"];
  if (!build.directory.ends_with(fmt::format("-{}-{:.12}", build.target.release, sha256_of(build.made_of.dump()))))
    return fail(ErrorCode::invalid, path + " is the record of another build");
  return check_build(machine, build);
}

Result<void> add_build(MirrorMaker& maker, const Host& machine, const std::string& name) {
  ModuleBuild build;
  build.directory = fmt::format("{}/{}", kBuilds, name);
  const auto record = sound_build(machine, build);
  if (!record) return maker.skip(build.directory, record.error());
  const std::string at = mirrored_build(build);
  for (const auto& [module, its] : record->at("modules").items())
    TRY(maker.put_copy(fmt::format("{}{}.ko", at, module), build.module_file(module), its.at("sha256")));
  nlohmann::json told = *record;
  told.erase("mirror");  // the mirror that this machine used is not published
  return maker.put_text(at + std::string(kBuildRecord.substr(1)), told.dump(1) + "\n");
}

Result<void> add_source(MirrorMaker& maker, const Host& machine, const CatalogueEntry& entry) {
  auto sound = check_source(machine, entry);
  if (sound && !machine.files().exists(source_patch_of(entry))) sound = fail(ErrorCode::not_found, "it has no patch");
  if (!sound) return maker.skip(source_of(entry), sound.error());
  const std::string at = mirrored_source(entry);
  TRY(maker.put_copy(at + ".json", source_record_of(entry), ""));
  TRY(maker.put_copy(at + ".patch", source_patch_of(entry), ""));
  return maker.put_archive(at + ".tar.gz", source_of(entry));
}

/// Adds a runfile at its path on NVIDIA's hosts, with its sum beside it.
Result<void> add_runfile(MirrorMaker& maker, const Host& machine, const CatalogueEntry& entry) {
  const std::string file = runfile_of(entry), path = entry.runfile_path.substr(1);
  const std::string sum = TRY(sha256_of_file(machine, file));
  if (sum != entry.runfile_sha256)
    return maker.skip(file, {ErrorCode::invalid, "its SHA-256 is not the pinned one", {}});
  TRY(maker.put_copy(path, file, sum));
  return maker.put_text(path + ".sha256sum", fmt::format("{}  {}\n", sum, path.substr(path.rfind('/') + 1)));
}

}  // namespace

Result<MirrorMade> make_mirror(const Host& machine, const Catalogue& all, Host& here, const MirrorOrder& order) {
  TRY(public_key_of(order.key));  // before anything is written
  MirrorMaker maker(machine, here, order);
  TRY(maker.open());
  for (const std::string& name : machine.names(kBuilds))
    if (!is_unfinished(name)) TRY(add_build(maker, machine, name));
  std::vector<std::string> done;  // grafts and forks share runfiles
  const auto is_new = [&](const std::string& file) {
    if (std::ranges::find(done, file) != done.end() || !machine.files().exists(file)) return false;
    done.push_back(file);
    return true;
  };
  for (const CatalogueEntry& entry : all.entries) {
    if (!entry.lacks.empty()) continue;
    if (is_new(source_of(entry))) TRY(add_source(maker, machine, entry));
    if (!entry.runfile_sha256.empty() && is_new(runfile_of(entry))) TRY(add_runfile(maker, machine, entry));
  }
  return maker.finish();
}

}  // namespace p2pd
