// SPDX-License-Identifier: MIT
#include "machine/modules/torn_dkms.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "machine/modules/modprobe_d.hpp"
#include "machine/modules/module_file.hpp"
#include "machine/modules/module_install.hpp"

namespace p2pd {
namespace {

using Names = std::vector<std::string>;

/// Module name in "nvidia-uvm.ko.xz"; empty: no file of a module.
std::string module_of(const std::string& file) {
  const std::size_t ends = file.find(".ko");
  return ends == file.npos ? "" : file.substr(0, ends);
}

/// Checks that modules.dep lists one of `modules` whose file is missing.
bool lists_gone(const Host& host, const std::string& release, const Names& modules) {
  const auto listed = modules_by_name(host, release);
  return listed && std::ranges::any_of(modules, [&](const std::string& module) {
           const auto found = listed->find(kernel_name(module));
           return found != listed->end() && !host.files().exists(found->second);
         });
}

}  // namespace

Result<void> forget_torn_dkms(Host& host) {
  for (const std::string& module : host.names(kDkms)) {
    const std::string tree = fmt::format("{}/{}", kDkms, module);
    for (const std::string& version : host.names(tree)) {
      const std::string there = tree + "/" + version;
      if (version == "original_module" || host.files().read_link(there)) continue;  // kernel-RELEASE-ARCH
      const auto names = host.files().list(there);
      if (!names || std::ranges::find(*names, "source") != names->end()) continue;
      TRY(host.remove_tree(there));
      for (const std::string& link : host.names(tree))
        if (host.files().read_link(tree + "/" + link).value_or("").starts_with(version + "/"))
          TRY(host.remove_tree(tree + "/" + link));
      if (host.names(tree).empty()) TRY(host.remove_tree(tree));
    }
  }
  return {};
}

Names built_by_dkms(const Host& host, const std::set<std::string>& paths) {
  std::set<std::string> modules;
  for (const std::string& package : host.names(kDkms))
    for (const std::string& version : host.names(fmt::format("{}/{}", kDkms, package))) {
      const std::string tree = fmt::format("{}/{}/{}", kDkms, package, version);
      if (!paths.contains(host.files().read_link(tree + "/source").value_or("") + "/dkms.conf")) continue;
      for (const std::string& release : host.names(tree))
        for (const std::string& architecture : host.names(tree + "/" + release))
          for (const std::string& file : host.names(fmt::format("{}/{}/{}/module", tree, release, architecture)))
            modules.insert(module_of(file));
    }
  modules.erase("");
  return {modules.begin(), modules.end()};
}

Result<void> discard_torn_modules(Host& host, const Names& modules) {
  for (const std::string& release : host.names("/lib/modules")) {
    const std::string place = fmt::format("{}/{}", module_directory(release), kDkmsPlace);
    for (const std::string& name : host.names(place)) {
      const std::string file = place + "/" + name;
      if (std::ranges::find(modules, module_of(name)) == modules.end()) continue;
      if (!TRY(owner_of_module(host, release, file)).empty()) continue;
      TRY(host.remove_tree(file));
    }
    if (lists_gone(host, release, modules)) TRY(host.run({{"depmod", release}, {}, {}, std::chrono::minutes(10)}));
  }
  return {};
}

}  // namespace p2pd
