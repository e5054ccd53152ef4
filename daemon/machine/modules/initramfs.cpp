// SPDX-License-Identifier: MIT
#include "machine/modules/initramfs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include "machine/boot/kernels.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "machine/modules/module_file.hpp"

namespace p2pd {
namespace {

// p2pd ignores a modprobe.d file without these words
constexpr std::string_view kWords[] = {"nvidia", "nouveau", "nova_core", "nova-core"};
constexpr std::chrono::minutes kListDeadline{5};
constexpr std::chrono::minutes kMakeDeadline{30};

/// Path in the image, "etc/modprobe.d/x.conf", of a path of the host; empty if no initramfs includes it.
std::string name_in_image(std::string_view path) {
  for (const std::string_view place : {"/etc/modprobe.d/", "/usr/lib/modprobe.d/", "/lib/modprobe.d/"})
    if (path.starts_with(place)) return std::string(path.substr(path.starts_with("/usr/") ? 5 : 1));
  return {};
}

/// Checks for a module of an NVIDIA driver, under any distribution's name; not for the kernel's own (nvidiafb,
/// nvidia-wmi-...).
bool is_driver_module(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  const std::size_t end = name.find(".ko");
  if (end == std::string_view::npos || path.find("modules/") == std::string_view::npos) return false;
  name = name.substr(0, end);
  return name == "nvidia" || name.starts_with("nvidia-current") || name.starts_with("nvidia-tesla") ||
         std::ranges::any_of(std::initializer_list<std::string_view>{"-drm", "-modeset", "-peermem", "-uvm"},
                             [&](std::string_view part) { return name.starts_with("nvidia") && name.ends_with(part); });
}

Result<std::string> listing(const Host& host, const Initramfs& initramfs) {
  for (const auto& argv : {std::vector<std::string>{"lsinitramfs", "-l", initramfs.image},
                           std::vector<std::string>{"lsinitrd", initramfs.image}})
    if (host.has_program(argv[0]))
      return host.cached_output_of(initramfs.image, {.argv = argv, .deadline = kListDeadline});
  return fail(ErrorCode::not_found, "neither lsinitramfs nor lsinitrd is there to look into " + initramfs.image,
              "Install initramfs-tools-core or dracut-core.");
}

}  // namespace

Result<std::vector<Initramfs>> initramfs_images(const Host& host) {
  std::vector<Initramfs> out;
  for (const Kernel& kernel : TRY(bootable_kernels(host)))
    for (const std::string& image : {"/boot/initrd.img-" + kernel.image, "/boot/initramfs-" + kernel.image + ".img"})
      if (host.files().exists(image)) {
        out.push_back({kernel.version, image});
        break;
      }
  return out;
}

bool mentions_driver(std::string_view text) {
  return std::ranges::any_of(kWords, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

std::map<std::string, std::optional<std::uint64_t>> parse_initramfs_list(std::string_view text) {
  std::map<std::string, std::optional<std::uint64_t>> out;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string mode, links, owner, group, size, month, day, time, path;
    if (!(words >> mode >> links >> owner >> group >> size >> month >> day >> time >> path) || mode.size() < 10)
      continue;
    if (path.starts_with("./")) path.erase(0, 2);
    if (path.starts_with("usr/lib/")) path.erase(0, 4);
    std::uint64_t bytes = 0;
    const bool number = std::from_chars(size.data(), size.data() + size.size(), bytes).ec == std::errc();
    if (mode[0] == '-' && number)
      out[path] = bytes;
    else if (mode[0] == 'l')
      out[path] = std::nullopt;
  }
  return out;
}

Result<std::string> stale_initramfs(const Host& host, const Initramfs& initramfs) {
  const auto held = parse_initramfs_list(TRY(listing(host, initramfs)));
  const bool bears_driver = std::ranges::any_of(held, [](const auto& file) { return is_driver_module(file.first); });
  // the ban keeps modules from loading that are not in the image: no reason for another image once the trial is over
  const auto no_matter = [&](std::string_view inside) { return !bears_driver && inside == kTrialBan.substr(1); };
  const auto same = [&](const std::string& path, const std::optional<std::uint64_t>& bytes) {
    const auto now = host.files().stat("/" + path);
    return now && (!bytes || static_cast<std::uint64_t>(now->st_size) == *bytes);
  };
  for (const auto& [name, path] : TRY(kmod_files(host, "modprobe.d"))) {
    const std::string inside = name_in_image(path);
    const auto text = host.files().read(path);
    if (inside.empty() || no_matter(inside)) continue;
    if (!text || !mentions_driver(*text)) continue;  // the image need not have what modprobe cannot read
    const auto found = held.find(inside);
    if (found == held.end()) return fmt::format("{} lacks {}", initramfs.image, path);
    if (!same(path.substr(1), found->second)) return fmt::format("{} has another {}", initramfs.image, path);
  }
  const auto installed = modules_by_name(host, initramfs.release).value_or(std::map<std::string, std::string>());
  for (const auto& [path, bytes] : held) {
    const bool ours =
        path.find("modprobe.d/") != std::string::npos && (mentions_driver(path) || path.find("p2pd") != path.npos);
    if (ours && !no_matter(path) && !host.files().exists("/" + path))
      return fmt::format("{} still has /{}", initramfs.image, path);
    const auto wins =
        installed.find(kernel_name(path.substr(path.rfind('/') + 1, path.find(".ko") - path.rfind('/') - 1)));
    const bool shadowed = wins != installed.end() && wins->second != "/" + path;
    if (is_driver_module(path) && (shadowed || !same(path, bytes)))
      return fmt::format("{} holds /{}, a module of another driver", initramfs.image, path);
  }
  return std::string();
}

Result<std::vector<BannedModule>> linux_drivers(const Host& host) {
  std::set<std::string> there = {"nouveau"};
  for (const std::string_view name : kLinuxDrivers)
    if (host.files().exists(fmt::format("/sys/module/{}", name))) there.emplace(name);
  for (const Kernel& kernel : bootable_kernels(host).value_or(std::vector<Kernel>())) {
    const auto files = modules_by_name(host, kernel.version).value_or(std::map<std::string, std::string>());
    for (const std::string_view name : kLinuxDrivers)
      if (files.contains(std::string(name))) there.emplace(name);
  }
  const std::vector<BannedModule> banned = TRY(banned_modules(host));
  std::vector<BannedModule> found;
  for (const std::string_view name : kLinuxDrivers) {
    if (!there.contains(std::string(name))) continue;
    const auto by = std::ranges::find(banned, name, &BannedModule::module);
    found.push_back({std::string(name), by == banned.end() ? "" : by->source});
  }
  return found;
}

Result<void> need_initramfs_room(const Host& host, const Initramfs& initramfs) {
  const auto bytes = static_cast<std::uint64_t>(TRY(host.files().stat(initramfs.image)).st_size);
  return need_room(host, initramfs.image, bytes + kInitramfsGrowth);
}

Result<Command> initramfs_command(const Host& host, const Initramfs& initramfs, const std::string& beside) {
  if (host.has_program("update-initramfs"))
    return Command{.argv = {"update-initramfs", "-u", "-k", initramfs.release}, .deadline = kMakeDeadline};
  if (host.has_program("dracut"))
    return Command{.argv = {"dracut", "--force", beside, initramfs.release}, .deadline = kMakeDeadline};
  return fail(ErrorCode::not_found, "neither update-initramfs nor dracut is there to make " + initramfs.image + " anew",
              "Make it anew with the tool of this system, then try again.");
}

}  // namespace p2pd
