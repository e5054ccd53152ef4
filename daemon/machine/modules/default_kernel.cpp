// SPDX-License-Identifier: MIT
#include "machine/modules/default_kernel.hpp"

#include <algorithm>

#include "machine/modules/dkms.hpp"
#include "machine/modules/module_file.hpp"
#include "machine/modules/own_place.hpp"

namespace p2pd {
namespace {

// Shell code: grub-mkconfig sources it under "set -e", its standard output may be grub.cfg. Ids of entries:
// grub_get_device_id() of grub-mkconfig_lib and linux_entry() of 10_linux, GRUB 2.00 to 2.12.
constexpr std::string_view kDropIn = R"sh(# Written by p2pd; undone by `p2pctl revert`.
# A kernel without the driver's modules does not start by default: the newest that has them does, until a newer one has.
p2pd_default_kernel() {
  p2pd_saved=$(grub-editenv - list 2>/dev/null | sed -n 's/^saved_entry=//p') || :
  case ${GRUB_DEFAULT:-0} in
    0) ;;
    saved) [ "${p2pd_saved:-0}" = 0 ] || return 0 ;;
    *) return 0 ;;
  esac
  p2pd_newer=''
  for p2pd_image in $(printf '%s\n' /boot/vmlinuz-* | sort -rV); do
    p2pd_version=${p2pd_image#/boot/vmlinuz-}
    case $p2pd_version in '*' | *.old | *.bak | *.dpkg-* | *.rpmsave | *.rpmnew) continue ;; esac
    for p2pd_modules in "/lib/modules/$p2pd_version/updates/p2pd" "/var/lib/dkms/p2pd-nvidia/kernel-$p2pd_version-$(uname -m)"; do
      [ -e "$p2pd_modules" ] || continue
      [ -n "$p2pd_newer" ] || return 0
      p2pd_id=${GRUB_DEVICE_UUID:-}
      if [ -z "$p2pd_id" ] || [ "${GRUB_DISABLE_UUID:-}" = true ]; then p2pd_id=$(echo "${GRUB_DEVICE:-}" | sed 's, ,_,g'); fi
      GRUB_DEFAULT=gnulinux-$p2pd_version-advanced-$p2pd_id
      case ${GRUB_DISABLE_SUBMENU:-} in y | yes | true) ;; *) GRUB_DEFAULT="gnulinux-advanced-$p2pd_id>$GRUB_DEFAULT" ;; esac
      echo "p2pd: $p2pd_version starts by default: $p2pd_newer has no modules of the driver" >&2
      return 0
    done
    p2pd_newer=${p2pd_newer:-$p2pd_version}
  done
}
p2pd_default_kernel || :
)sh";

constexpr std::string_view kHook = R"sh(#!/bin/sh
# Written by p2pd; undone by `p2pctl revert`.
# DKMS builds the driver's modules with a kernel's headers, which may come after the kernel: only now can it be the default.
[ ! -e /boot/grub/grub.cfg ] || update-grub || echo "p2pd: grub.cfg stays as it is: run update-grub" >&2
exit 0
)sh";

// The name of the booted entry with another version is that of another kernel: "proxmox-VERSION.conf".
constexpr std::string_view kLoaderHook = R"sh(#!/bin/sh
# Written by p2pd; undone by `p2pctl revert`.
# A kernel without the driver's modules does not start by default: the newest that has them does, until a newer one has.
chosen=/var/lib/p2pd/boot-default
variable() { tail -c +5 "/sys/firmware/efi/efivars/$1-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f" 2>/dev/null | tr -d '\0'; }
default=$(variable LoaderEntryDefault)
# a person's choice
[ -z "$default" ] || [ "$default" = "$(cat "$chosen" 2>/dev/null)" ] || exit 0
[ ! -e /etc/kernel/proxmox-boot-pin ] || exit 0
! cat /efi/loader/loader.conf /boot/loader/loader.conf /boot/efi/loader/loader.conf 2>/dev/null |
  grep -q '^default[[:space:]][^*@]*$' || exit 0
booted=$(variable LoaderEntrySelected)
case $booted in a-p2pd-trial.*)
  booted=$(head -q -n 1 /var/lib/p2pd/boot-trial /var/lib/p2pd/boot-arguments 2>/dev/null | head -n 1)
esac
case $booted in *"$(uname -r)"*) ;; *) exit 0 ;; esac  # its name does not say which kernel it starts
newer=''
for image in $(printf '%s\n' /boot/vmlinuz-* | sort -rV); do
  version=${image#/boot/vmlinuz-}
  case $version in '*' | *.old | *.bak | *.dpkg-* | *.rpmsave | *.rpmnew) continue ;; esac
  for modules in "/lib/modules/$version/updates/p2pd" "/var/lib/dkms/p2pd-nvidia/kernel-$version-$(uname -m)"; do
    [ -e "$modules" ] || continue
    entry=''
    [ -z "$newer" ] || entry=$(echo "$booted" | sed "s/$(uname -r)/$version/")
    [ "$entry" != "$default" ] || exit 0
    [ -z "$entry" ] || echo "$entry" > "$chosen"
    bootctl set-default "$entry" || exit 0
    [ -n "$entry" ] || { rm -f "$chosen"; exit 0; }
    echo "p2pd: $version starts by default: $newer has no modules of the driver" >&2
    exit 0
  done
  newer=${newer:-$version}
done
exit 0
)sh";

constexpr std::string_view kVmlinuz = "/vmlinuz-";

}  // namespace

std::string default_kernel_drop_in() { return std::string(kDropIn); }
std::string header_hook() { return std::string(kHook); }

std::vector<DefaultKernelFile> default_kernel_files(bool systemd_boot) {
  if (systemd_boot)
    return {{kKernelHook, std::string(kLoaderHook), 0755}, {kHeaderHook, std::string(kLoaderHook), 0755}};
  return {{kDefaultKernelDropIn, default_kernel_drop_in()}, {kHeaderHook, header_hook(), 0755}};
}

std::string kernel_image(const GrubEntry& entry) {
  for (const GrubEntry::Load& load : entry.loads) {
    if (!load.kernel || load.words.empty()) continue;
    const std::string& image = load.words.front();
    const std::size_t at = image.rfind(kVmlinuz);
    if (at != std::string::npos && image.find('/', at + 1) == std::string::npos) return image;
  }
  return "";
}

std::string kernel_version(const GrubEntry& entry) {
  const std::string image = kernel_image(entry);
  return image.empty() ? "" : image.substr(image.rfind(kVmlinuz) + kVmlinuz.size());
}

bool has_own_modules(const Host& host, const std::string& version) {
  return host.files().exists(place_of(version, kOwnPlace)) || !dkms_link(host, version).empty();
}

std::vector<std::string> kernels_held_back(const Host& host) {
  std::vector<std::string> versions;
  const std::string pinned = kernel_pin(host).version;
  if (pinned.empty() && !host.files().exists(kDefaultKernelDropIn) && !host.files().exists(kKernelHook))
    return versions;
  for (const Kernel& kernel : bootable_kernels(host).value_or(std::vector<Kernel>()))
    versions.push_back(kernel.version);
  const auto newest = std::ranges::find_if(versions.rbegin(), versions.rend(), [&](const std::string& version) {
    return pinned.empty() ? has_own_modules(host, version) : version == pinned;
  });
  versions.erase(versions.begin(), newest == versions.rend() ? versions.end() : newest.base());
  return versions;
}

}  // namespace p2pd
