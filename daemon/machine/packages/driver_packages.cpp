// SPDX-License-Identifier: MIT
#include "machine/packages/driver_packages.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "base/strings.hpp"

namespace p2pd {
namespace {

using Role = DriverRole;

struct Pattern {
  Role role;
  std::vector<const char*> globs;
};

// Packages from nvidia-graphics-drivers*, nvidia-open-gpu-kernel-modules, nvidia-support, glx-alternatives and the like
// of Debian; nvidia-graphics-drivers-NNN and linux-restricted-modules of Ubuntu; the driver part of NVIDIA's
// repositories. The first row with a fitting glob counts.
const Pattern kDriver[] = {
    {Role::modules,
     strings("nvidia-kernel-dkms", "nvidia-kernel-open-dkms", "nvidia-open", "nvidia-open-*", "nvidia-dkms-*",
             "linux-modules-nvidia-*", "nvidia-legacy-*-kernel-dkms", "nvidia-tesla-*kernel-dkms")},
    {Role::libraries,
     strings("nvidia-driver", "nvidia-driver-[!alp]*",  // excludes -assistant, -local-repo-*, -pinning-*
             "nvidia-driver-libs*", "nvidia-kernel-*", "nvidia-headless-*", "libcuda1*", "libnvidia-ml1*",
             "libnvidia-compute-*", "libnvidia-gl-*", "nvidia-compute-utils-*", "cuda-drivers*")},
    {Role::companion,
     strings("libnvidia-[!c]*[!v]",   // excludes libnvidia-container*, and headers such as libnvidia-ml-dev
             "libnvidia-[!c]*[!e]v",  // includes libnvidia-glvkspirv
             "libnvidia-c[!o]*[!v]", "libnvidia-com*[!v]", "libnvcuvid*", "libnvsd*[!v]",  // excludes libnvsdm-dev
             "libcudadebugger*", "libnvoptix*", "libgl*-nvidia*", "libegl*-nvidia*", "libopengl0-*nvidia",
             "nvidia-alternative*", "nvidia-cuda-mps", "nvidia-detect", "nvidia-egl-*", "nvidia-fabricmanager",
             "nvidia-fabricmanager-[!d]*",  // excludes -dev
             "nvidia-firmware-*", "nvidia-imex*", "nvidia-installer-cleanup", "nvidia-legacy-*", "nvidia-libopencl1*",
             "nvidia-modprobe*", "nvidia-opencl-common", "nvidia-opencl-icd*", "nvidia-persistenced*", "nvidia-powerd*",
             "nvidia-settings*", "nvidia-smi*", "nvidia-support", "nvidia-suspend-common", "nvidia-tesla-*",
             "nvidia-utils-*", "nvidia-vdpau-driver*", "nvidia-vulkan-*", "nvidia-xconfig*", "firmware-nvidia-*gsp*",
             "xserver-xorg-video-nvidia*", "linux-objects-nvidia-*", "linux-signatures-nvidia-*", "glx-alternative-*",
             "glx-diversions", "update-glx")},
};

struct Spared {
  std::string_view why;
  std::vector<const char*> globs;
};
const Spared kSpared[] = {
    {"the CUDA toolkit works with the driver of a runfile", strings("cuda-toolkit*")},
    {"part of the CUDA toolkit", strings("cuda-compat-*", "nvidia-profiler", "nvidia-visual-profiler")},
    {"the CUDA toolkit of the distribution", strings("nvidia-cuda-*")},
    {"for compiling", strings("nvidia-opencl-dev")},
    {"a tool of the CUDA toolkit", strings("nsight-*")},
    {"cuDNN works with the driver of a runfile", strings("libcudnn*", "cudnn*")},
    {"NCCL works with the driver of a runfile", strings("libnccl*")},
    {"containers take the libraries of whichever driver is installed",
     strings("libnvidia-container*", "nvidia-container-*", "nvidia-docker*")},
    {"GPUDirect Storage: its module is built against a driver and wants to be built anew for another",
     strings("nvidia-fs*")},
    {"GPUDirect Storage", strings("nvidia-gds*")},
    {"a module of its own, for RDMA", strings("nvidia-peer-memory*")},
    {"chooses between GPUs, and needs no package of a driver", strings("nvidia-prime*")},
    {"works with the driver of a runfile", strings("nvidia-vaapi-driver")},
    {"tells which driver fits, and brings none", strings("nvidia-driver-assistant")},
    {"an archive of packages, none of which it installs", strings("nvidia-driver-local-repo-*")},
    {"tells apt which versions it may install, and brings none", strings("nvidia-driver-pinning-*")},
    {"firmware for nouveau", strings("firmware-nvidia-graphics")},
    {"builds the modules of the new driver", strings("dkms")},
    {"a kernel", strings("linux-image-*", "linux-modules-*", "proxmox-kernel-*", "pve-kernel-*")},
    {"the headers of a kernel", strings("linux-headers-*", "proxmox-headers-*", "pve-headers*")},
};

/// First row of a table with a glob that fits; null: none.
template <class Row, std::size_t count>
const Row* row_of(const Row (&table)[count], std::string_view name) {
  const auto* const row = std::ranges::find_if(table, [text = std::string(name)](const Row& one) {
    return std::ranges::any_of(one.globs, [&](const char* glob) { return ::fnmatch(glob, text.c_str(), 0) == 0; });
  });
  return row == std::end(table) ? nullptr : row;
}

/// Names in "a (>= 1) | b:any, c": groups of alternatives.
std::vector<std::vector<std::string>> relations(const std::string& text) {
  std::vector<std::vector<std::string>> groups;
  std::istringstream list(text);
  for (std::string group; std::getline(list, group, ',');) {
    groups.emplace_back();
    std::istringstream alternatives(group);
    for (std::string one; std::getline(alternatives, one, '|');) {
      const std::size_t begin = one.find_first_not_of(" \t\n");
      if (begin == std::string::npos) continue;
      groups.back().push_back(one.substr(begin, one.find_first_of(" \t\n(:[", begin) - begin));
    }
    if (groups.back().empty()) groups.pop_back();
  }
  return groups;
}

/// Dependencies and their providers among the packages that are present.
class Selection {
 public:
  Selection(const std::vector<DpkgPackage>& all, const std::set<std::string>& automatic) : automatic_(automatic) {
    for (const DpkgPackage& package : all) {
      if (!package.present()) continue;
      givers_[package.name].push_back(&package);
      for (const auto& group : relations(package.provides)) givers_[group.front()].push_back(&package);
      present_.push_back(&package);
    }
  }

