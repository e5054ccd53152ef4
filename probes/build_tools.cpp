// SPDX-License-Identifier: MIT
// build-tools: the tools for a driver build are installed, for the running and for the newest kernel.
// Modules are built on this machine: headers of the kernel, the compiler that the kernel was built with (an older one
// does not know its options), make, git, DKMS; g++, because nvidia-modeset has C++ parts; xz, which packs its shaders.
// The check driver-catalogue reports whether the driver's source fits a kernel.
// Reads /lib/modules, /boot/config-*, /proc/version, names in /usr/bin.
// Reference: README.md and kernel-open/Makefile of NVIDIA open-gpu-kernel-modules; dkms(8).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/probe.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/hardware/gpus.hpp"
#include "machine/modules/toolchain.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    {"entry", Parameter::Type::string, false, "FORK/BRANCH of the catalogue entry that is built, or chosen"},
    kUserspaceParameter};

Result<Finding> check(const Host& host, const Parameters& parameters) {
  if (!TRY(needs_built_driver(host))) return not_applicable("no GPU that needs a driver built here");
  Finding finding;
  const BuildTools tools = TRY(build_tools(host, !keeps_packages(parameters)));
  finding.facts = tools.facts;
  finding.evidence = tools.evidence;
  if (!tools.lacking.empty())
    finding.set(Verdict::fail, fmt::format("a driver build lacks {}", fmt::join(tools.lacking, ", ")),
                fmt::format("{} {}",
                            distribution(host).uses_apt() ? "apt-get install"
                                                          : "Install the equivalents of these Debian packages:",
                            fmt::join(tools.packages, " ")));
  else if (!tools.unclear.empty())
    finding.set(Verdict::unknown, fmt::format("not known: {}", fmt::join(tools.unclear, ", ")));
  else
    finding.set(Verdict::pass, "headers, compiler and tools for a driver build are installed");
  return finding;
}

}  // namespace

extern const Probe kBuildTools = {
    .id = "build-tools",
    .asserts = "headers, compiler and tools to build a driver for the running and the newest kernel are installed",
    .parameters = kParameters,
    .check = check,
};

}  // namespace p2pd
