// SPDX-License-Identifier: MIT
#include "machine/packages/driver_packages.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

namespace p2pd {
namespace {

using Role = DriverRole;

// Packages from nvidia-graphics-drivers*, nvidia-open-gpu-kernel-modules, nvidia-support, glx-alternatives and the like
// of Debian; nvidia-graphics-drivers-NNN and linux-restricted-modules of Ubuntu; the driver part of NVIDIA's
// repositories.
constexpr DriverPattern kDriver[] = {
    {"nvidia-kernel-dkms", Role::modules},
    {"nvidia-kernel-open-dkms", Role::modules},
    {"nvidia-open", Role::modules},
    {"nvidia-open-*", Role::modules},
    {"nvidia-dkms-*", Role::modules},
    {"linux-modules-nvidia-*", Role::modules},
    {"nvidia-legacy-*-kernel-dkms", Role::modules},
    {"nvidia-tesla-*kernel-dkms", Role::modules},
    {"nvidia-driver", Role::libraries},
    {"nvidia-driver-[!alp]*", Role::libraries},  // excludes -assistant, -local-repo-*, -pinning-*
    {"nvidia-driver-libs*", Role::libraries},
    {"nvidia-kernel-*", Role::libraries},
    {"nvidia-headless-*", Role::libraries},
    {"libcuda1*", Role::libraries},
    {"libnvidia-ml1*", Role::libraries},
    {"libnvidia-compute-*", Role::libraries},
    {"libnvidia-gl-*", Role::libraries},
    {"nvidia-compute-utils-*", Role::libraries},
    {"cuda-drivers*", Role::libraries},
    {"libnvidia-[!c]*[!v]", Role::companion},   // excludes libnvidia-container*, and headers such as libnvidia-ml-dev
    {"libnvidia-[!c]*[!e]v", Role::companion},  // includes libnvidia-glvkspirv
    {"libnvidia-c[!o]*[!v]", Role::companion},
    {"libnvidia-com*[!v]", Role::companion},
    {"libnvcuvid*", Role::companion},
    {"libnvsd*[!v]", Role::companion},  // excludes libnvsdm-dev
    {"libcudadebugger*", Role::companion},
    {"libnvoptix*", Role::companion},
    {"libgl*-nvidia*", Role::companion},
    {"libegl*-nvidia*", Role::companion},
    {"libopengl0-*nvidia", Role::companion},
    {"nvidia-alternative*", Role::companion},
    {"nvidia-cuda-mps", Role::companion},
    {"nvidia-detect", Role::companion},
    {"nvidia-egl-*", Role::companion},
    {"nvidia-fabricmanager", Role::companion},
    {"nvidia-fabricmanager-[!d]*", Role::companion},  // excludes -dev
    {"nvidia-firmware-*", Role::companion},
    {"nvidia-imex*", Role::companion},
    {"nvidia-installer-cleanup", Role::companion},
    {"nvidia-legacy-*", Role::companion},
    {"nvidia-libopencl1*", Role::companion},
    {"nvidia-modprobe*", Role::companion},
    {"nvidia-opencl-common", Role::companion},
    {"nvidia-opencl-icd*", Role::companion},
    {"nvidia-persistenced*", Role::companion},
    {"nvidia-powerd*", Role::companion},
    {"nvidia-settings*", Role::companion},
    {"nvidia-smi*", Role::companion},
    {"nvidia-support", Role::companion},
    {"nvidia-suspend-common", Role::companion},
    {"nvidia-tesla-*", Role::companion},
    {"nvidia-utils-*", Role::companion},
    {"nvidia-vdpau-driver*", Role::companion},
    {"nvidia-vulkan-*", Role::companion},
    {"nvidia-xconfig*", Role::companion},
    {"firmware-nvidia-*gsp*", Role::companion},
    {"xserver-xorg-video-nvidia*", Role::companion},
    {"linux-objects-nvidia-*", Role::companion},
    {"linux-signatures-nvidia-*", Role::companion},
    {"glx-alternative-*", Role::companion},
    {"glx-diversions", Role::companion},
    {"update-glx", Role::companion},
};

struct Spared {
  std::string_view glob;
  std::string_view why;
};
constexpr Spared kSpared[] = {
    {"cuda-toolkit*", "the CUDA toolkit works with the driver of a runfile"},
    {"cuda-compat-*", "part of the CUDA toolkit"},
    {"nvidia-cuda-*", "the CUDA toolkit of the distribution"},
    {"nvidia-profiler", "part of the CUDA toolkit"},
    {"nvidia-visual-profiler", "part of the CUDA toolkit"},
    {"nvidia-opencl-dev", "for compiling"},
    {"nsight-*", "a tool of the CUDA toolkit"},
    {"libcudnn*", "cuDNN works with the driver of a runfile"},
    {"cudnn*", "cuDNN works with the driver of a runfile"},
    {"libnccl*", "NCCL works with the driver of a runfile"},
    {"libnvidia-container*", "containers take the libraries of whichever driver is installed"},
    {"nvidia-container-*", "containers take the libraries of whichever driver is installed"},
    {"nvidia-docker*", "containers take the libraries of whichever driver is installed"},
    {"nvidia-fs*", "GPUDirect Storage: its module is built against a driver and wants to be built anew for another"},
    {"nvidia-gds*", "GPUDirect Storage"},
    {"nvidia-peer-memory*", "a module of its own, for RDMA"},
    {"nvidia-prime*", "chooses between GPUs, and needs no package of a driver"},
    {"nvidia-vaapi-driver", "works with the driver of a runfile"},
    {"nvidia-driver-assistant", "tells which driver fits, and brings none"},
    {"nvidia-driver-local-repo-*", "an archive of packages, none of which it installs"},
    {"nvidia-driver-pinning-*", "tells apt which versions it may install, and brings none"},
    {"firmware-nvidia-graphics", "firmware for nouveau"},
    {"dkms", "builds the modules of the new driver"},
    {"linux-image-*", "a kernel"},
    {"linux-headers-*", "the headers of a kernel"},
    {"linux-modules-*", "a kernel"},
};

/// Matches a glob. The globs are literals: data() of each ends with a zero.
bool fits(std::string_view glob, const std::string& name) { return ::fnmatch(glob.data(), name.c_str(), 0) == 0; }

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

std::span<const DriverPattern> driver_patterns() { return kDriver; }

DriverRole driver_role(std::string_view name) {
  const auto* row = std::ranges::find_if(
      kDriver, [text = std::string(name)](const DriverPattern& pattern) { return fits(pattern.glob, text); });
  return row == std::end(kDriver) ? Role::none : row->role;
}

std::string_view spared_because(std::string_view name) {
  if (driver_role(name) != Role::none) return {};
  const auto* row =
      std::ranges::find_if(kSpared, [text = std::string(name)](const Spared& one) { return fits(one.glob, text); });
  return row == std::end(kSpared) ? std::string_view() : row->why;
}

std::string_view to_string(DriverPackages::Because because) {
  switch (because) {
    case DriverPackages::Because::driver: return "driver";
    case DriverPackages::Because::needs_it: return "needs it";
    case DriverPackages::Because::came_with_it: return "came with it";
  }
  return "";
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