  DriverPackages select() {
    for (const DpkgPackage* package : present_)
      if (driver_role(package->name) != Role::none) take(*package, DriverPackages::Because::driver);
    if (!found_.empty())
      while (take_what_needs_it()) continue;
    take_what_came_with_it();
    for (const DpkgPackage* package : present_)
      if (looks_like_it(package->name) && !spared_because(package->name).empty())
        found_.spared.push_back({package->id(), std::string(spared_because(package->name))});
    return std::move(found_);
  }

 private:
  static bool looks_like_it(const std::string& name) {
    for (const char* word : {"nvidia", "cuda", "cudnn", "nsight", "nccl"})
      if (name.find(word) != std::string::npos) return true;
    return false;
  }

  bool is_automatic(const DpkgPackage& package) const {
    if (package.architecture != "all") return automatic_.contains(package.name + ":" + package.architecture);
    const auto at = automatic_.lower_bound(package.name + ":");
    return at != automatic_.end() && at->starts_with(package.name + ":");
  }

  void take(const DpkgPackage& package, DriverPackages::Because because, std::string need = {}) {
    gone_.insert(&package);
    found_.purged.push_back({package, because, std::move(need), is_automatic(package)});
  }

  bool given(const std::vector<std::string>& group, bool afterwards) const {
    return std::ranges::any_of(group, [&](const std::string& name) {
      const auto givers = givers_.find(name);
      return givers != givers_.end() && std::ranges::any_of(givers->second, [&](const DpkgPackage* giver) {
               return !afterwards || !gone_.contains(giver);
             });
    });
  }

