// SPDX-License-Identifier: MIT
// p2pctl mirror make DIR: copies builds, sources and runfiles of this machine's cache into a directory, and signs the
// list of them. Machines that trust the key take them from there. Needs no service.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/command.hpp"
#include "base/units.hpp"
#include "ctl/verb.hpp"
#include "machine/modules/mirror_make.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kKeyLimit = 64U << 10;  // bytes
constexpr const char* kMakeKey =
    "\"openssl genpkey -algorithm ed25519 -out mirror.key\" makes one; \"openssl pkey -in mirror.key -pubout -out "
    "mirror.pub\" gives what the others trust.";

/// Reads the private key, which is for its owner alone.
Result<KeyFile> key_in(const Host& here, const std::string& name) {
  if (name.empty()) return fail(ErrorCode::invalid, "no key is named: --key FILE", kMakeKey);
  std::error_code error;
  const std::string file = fs::absolute(name, error).lexically_normal();
  const auto info = here.files().stat(file);
  if (!info && info.error().code == ErrorCode::not_found)
    return fail(ErrorCode::not_found, file + " does not exist", kMakeKey);
  if ((TRY(info).st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return fail(ErrorCode::denied, fmt::format("others than its owner can read {}", file), "chmod 600 " + file);
  const std::string text = TRY(here.files().read(file, kKeyLimit));
  return KeyFile{file, text};
}

int told(const Context& context, const std::string& directory, const MirrorMade& made) {
  std::uint64_t bytes = 0, written = 0;
  for (const auto& [path, file] : made.manifest.files) bytes += file.bytes;
  for (const std::string& path : made.written) written += made.manifest.files.at(path).bytes;
  const auto until =
      fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::chrono::system_clock::to_time_t(made.manifest.valid_until)));
  if (context.options.json) {
    print_json("p2pd.mirror-made/1", {{"path", directory},
                                      {"files", made.manifest.files.size()},
                                      {"bytes", bytes},
                                      {"written", made.written},
                                      {"bytes_written", written},
                                      {"skipped", made.skipped},
                                      {"valid_until", until}});
    return kDone;
  }
  for (const std::string& path : made.written)
    fmt::print("{} ({} bytes)\n", harmless(path), made.manifest.files.at(path).bytes);
  for (const std::string& reason : made.skipped) print_table({{paint(Colour::yellow, "left out"), reason}});
  fmt::print("{}: {} files, {} MiB, of which {} files, {} MiB are new; valid until {}\n", harmless(directory),
             made.manifest.files.size(), bytes / kMiB, made.written.size(), written / kMiB, until);
  return kDone;
}

}  // namespace

Result<int> make_mirror(const Context& context) {
  const int stop_fd = stop_signals();
  const Host machine = TRY(context.host(stop_fd));
  ProcessRunner own_runner("/", stop_fd);
  Host here(TRY(Root::open("/")), own_runner);
  std::error_code error;
  std::string directory = fs::absolute(context.options.directory, error).lexically_normal();
  if (directory.size() > 1 && directory.ends_with('/')) directory.pop_back();
  KeyFile key = TRY(key_in(here, context.options.key));
  const MirrorOrder order{directory, std::move(key), std::chrono::days(context.options.valid_days)};
  return told(context, directory, TRY(p2pd::make_mirror(machine, TRY(catalogue(machine)), here, order)));
}

}  // namespace p2pd::ctl
