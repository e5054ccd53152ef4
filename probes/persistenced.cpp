// SPDX-License-Identifier: MIT
// persistenced: nvidia-persistenced starts at boot, runs now, and keeps the GPUs initialised.
// Without it the driver shuts a GPU down whenever its last client ends, and starts it for the next: seconds per card,
// and settings such as power limits are lost. A packaged unit is removed with the packages; NVIDIA's runfile installs
// the daemon alone. A unit with --no-persistence-mode, like Ubuntu's, does not keep them. Reads unit files, drop-ins
// and links; asks systemd on a running host, if the driver is loaded. Reference: nvidia-persistenced(1); README of
// NVIDIA's driver, "Using the nvidia-persistenced Utility".
#include "machine/driver/persistenced.hpp"

#include "base/probe.hpp"
#include "machine/hardware/pci.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kDriver = "/proc/driver/nvidia/version";

/// Reason why the files do not start it at boot; empty: they do.
std::string lacking(const Persistenced& found) {
  if (found.unit.empty()) return "nvidia-persistenced is installed, and no unit starts it";
  if (found.masked) return found.unit + " masks nvidia-persistenced";
  if (found.command.empty()) return found.unit + " starts nothing";
  if (!found.persists()) return found.said_by + " starts nvidia-persistenced without persistence mode";
  return found.enabled_by.empty() ? found.unit + " is not enabled" : "";
}

Result<bool> may_have_gpu(const Host& host) { return is_image(host) || !nvidia_gpus(TRY(pci_devices(host))).empty(); }

Result<Finding> check(const Host& host, const Parameters&) {
  if (!host.has_program(kPersistencedProgram)) return not_applicable("nvidia-persistenced is not installed");
  if (!TRY(may_have_gpu(host))) return not_applicable("no NVIDIA GPU");
  const Persistenced found = TRY(persistenced(host));
  Finding finding;
  finding.facts = {{"unit", or_null(found.unit)}, {"enabled", !found.enabled_by.empty()}};
  if (found.unit.empty())
    finding.saw("systemd's unit directories", "no such unit");
  else
    finding.saw(found.unit, found.masked ? "masked" : "ExecStart=" + found.command);
  if (!found.enabled_by.empty()) finding.saw(found.enabled_by, "there");
  std::string why = lacking(found);
  bool runs = false;
  if (why.empty() && systemd_runs(host)) {
    runs = TRY(persistenced_runs(host));
    finding.saw("systemctl is-active " + std::string(kPersistencedService), runs ? "active" : "not");
    if (!runs && host.files().exists(kDriver)) why = "nvidia-persistenced is enabled, and does not run";
  }
  if (!why.empty())
    finding.set(Verdict::fail, why);
  else
    finding.set(Verdict::pass,
                runs ? "nvidia-persistenced runs, and starts at each boot" : "nvidia-persistenced starts at each boot");
  return finding;
}

}  // namespace

extern const Probe kPersistenced = {
    .id = "persistenced",
    .asserts = "nvidia-persistenced starts at boot, runs, and keeps the GPUs initialised",
    .check = check,
};

}  // namespace p2pd
