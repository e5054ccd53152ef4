// SPDX-License-Identifier: MIT
// initramfs: makes the initramfs of each kernel anew where it differs from modprobe.d about the driver.
// The old image is kept beside, however big, and put back by undo to the byte; where somebody made the image anew
// since, undo makes it anew, too. Commit does the same as apply: where the modules are in the image, the blacklist of the
// trial, which is lifted by then, has to leave it.
// Writes /boot/initrd.img-RELEASE, by update-initramfs or dracut; keeps the old one in /var/lib/p2pd/initramfs.
// Reference: update-initramfs(8), dracut(8).
#include <fmt/format.h>

#include <sstream>

#include "base/action.hpp"
#include "base/kept_state.hpp"
#include "base/log.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/initramfs.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kKept = "/var/lib/p2pd/initramfs";  // by run: RELEASE, the image before; RELEASE.ours: see note()
constexpr std::chrono::minutes kDeadline{10};

/// Remembers which image that was, and what was made of it: its path, then its SHA-256, or nothing while it is made.
Result<void> note(Host& host, const Initramfs& one, const std::string& kept, const std::string& sum) {
  TRY(host.create(kept + ".ours", one.image + "\n" + sum + "\n"));
  return {};
}

Result<std::uint64_t> bytes_of(const Host& host, const std::string& path) {
  return static_cast<std::uint64_t>(TRY(host.files().stat(path)).st_size);
}

/// Keeps the image as it was before this run made it anew.
Result<void> keep(Host& host, const Initramfs& one, const std::string& kept) {
  const std::string beside = unfinished(kept);
  TRY(host.will_change(one.image, Restore::by_action));
  TRY(note(host, one, kept, ""));
  if (host.files().exists(kept)) return {};
  TRY(need_room(host, kept, TRY(bytes_of(host, one.image))));
  TRY(host.run({{"cp", "-a", "--reflink=auto", one.image, beside}, {}, {}, kDeadline}));
  return host.move(beside, kept);
}

Result<void> make_anew(Host& host, const Initramfs& one) {
  const std::string beside = unfinished(one.image), scratch = std::string(kKept) + "/.scratch";
  Command command = TRY(initramfs_command(host, one, beside));
  TRY(host.remove_tree(scratch));
  TRY(host.make_directory(scratch));
  command.environment["TMPDIR"] = scratch;  // what a killed mkinitramfs leaves goes with it
  TRY(need_room(host, one.image, TRY(bytes_of(host, one.image)) + kInitramfsGrowth));  // the old one stays until the new is there
  log::info("making {} anew: {}", one.image, command.text());
  const auto made = host.run(command);
  TRY(host.remove_tree(scratch));
  if (!made) {
    TRY(host.remove_tree(beside));
    return Failure(made.error());
  }
  if (host.files().exists(beside)) TRY(host.move(beside, one.image));
  return host.files().checkpoint("/boot");  // GRUB reads it without the journal
}

Result<Description> describe(const Host& host, const Parameters&) {
  Description description;
  description.summary = "rebuild each initramfs that differs from modprobe.d";
  for (const Initramfs& one : TRY(initramfs_images(host)))
    if (!TRY(stale_initramfs(host, one)).empty())
      description.commands.push_back(TRY(initramfs_command(host, one, unfinished(one.image))).text());
  return description;
}

Result<void> apply(Host& host, const Parameters&) {
  for (const Initramfs& one : TRY(initramfs_images(host))) {
    if (TRY(stale_initramfs(host, one)).empty()) continue;
    const std::string kept = TRY(begin_kept(host, kKept)) + "/" + one.release;
    TRY(keep(host, one, kept));
    TRY(make_anew(host, one));
    TRY(note(host, one, kept, TRY(sha256_of_file(host, one.image))));
  }
  return {};
}

Result<void> put_back(Host& host, const std::string& release, const std::string& kept) {
  std::istringstream words(TRY(host.files().read(kept + ".ours")));
  Initramfs one{release, {}};
  std::string made;
  words >> one.image >> made;
  if (!host.files().exists("/boot/vmlinuz-" + release)) return {};  // that kernel is gone
  const auto now = sha256_of_file(host, one.image);
  if (now && !made.empty() && *now != made && *now != TRY(sha256_of_file(host, kept)))
    return make_anew(host, one);
  const std::string beside = unfinished(one.image);
  TRY(need_room(host, one.image, TRY(bytes_of(host, kept))));
  TRY(host.run({{"cp", "-a", "--reflink=auto", kept, beside}, {}, {}, kDeadline}));
  TRY(host.move(beside, one.image));
  return host.files().checkpoint("/boot");
}

Result<void> undo(Host& host, const Parameters&) {
  const std::string place = kept_for_undo(host, kKept);
  for (const std::string& name : host.names(place)) {
    const std::string kept = place + "/" + name;
    if (name.starts_with('.') || !host.files().exists(kept + ".ours")) continue;
    TRY_IN("the initramfs of " + name, put_back(host, name, kept));
    TRY(host.remove_tree(kept));
    TRY(host.remove_tree(kept + ".ours"));
  }
  return clear_kept(host, kKept);
}

}  // namespace

extern const Action kInitramfsAction;
const Action kInitramfsAction = {
    .id = "initramfs",
    .topic = "kernel",
    .does = "makes each initramfs anew that differs from modprobe.d about the driver",
    .effect = Effect::live,
    .describe = describe,
    .apply = apply,
    .commit = apply,
    .undo = undo,
};

}  // namespace p2pd
