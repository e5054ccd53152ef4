// SPDX-License-Identifier: MIT
// DKMS: the files that p2pd gives to it, a dkms.conf and the script that this calls; the owners of its modules; the
// remains of a DKMS that was killed.
#include "machine/modules/dkms.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "machine/catalogue/staging.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "machine/modules/module_build.hpp"
#include "machine/modules/module_file.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kConf =
    R"sh(# Written by p2pd for @ID@, commit @COMMIT@ on @BASE@; gone with "p2pctl revert".
PACKAGE_NAME="@NAME@"
PACKAGE_VERSION="@VERSION@"
MAKE[0]="@HERE@/p2pd-build take $kernelver"
CLEAN="true"
@MODULES@
# Offered to a new kernel only once the modules are built for it: a build that fails here would end the installation of
# the kernel's package in an error. DKMS asks with the kernel of an earlier build; unset uncovers the one it is about.
AUTOINSTALL="yes"
if [ "$action" = autoinstall ]; then
    unset kernelver
    @HERE@/p2pd-build try "$kernelver" || AUTOINSTALL=""
fi
)sh";

constexpr std::string_view kScript = R"sh(#!/bin/sh
# Written by p2pd; gone with "p2pctl revert". p2pd-build try|take RELEASE: the five modules of @ID@ for kernel RELEASE,
# those that p2pd built, or built now with that kernel's compiler; take puts them into ./modules, where DKMS wants them.
set -u
here=@HERE@ verb=$1 release=$2 headers=/lib/modules/$2/build kept=@KEPT@/@VERSION@-$2
flags=''

at_least() { [ "$(printf '%s\n%s\n' "$1" "$release" | sort -V | head -n 1)" = "$1" ]; }
holds() { grep -qsF -e "$2" "$headers/$1" "/lib/modules/$release/source/$1"; }
fits() {
    [ -f "$headers/Makefile" ] || return 1
@NEEDS@    cc=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ "]*\).*/\1/p' "$headers/.config")
    [ -n "$cc" ] && command -v "$cc" > /dev/null
}
make_modules() {
    staged=$(sed -n "s|^$release ||p" "$here/builds")
    if [ -n "$staged" ] && cp "$staged"/nvidia*.ko "$1"; then return; fi
    fits && cp -a "$here/source" "$1/source" &&
        TMPDIR=$1/source make -C "$1/source" modules KERNEL_UNAME="$release" -j"$(nproc)" CC="$cc" @VARIABLES@ ${flags:+"KCFLAGS=$flags"} &&
        for module in @LIST@; do mv "$1/source/kernel-open/$module.ko" "$1/" || return; done &&
        rm -rf "$1/source"
}
build() {
    rm -rf "$kept" "$kept.new" && mkdir -p "$kept.new" || return
    if make_modules "$kept.new"; then mv "$kept.new" "$kept"; else rm -rf "$kept.new"; return 1; fi
}

