// SPDX-License-Identifier: MIT
#include "record/record_files.hpp"

#include <fnmatch.h>

#include "record/record_excerpt.hpp"

namespace p2pd {
namespace {

constexpr RecordText kTexts[] = {
    {"/boot/config-*", config_excerpt},
    {"/boot/grub/custom.cfg", grub_custom_excerpt},
    {"/boot/grub/grub.cfg", grub_menu_excerpt},
    {"/boot/grub/grubenv", grub_environment_excerpt},
    {"/etc/apt/apt.conf", apt_excerpt},
    {"/etc/apt/apt.conf.d/*", apt_excerpt},
    {"/etc/apt/preferences", pins_excerpt},
    {"/etc/apt/preferences.d/*", pins_excerpt},
    {"/etc/bash.bashrc", environment_excerpt},
    {"/etc/debian_version", first_line_excerpt},
    {"/etc/default/grub", grub_defaults_excerpt},
    {"/etc/default/grub.d/*.cfg", grub_defaults_excerpt},
    {"/etc/depmod.d/*.conf", depmod_excerpt},
    {"/etc/environment", environment_excerpt},
    {"/etc/environment.d/*.conf", environment_excerpt},
    {"/etc/kernel/*/dkms-p2pd", script_excerpt},
    {"/etc/kernel/cmdline", arguments_excerpt},
    {"/etc/kernel/header_postinst.d/zz-p2pd", script_excerpt},
    {"/etc/kernel/proxmox-boot-uuids", zeros_excerpt},
    {"/etc/modprobe.d/*.alias", modprobe_excerpt},
    {"/etc/modprobe.d/*.conf", modprobe_excerpt},
    {"/etc/modules-load.d/*.conf", names_excerpt},
    {"/etc/nccl.conf", nccl_excerpt},
    {"/etc/os-release", os_release_excerpt},
    {"/etc/p2pd/catalogue.d/*.yaml", catalogue_excerpt},
    {"/etc/profile", environment_excerpt},
    {"/etc/profile.d/*.sh", environment_excerpt},
    {"/etc/security/pam_env.conf", environment_excerpt},
    {"/etc/systemd/system.conf", environment_excerpt},
    {"/etc/systemd/system.conf.d/*.conf", environment_excerpt},
    {"/etc/systemd/system/nvidia-persistenced.service", unit_excerpt},
    {"/etc/systemd/system/nvidia-persistenced.service.d/*.conf", unit_excerpt},
    {"/etc/systemd/user.conf", environment_excerpt},
    {"/etc/systemd/user.conf.d/*.conf", environment_excerpt},
    {"/lib/modprobe.d/*.alias", modprobe_excerpt},
    {"/lib/modprobe.d/*.conf", modprobe_excerpt},
    {"/lib/modules/*/modules.dep", modules_dep_excerpt},
    {"/lib/modules/*/updates/p2pd/build.json", plain_excerpt},
    {"/lib/systemd/system/nvidia-persistenced.service", unit_excerpt},
    {"/proc/cmdline", arguments_excerpt},
    {"/proc/cpuinfo", cpuinfo_excerpt},
    {"/proc/driver/nvidia/gpus/*/information", nvidia_excerpt},
    {"/proc/driver/nvidia/params", nvidia_excerpt},
    {"/proc/driver/nvidia/version", nvidia_excerpt},
    {"/proc/iomem", iomem_excerpt},
    {"/proc/modules", plain_excerpt},
    {"/proc/self/mountinfo", mounts_excerpt},
    {"/proc/sys/kernel/osrelease", plain_excerpt},
    {"/proc/sys/kernel/random/boot_id", plain_excerpt},
    {"/proc/version", version_excerpt},
    {"/run/environment.d/*.conf", environment_excerpt},
    {"/run/modprobe.d/*.conf", modprobe_excerpt},
    {"/run/systemd/system.conf.d/*.conf", environment_excerpt},
    {"/run/systemd/user.conf.d/*.conf", environment_excerpt},
    {"/sys/bus/pci/devices/*/aer_dev_correctable", plain_excerpt},
    {"/sys/bus/pci/devices/*/boot_vga", plain_excerpt},
    {"/sys/bus/pci/devices/*/class", plain_excerpt},
    {"/sys/bus/pci/devices/*/current_link_speed", plain_excerpt},
    {"/sys/bus/pci/devices/*/current_link_width", plain_excerpt},
    {"/sys/bus/pci/devices/*/device", plain_excerpt},
    {"/sys/bus/pci/devices/*/dma_mask_bits", plain_excerpt},
    {"/sys/bus/pci/devices/*/local_cpulist", plain_excerpt},
    {"/sys/bus/pci/devices/*/max_link_speed", plain_excerpt},
    {"/sys/bus/pci/devices/*/max_link_width", plain_excerpt},
    {"/sys/bus/pci/devices/*/numa_node", plain_excerpt},
    {"/sys/bus/pci/devices/*/resource", plain_excerpt},
    {"/sys/bus/pci/devices/*/vendor", plain_excerpt},
    {"/sys/class/block/*/dm/uuid", dm_excerpt},
    {"/sys/class/dmi/id/bios_date", plain_excerpt},
    {"/sys/class/dmi/id/bios_vendor", plain_excerpt},
    {"/sys/class/dmi/id/bios_version", plain_excerpt},
    {"/sys/class/dmi/id/board_name", plain_excerpt},
    {"/sys/class/dmi/id/board_vendor", plain_excerpt},
    {"/sys/class/dmi/id/product_name", plain_excerpt},
    {"/sys/class/dmi/id/sys_vendor", plain_excerpt},
    {"/sys/class/drm/card*-*/enabled", plain_excerpt},
    {"/sys/class/drm/card*-*/status", plain_excerpt},
    {"/sys/class/graphics/fb*/name", plain_excerpt},
    {"/sys/dev/block/*/dm/uuid", dm_excerpt},
    {"/sys/devices/system/cpu/online", plain_excerpt},
    {"/sys/devices/system/cpu/possible", plain_excerpt},
    {"/sys/devices/system/cpu/present", plain_excerpt},
    {"/sys/devices/system/node/node*/cpulist", plain_excerpt},
    {"/sys/firmware/efi/efivars/LoaderInfo-*", nullptr},
    {"/sys/firmware/efi/efivars/SecureBoot-*", nullptr},
    {"/sys/firmware/efi/efivars/SetupMode-*", nullptr},
    {"/sys/firmware/efi/fw_platform_size", plain_excerpt},
    {"/sys/kernel/boot_params/data", framebuffer_excerpt},
    {"/sys/kernel/iommu_groups/*/type", plain_excerpt},
    {"/sys/kernel/security/lockdown", plain_excerpt},
    {"/sys/kernel/security/lsm", plain_excerpt},
    {"/sys/module/gdrdrv/version", plain_excerpt},
    {"/sys/module/kvm_amd/refcnt", plain_excerpt},
    {"/sys/module/kvm_intel/refcnt", plain_excerpt},
    {"/sys/module/module/parameters/sig_enforce", plain_excerpt},
    {"/sys/module/nova*/initstate", plain_excerpt},
    {"/sys/module/nova*/refcnt", plain_excerpt},
    {"/sys/module/nova*/srcversion", plain_excerpt},
    {"/sys/module/nouveau/initstate", plain_excerpt},
    {"/sys/module/nouveau/refcnt", plain_excerpt},
    {"/sys/module/nouveau/srcversion", plain_excerpt},
    {"/sys/module/nvidia*/initstate", plain_excerpt},
    {"/sys/module/nvidia*/notes/.note.gnu.build-id", nullptr},
    {"/sys/module/nvidia*/parameters/*", plain_excerpt},
    {"/sys/module/nvidia*/refcnt", plain_excerpt},
    {"/sys/module/nvidia*/srcversion", plain_excerpt},
    {"/sys/module/nvidia*/taint", plain_excerpt},
    {"/sys/module/nvidia*/version", plain_excerpt},
    {"/usr/lib/environment.d/*.conf", environment_excerpt},
    {"/usr/lib/modprobe.d/*.alias", modprobe_excerpt},
    {"/usr/lib/modprobe.d/*.conf", modprobe_excerpt},
    {"/usr/lib/os-release", os_release_excerpt},
    {"/usr/lib/systemd/system.conf.d/*.conf", environment_excerpt},
    {"/usr/lib/systemd/user.conf.d/*.conf", environment_excerpt},
    {"/usr/local/lib/environment.d/*.conf", environment_excerpt},
    {"/usr/local/lib/modprobe.d/*.conf", modprobe_excerpt},
    {"/usr/local/lib/systemd/system.conf.d/*.conf", environment_excerpt},
    {"/usr/local/lib/systemd/user.conf.d/*.conf", environment_excerpt},
    {"/var/lib/dpkg/status", dpkg_excerpt},
    {"/var/lib/nvidia/log", first_line_excerpt},
    {"/var/lib/snapd/state.json", snapd_excerpt},
    {"/var/log/p2pd/driver-build-*.log", build_log_excerpt},
};

constexpr std::string_view kNames[] = {
    "/boot/grub2/grub.cfg",
    "/boot/initramfs-*",
    "/boot/initrd*",
    "/boot/loader/loader.conf",
    "/boot/vmlinuz-*",
    "/lib/firmware/nvidia/*/gsp_*",
    "/run/cloud-init/disabled",
    "/run/cloud-init/result.json",
    "/run/reboot-required",
    "/sys/class/block/*/md/level",
    "/sys/class/block/*/slaves/*",
    "/sys/dev/block/*/../md/level",  // partition on a RAID; in the record, a block device is a plain directory
    "/sys/dev/block/*/md/level",
    "/sys/dev/block/*/slaves/*",
    "/sys/firmware/acpi/tables/*",
    "/sys/firmware/efi/efivars/MokNew-*",
    "/usr/lib/firmware/nvidia/*/gsp_*",
    "/usr/lib/nvidia/alternate-install-present",
    "/var/lib/dkms/mok.key",
    "/var/lib/dpkg/updates/*",
    "/var/lib/shim-signed/mok/MOK.priv",
    "/var/lib/snapd/seed/seed.yaml",
    "/var/log/nvidia-installer.log",
};

constexpr std::string_view kDirectories[] = {
    "/boot/EFI/systemd",
    "/boot/efi/EFI/systemd",
    "/efi/EFI/systemd",
    "/lib/modules/*",
    "/run/cloud-init",
    "/sys/fs/cgroup/system.slice/apt-daily*.service",
    "/sys/fs/cgroup/system.slice/snapd.seeded.service",
    "/sys/fs/cgroup/systemd/system.slice/apt-daily*.service",
    "/sys/fs/cgroup/systemd/system.slice/snapd.seeded.service",
    "/usr/bin",
    "/var/lib/dkms/nvidia*/*/[0-9]*",  // one for each kernel
    "/var/lib/dpkg/updates",
};

constexpr std::string_view kLinks[] = {
    "/etc/systemd/system/*.wants/nvidia-persistenced.service",
    "/sys/bus/pci/devices/*/driver",
    "/sys/bus/pci/devices/*/iommu_group",
    "/sys/class/drm/card*/device",
    "/sys/class/graphics/fb*/device",
    "/sys/class/infiniband/*/device",
    "/sys/class/iommu/*",
    "/sys/module/nvidia*/holders/*",
    "/var/lib/dkms/nvidia*/*/source",
    "/var/lib/dkms/p2pd-nvidia/kernel-*",
};

constexpr std::string_view kLibraries[] = {
    "/run/opengl-driver/lib/libcuda.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib/libcuda.so.1",
    "/usr/lib/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/lib64/libnvidia-ml.so.1",
    "/usr/local/lib/libcuda.so.1",
    "/usr/local/lib/libnvidia-ml.so.1",
};

constexpr std::string_view kModules[] = {
    "/lib/modules/*/extra/nvidia*.ko*",
    "/lib/modules/*/extra/nvidia/nvidia*.ko*",
    "/lib/modules/*/kernel/drivers/char/drm/nvidia*.ko*",
    "/lib/modules/*/kernel/drivers/video/nvidia*.ko*",
    "/lib/modules/*/kernel/drivers/video/nvidia/nvidia*.ko*",
    "/lib/modules/*/kernel/nvidia*/nvidia*.ko*",
    "/lib/modules/*/misc/nvidia*.ko*",
    "/lib/modules/*/updates/dkms/nvidia*.ko*",
    "/lib/modules/*/updates/nvidia*.ko*",
    "/lib/modules/*/updates/p2pd/nvidia*.ko*",
};

constexpr std::string_view kProgramDirectories[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                                    "/usr/bin",        "/sbin",          "/bin"};
constexpr std::string_view kPrograms[] = {
    "clang-[0-9]*",
    "depmod",
    "dkms",
    "g++",
    "gcc",
    "gcc-[0-9]*",
    "git",
    "ld",
    "lsinitramfs",
    "lsinitrd",
    "make",
    "modinfo",
    "modprobe",
    "grub-mkconfig",
    "mokutil",
    "dpkg",
    "nvidia-persistenced",
    "nvidia-smi",
    "nvidia-uninstall",
    "proxmox-boot-tool",
    "update-grub",
    "update-initramfs",
    "xz",
};

void expand(const RootReader& root, const std::string& above, std::string_view rest, std::vector<std::string>& found) {
  const std::size_t slash = rest.find('/', 1);
  const std::string name(rest.substr(1, slash == std::string_view::npos ? slash : slash - 1));
  const std::string_view below = slash == std::string_view::npos ? std::string_view() : rest.substr(slash);
  std::vector<std::string> names = {name};
  if (name.find('*') != std::string::npos) {
    names = root.list(above.empty() ? "/" : above).value_or(std::vector<std::string>());
    std::erase_if(names, [&](const std::string& entry) { return ::fnmatch(name.c_str(), entry.c_str(), 0) != 0; });
  }
  for (const std::string& entry : names) {
    if (below.empty()) {
      found.push_back(above + "/" + entry);
    } else {
      expand(root, above + "/" + entry, below, found);
    }
  }
}

}  // namespace

std::span<const RecordText> record_texts() { return kTexts; }
std::span<const std::string_view> record_names() { return kNames; }
std::span<const std::string_view> record_directories() { return kDirectories; }
std::span<const std::string_view> record_links() { return kLinks; }
std::span<const std::string_view> record_libraries() { return kLibraries; }
std::span<const std::string_view> record_modules() { return kModules; }

std::vector<std::string> record_programs(const RootReader& root) {
  std::vector<std::string> found;
  for (const std::string_view directory : kProgramDirectories) {
    if (root.read_link(directory)) continue;  // /bin is a link to /usr/bin, which is listed already
    for (const std::string_view program : kPrograms)
      expand(root, "", std::string(directory) + "/" + std::string(program), found);
  }
  return found;
}

std::vector<std::string> record_paths(const RootReader& root, std::string_view pattern) {
  std::vector<std::string> paths;
  expand(root, "", pattern, paths);
  return paths;
}

}  // namespace p2pd
