// SPDX-License-Identifier: MIT
#include "machine/boot/kernels.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <regex>
#include <sstream>

#include "base/version.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kImage = "vmlinuz-";
/// Directories of modules below /lib/modules/VERSION, in the order of depmod's default search: updates, then the rest.
constexpr std::string_view kHeaderPlaces[] = {"updates/dkms",
                                              "updates/p2pd",
                                              "updates",
                                              "extra",
                                              "extra/nvidia",
                                              "misc",
                                              "kernel/drivers/video",
                                              "kernel/drivers/video/nvidia"};

bool is_directory(const Host& host, const std::string& path) {
  const auto info = host.files().stat(path);
  return info && S_ISDIR(info->st_mode);
}

/// Checks for "nvidia.ko.zst", "nvidia-current.ko" (Debian's name of it), but not nvidia-drm, -modeset, -peermem, -uvm.
bool is_nvidia(std::string_view name) {
  const std::size_t ends = name.find(".ko");
  if (!name.starts_with("nvidia") || ends == std::string_view::npos) return false;
  const std::string_view stem = name.substr(0, ends);
  if (stem != "nvidia" && !stem.starts_with("nvidia-current") && !stem.starts_with("nvidia-tesla")) return false;
  return std::ranges::none_of(std::initializer_list<std::string_view>{"-drm", "-modeset", "-peermem", "-uvm"},
                              [&](std::string_view part) { return stem.ends_with(part); });
}

void look_into(const Host& host, const std::string& directory, std::vector<std::string>& found) {
  for (const std::string& name : host.names(directory))
    if (is_nvidia(name)) found.push_back(directory + "/" + name);
}

bool is_kernel_image(std::string_view name) {
  // leftovers of package managers and of installkernel; GRUB's scripts ignore the former, too
  constexpr std::string_view kLeftovers[] = {".old", ".bak", ".dpkg-", ".rpmsave", ".rpmnew"};
  return name.starts_with(kImage) && name.size() > kImage.size() &&
         std::ranges::none_of(kLeftovers, [&](std::string_view part) { return name.find(part) != name.npos; });
}

/// Pin in `file`, which proxmox-boot-tool writes.
KernelPin pin_in(const Host& host, std::string_view file) {
  const std::string text = host.files().read(file).value_or("");
  return {text.substr(0, text.find_first_of(" \t\r\n")), std::string(file)};
}

/// Release with that name in its pkgbase; `name` itself if it is a release, or none has it.
std::string release_of(const Host& host, const std::string& name) {
  if (host.files().exists("/lib/modules/" + name)) return name;
  for (const std::string& release : host.names("/lib/modules"))
    if (host.line("/lib/modules/" + release + "/pkgbase").value_or("") == name) return release;
  return name;
}

}  // namespace

Kernel kernel_of(const Host& host, const std::string& version) {
  Kernel kernel;
  kernel.version = version;
  const std::string directory = "/lib/modules/" + version;
  kernel.modules = is_directory(host, directory);
  kernel.headers = is_directory(host, directory + "/build");
  if (!kernel.modules) return kernel;
  for (const std::string_view place : kHeaderPlaces)
    look_into(host, directory + "/" + std::string(place), kernel.nvidia);
  // Ubuntu's prebuilt modules: kernel/nvidia-550, kernel/nvidia-550srv-open
  for (const std::string& name : host.names(directory + "/kernel"))
    if (name.starts_with("nvidia")) look_into(host, directory + "/kernel/" + name, kernel.nvidia);
  return kernel;
}

Result<std::vector<Kernel>> bootable_kernels(const Host& host) {
  constexpr std::size_t kMost = 200;
  std::vector<Kernel> kernels;
  for (const std::string& name : TRY(host.files().list("/boot"))) {
    if (!is_kernel_image(name)) continue;
    if (kernels.size() == kMost) return fail(ErrorCode::invalid, "/boot holds more than 200 kernels");
    const std::string image = name.substr(kImage.size());
    kernels.push_back(kernel_of(host, release_of(host, image)));
    kernels.back().image = image;
  }
  if (kernels.empty()) return fail(ErrorCode::not_found, "/boot holds no kernel (vmlinuz-VERSION)");
  std::ranges::stable_sort(
      kernels, [](const Kernel& one, const Kernel& other) { return compare_versions(one.version, other.version) < 0; });
  return kernels;
}

KernelPin kernel_pin(const Host& host) { return pin_in(host, "/etc/kernel/proxmox-boot-pin"); }

KernelPin next_boot_pin(const Host& host) {
  KernelPin once = pin_in(host, "/etc/kernel/next-boot-pin");
  return once.version.empty() ? kernel_pin(host) : once;
}

std::optional<std::int64_t> count_cpus(const std::string& list) {
  static const std::regex kRange("([0-9]{1,9})(?:-([0-9]{1,9}))?");
  std::int64_t count = 0;
  std::istringstream ranges(list);
  std::smatch found;
  for (std::string range; std::getline(ranges, range, ',');) {
    if (!std::regex_match(range, found, kRange)) return std::nullopt;
    const std::int64_t first = std::stol(found[1]), last = found[2].matched ? std::stol(found[2]) : first;
    if (last < first) return std::nullopt;
    count += last - first + 1;
  }
  return count > 0 ? std::optional(count) : std::nullopt;
}

std::optional<std::int64_t> cpus_that_need_iommu(const Host& host) {
  constexpr std::size_t kLimit = 16U << 20;
  constexpr std::string_view kId = "\napicid\t\t: ";
  constexpr std::int64_t kBeyond = 255;  // xAPIC addresses 0 to 254, 255 is all CPUs
  const std::string text = host.files().read("/proc/cpuinfo", kLimit).value_or("");
  if (text.find("GenuineIntel") != std::string::npos) return 0;
  std::int64_t listed = 0, beyond = 0;
  for (std::size_t at = text.find(kId); at != std::string::npos; at = text.find(kId, at + 1), ++listed) {
    std::int64_t id = 0;
    std::from_chars(text.data() + at + kId.size(), text.data() + text.size(), id);
    beyond += id >= kBeyond ? 1 : 0;
  }
  const auto online = count_cpus(host.line("/sys/devices/system/cpu/online").value_or(""));
  if (online && listed >= *online) return beyond;
  const auto present = count_cpus(host.line("/sys/devices/system/cpu/present").value_or(""));
  if (present && *present > kBeyond) return *present - kBeyond;  // the ids differ, so that these are the fewest
  return std::nullopt;
}

}  // namespace p2pd