case $verb in
    try)
        [ -d "$kept" ] && exit
        mkdir -p @LOGS@ && build > "@LOGS@/dkms-$release.log" 2>&1 ;;
    take)
        [ -f "$kept/nvidia-peermem.ko" ] || build || exit 1
        mkdir -p modules && mv "$kept"/*.ko modules/ ;;    # what is left says that they do build
esac
)sh";

std::string with(std::string text, std::string_view word, std::string_view value) {
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += value.size())
    text.replace(at, word.size(), value);
  return text;
}

std::string filled(std::string_view form, const CatalogueEntry& entry) {
  std::string text(form);
  text = with(std::move(text), "@ID@", entry.id);
  text = with(std::move(text), "@COMMIT@", entry.commit);
  text = with(std::move(text), "@BASE@", entry.base_commit);
  text = with(std::move(text), "@NAME@", kDkmsName);
  text = with(std::move(text), "@VERSION@", entry.base_version);
  text = with(std::move(text), "@HERE@", dkms_source(entry));
  text = with(std::move(text), "@KEPT@", kDkmsKept);
  text = with(std::move(text), "@LOGS@", kLogs);
  text = with(std::move(text), "@VARIABLES@", fmt::format("{}", fmt::join(kMakeVariables, " ")));
  return with(std::move(text), "@LIST@", fmt::format("{}", fmt::join(kModuleNames, " ")));
}

/// Quotes `word` for a POSIX shell.
std::string shell_word(std::string_view word) { return "'" + with(std::string(word), "'", "'\\''") + "'"; }

}  // namespace

std::string dkms_source(const CatalogueEntry& entry) {
  return fmt::format("/usr/src/{}-{}", kDkmsName, entry.base_version);
}

std::string dkms_conf(const CatalogueEntry& entry) {
  std::string modules;
  for (std::size_t i = 0; i < kModuleNames.size(); ++i)
    modules += fmt::format(
        "BUILT_MODULE_NAME[{0}]=\"{1}\"\nBUILT_MODULE_LOCATION[{0}]=\"modules\"\n"
        "DEST_MODULE_LOCATION[{0}]=\"/{2}\"\n",
        i, kModuleNames[i], kDkmsPlace);
  return with(filled(kConf, entry), "@MODULES@\n", modules);
}

std::string dkms_build_script(const Catalogue& all, const CatalogueEntry& entry) {
  std::string needs;
  if (entry.kernel_min) needs += fmt::format("    at_least {} || return 1\n", fmt::join(*entry.kernel_min, "."));
  if (const Version below = fails_from(all.kernels, parse_version(entry.base_version).value_or(Version()));
      !below.empty())
    needs += fmt::format("    ! at_least {} || return 1\n", dotted(below));
  if (!entry.compat.empty()) needs += "    flags=\"-I $here/compat\"\n";
  for (const std::string& name : entry.compat) {
    const CompatRule& rule = all.compat_rules.at(name);
    if (rule.replaces()) continue;  // an include finds it if the kernel has none
    needs += fmt::format(
        "    if {}holds {} {}; then {}; fi\n", rule.gone ? "! " : "", shell_word(rule.header), shell_word(rule.pattern),
        rule.include.empty() ? "return 1" : fmt::format("flags=\"$flags -include $here/compat/{}\"", rule.include));
  }
  return with(filled(kScript, entry), "@NEEDS@", needs);
}

namespace {

/// Checks for "kernel-RELEASE-x86_64", the link by which DKMS marks what is installed for `release`.
bool is_link_of(std::string_view name, std::string_view release) {
  const std::string prefix = fmt::format("kernel-{}-", release);
  return name.starts_with(prefix) && name.find('-', prefix.size()) == std::string_view::npos;
}

/// Module name in "nvidia-uvm.ko.xz"; empty: no file of a module.
std::string module_of(const std::string& file) {
  const std::size_t ends = file.find(".ko");
  return ends == file.npos ? "" : file.substr(0, ends);
}

/// Checks that modules.dep lists one of `modules` whose file is missing.
bool lists_gone(const Host& host, const std::string& release, const std::vector<std::string>& modules) {
  const auto listed = modules_by_name(host, release);
  return listed && std::ranges::any_of(modules, [&](const std::string& module) {
           const auto found = listed->find(kernel_name(module));
           return found != listed->end() && !host.files().exists(found->second);
         });
}

}  // namespace

std::string dkms_link(const Host& host, std::string_view release) {
  for (const std::string& name : host.names(kDkmsTree))
    if (is_link_of(name, release)) return name;
  return "";
}

Result<std::string> owner_of_module(const Host& host, std::string_view release, const std::string& file) {
  for (const std::string& path : {file, "/usr" + file}) {  // packages use either path with a merged /usr
    const CommandResult said = TRY(host.run_readonly({{"dpkg-query", "--search", path}}));
    if (said.status == 0) return "package " + said.output.substr(0, said.output.find(": "));
  }
  const std::string name = file.substr(file.rfind('/') + 1);
  for (const std::string& module : host.names(kDkms)) {
    const std::string tree = fmt::format("{}/{}", kDkms, module);
    for (const std::string& link : host.names(tree))
      if (tree != kDkmsTree && is_link_of(link, release) &&
          host.files().exists(fmt::format("{}/{}/module/{}", tree, link, name)))
        return "DKMS module " + module;
  }
  return std::string();
}

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

std::vector<std::string> built_by_dkms(const Host& host, const std::set<std::string>& paths) {
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

Result<void> discard_torn_modules(Host& host, const std::vector<std::string>& modules) {
  for (const std::string& release : host.names("/lib/modules")) {
    const std::string place = place_of(release, kDkmsPlace);
    for (const std::string& name : host.names(place)) {
      const std::string file = place + "/" + name;
      if (std::ranges::find(modules, module_of(name)) == modules.end()) continue;
      if (!TRY(owner_of_module(host, release, file)).empty()) continue;
      TRY(host.remove_tree(file));
    }
    if (lists_gone(host, release, modules))
      TRY(host.run({.argv = {"depmod", release}, .deadline = std::chrono::minutes(10)}));
  }
  return {};
}

}  // namespace p2pd
