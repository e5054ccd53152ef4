// SPDX-License-Identifier: MIT
// nvidia-userspace: libcuda, libnvidia-ml and the GPUs' firmware (GSP) are of exactly the loaded kernel module's
// version. The module refuses any other ("API mismatch", "GSP firmware image version mismatch"). They diverge after an
// upgrade without a reboot, or with a runfile beside packages. The version of libraries is the end of the name of the
// target of libcuda.so.1; that of the firmware its directory, or what the kernel's log says. Reads the standard library
// directories, Debian's and NixOS's too, /lib/firmware/nvidia, the kernel's log, /sys/module/nvidia/version; libraries
// elsewhere (containers, LD_LIBRARY_PATH) are not checked. Reference: NVIDIA driver README, "Installed Components".
#include <fmt/format.h>

#include <algorithm>

#include "base/probe.hpp"
#include "machine/boot/kernel_log.hpp"
#include "machine/driver/driver_install.hpp"
#include "machine/hardware/nvidia_procfs.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kLibraries[] = {"libcuda.so.1", "libnvidia-ml.so.1"};

/// Version of the firmware that the module refused when it was last loaded, by the kernel's log; empty: none.
std::string refused_firmware(const Host& host) {
  constexpr std::string_view kGot = "GSP firmware image version mismatch: got version ";
  std::string got;
  for (const KernelRecord& record : kernel_log(host).value_or(KernelLog()).records) {
    if (record.text.starts_with(kDriverLoaded)) got.clear();
    const std::size_t at = record.text.find(kGot);
    if (record.text.starts_with("NVRM: ") && at != std::string::npos)
      got =
          record.text.substr(at + kGot.size(), record.text.find_first_of(", \n", at + kGot.size()) - at - kGot.size());
  }
  return got;
}

/// Version of the firmware, if it is not that of the open `module`, which starts no GPU without; else empty.
std::string other_firmware(const Host& host, const std::string& module) {
  if (std::string refused = refused_firmware(host); !refused.empty()) return refused;
  const auto loaded = nvidia_version(host);
  if (!loaded || !loaded->open) return {};
  std::string other;
  for (const std::string_view place : {"/lib/firmware/nvidia/", "/usr/lib/firmware/nvidia/"})
    for (const std::string& version : host.names(place)) {
      const auto files = host.names(std::string(place) + version);
      if (std::ranges::none_of(files, [](const std::string& file) { return file.starts_with("gsp_"); })) continue;
      if (version == module) return {};
      other = version;
    }
  return other;
}

Result<Finding> check(const Host& host, const Parameters&) {
  if (!host.files().exists("/sys/module/nvidia")) return not_applicable("no NVIDIA kernel module is loaded");
  const std::string module = TRY(host.line(kLoadedDriver));
  Finding finding;
  finding.facts = {{"module", module}, {"libraries", nlohmann::json::array()}};
  finding.saw(kLoadedDriver, module);
  std::string missing, other, nameless;
  for (const std::string_view name : kLibraries) {
    const std::vector<DriverLibrary> found = driver_libraries(host, name);
    if (found.empty()) missing += (missing.empty() ? "" : " and ") + std::string(name);
    for (const DriverLibrary& library : found) {
      finding.facts["libraries"].push_back({{"file", library.link}, {"version", library.version}});
      finding.saw(library.link, library.version);
      if (library.version.empty())
        nameless = library.link;
      else if (library.version != module && other.empty())
        other = library.link + " is " + library.version;
    }
  }
  if (const std::string firmware = other_firmware(host, module); !firmware.empty()) {
    finding.facts["firmware"] = firmware;
    finding.set(Verdict::fail,
                fmt::format("module and firmware differ: the GPUs' firmware is {}, the loaded module {}{}", firmware,
                            module, other.empty() ? "" : "; " + other),
                "Install module, firmware and libraries of one version, from one source, and reboot.");
  } else if (!other.empty()) {
    finding.set(Verdict::fail, fmt::format("API mismatch: {}, the loaded module is {}", other, module),
                "Reboot; if it stays, install libraries and modules of one version and remove the others.");
  } else if (finding.facts["libraries"].empty()) {
    return fail(
        ErrorCode::not_found, "no libcuda.so.1 and no libnvidia-ml.so.1 in the standard library directories",
        "Install the driver's libraries; if they are elsewhere, compare them with " + std::string(kLoadedDriver) + ".");
  } else if (!nameless.empty()) {
    return fail(ErrorCode::invalid, nameless + " leads to a file whose name has no version");
  } else if (!missing.empty()) {
    finding.set(Verdict::fail, missing + " is not installed",
                "Install the driver's libraries of version " + module + ".");
  } else {
    finding.set(Verdict::pass, "libraries and loaded module are both " + module);
  }
  return finding;
}

}  // namespace

extern const Probe kNvidiaUserspace = {
    .id = "nvidia-userspace",
    .asserts = "the driver's libraries and firmware are of the version of the loaded kernel module",
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