  /// Dependency of a package that only removed packages provide; empty: there is none.
  std::string lost(const DpkgPackage& package) const {
    for (const auto& group : relations(package.depends))
      if (given(group, false) && !given(group, true)) return group.front();
    return "";
  }

  bool take_what_needs_it() {
    bool more = false;
    for (const DpkgPackage* package : present_) {
      if (gone_.contains(package) || blocked_.contains(package)) continue;
      std::string need = lost(*package);
      if (need.empty()) continue;
      more = true;
      if (spared_because(package->name).empty() && !package->essential) {
        take(*package, DriverPackages::Because::needs_it, std::move(need));
      } else {
        blocked_.insert(package);
        found_.blocked.push_back({package->id(), std::move(need)});
      }
    }
    return more;
  }

  using Packages = std::set<const DpkgPackage*>;

  /// Adds to `reached` all packages that its members lead to by relations and that `may` allows.
  void follow(Packages& reached, bool suggestions, const std::function<bool(const DpkgPackage&)>& may) const {
    std::vector<const DpkgPackage*> open(reached.begin(), reached.end());
    while (!open.empty()) {
      const DpkgPackage* package = open.back();
      open.pop_back();
      std::string text = package->depends + "," + package->recommends;
      if (suggestions) text += "," + package->suggests;
      for (const auto& group : relations(text))
        for (const std::string& name : group) {
          const auto givers = givers_.find(name);
          if (givers == givers_.end()) continue;
          for (const DpkgPackage* giver : givers->second)
            if (may(*giver) && reached.insert(giver).second) open.push_back(giver);
        }
    }
  }

  void take_what_came_with_it() {
    Packages came = gone_;
    follow(came, false, [&](const DpkgPackage& package) {
      const bool of_system = package.essential || package.priority == "required" || package.priority == "important" ||
                             package.priority == "standard";
      return is_automatic(package) && !of_system && !package.held() && spared_because(package.name).empty();
    });
    Packages kept;
    for (const DpkgPackage* package : present_)
      if (!came.contains(package)) kept.insert(package);
    follow(kept, true, [&](const DpkgPackage& package) { return !gone_.contains(&package); });
    for (const DpkgPackage* package : present_)
      if (came.contains(package) && !gone_.contains(package) && !kept.contains(package))
        take(*package, DriverPackages::Because::came_with_it);
  }

  const std::set<std::string>& automatic_;
  std::vector<const DpkgPackage*> present_;
  std::map<std::string, std::vector<const DpkgPackage*>> givers_;
  Packages gone_, blocked_;
  DriverPackages found_;
};

}  // namespace

std::vector<std::string_view> driver_globs() {
  std::vector<std::string_view> globs;
  for (const Pattern& row : kDriver) globs.insert(globs.end(), row.globs.begin(), row.globs.end());
  return globs;
}

DriverRole driver_role(std::string_view name) {
  const Pattern* const row = row_of(kDriver, name);
  return row == nullptr ? Role::none : row->role;
}

std::string_view spared_because(std::string_view name) {
  const Spared* const row = driver_role(name) == Role::none ? row_of(kSpared, name) : nullptr;
  return row == nullptr ? std::string_view() : row->why;
}

std::string_view to_string(DriverPackages::Because because) {
  constexpr std::string_view kNames[] = {"driver", "needs it", "came with it"};
  return kNames[static_cast<std::size_t>(because)];
}

std::vector<std::string> DriverPackages::ids() const {
  std::vector<std::string> ids;
  for (const Purged& one : purged) ids.push_back(one.package.id());
  return ids;
}

DriverPackages select_driver_packages(const std::vector<DpkgPackage>& all, const std::set<std::string>& automatic) {
  return Selection(all, automatic).select();
}

Result<DriverPackages> driver_packages(const Host& host) {
  const std::vector<DpkgPackage> all = TRY(dpkg_packages(host));
  return select_driver_packages(all, TRY(apt_automatic(host)));
}

}  // namespace p2pd
