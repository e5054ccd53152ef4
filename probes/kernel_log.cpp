// SPDX-License-Identifier: MIT
// kernel-log: the kernel's log since boot has no known sign of a failure that stops P2P.
// A page fault of the IOMMU, an Xid, a module that the kernel refused: the log shows the failing gate, mostly long
// before a benchmark does. A sign is a row of config/signatures.yaml. The first record of each is shown, and the first
// row of the table leads, since causes come before their consequences. A note only: a fault of a device other than a
// GPU that takes part or a port above one, and a record from before the last load of the driver. Reads /dev/kmsg, the
// available records of this boot; in a machine record dev/kmsg or var/log/kern.log. Reference:
// Documentation/ABI/testing/dev-kmsg of Linux; kernel-open/nvidia/nv.c; the source of each row.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/probe.hpp"
#include "base/signatures.hpp"
#include "machine/boot/kernel_log.hpp"
#include "machine/hardware/pci_address.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kShownBytes = 512;  // limit for a record, in facts and evidence

/// Records that match one row.
struct Match {
  const Signature* signature;
  bool failure;
  std::size_t count = 0;
  std::string first;
};

/// Index of the record with which the last successful load of the NVIDIA driver began; 0 if there is none. The driver
/// registers NVLink's core first, and reports its name when it has the GPUs: errors about a GPU are in between.
std::size_t load_of_driver(const std::vector<KernelRecord>& records) {
  std::size_t begun = 0;
  std::size_t loaded = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].text.starts_with(kDriverLoadBegins)) begun = i;
    if (records[i].text.starts_with(kDriverLoaded)) loaded = begun;
  }
  return loaded;
}

/// Addresses of the GPUs that take no part.
std::vector<std::string> left_out_of(const std::vector<PciDevice>& devices) {
  std::vector<std::string> addresses;
  for (const PciDevice& device : devices)
    if (!device.left_out.empty()) addresses.push_back(device.address);
  return addresses;
}

/// Inputs of the search in a log.
struct Search {
  const std::vector<KernelRecord>& records;
  const GpuFunctions& gpus;
  const GpuFunctions& left_out;
  std::size_t load;  ///< record at which the driver's load began, see load_of_driver()

  /// True if a failure of `row` in record `i` concerns one of this machine's GPUs now.
  bool holds(const Signature& row, std::size_t i) const {
    const auto device = blamed_device(records[i].text);
    if (i < load || (row.gpu_only && !(device && gpus.hold(*device)))) return false;
    if (device && left_out.hold(*device) && !gpus.hold(*device)) return false;
    if (row.cures.empty()) return true;
    return std::none_of(records.begin() + static_cast<std::ptrdiff_t>(i), records.end(),
                        [&](const KernelRecord& later) {
                          if (!row.cured_by(later.text)) return false;
                          const auto cured = blamed_device(later.text);
                          return !device || (cured && device->names(*cured));
                        });
  }

  /// Adds the matches of `row`: failures separately from those of other devices, earlier drivers, and cured ones.
  void look_for(const Signature& row, std::vector<Match>& matches) const {
    Match failure{&row, true, 0, {}};
    Match note{&row, false, 0, {}};
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (!row.matches(records[i].text)) continue;
      Match& match = row.failure && holds(row, i) ? failure : note;
      if (match.count++ == 0) match.first = records[i].line().substr(0, kShownBytes);
    }
    for (const Match& match : {failure, note})
      if (match.count != 0) matches.push_back(match);
  }
};

/// " (0000:02:00.0)": the device that the first line blames; empty: it names none.
std::string about(const Match& match) {
  const auto device = blamed_device(match.first);
  if (!device) return "";
  return fmt::format(" ({:04x}:{:02x}:{:02x}{})", device->domain.value_or(0), device->bus, device->device,
                     device->function ? fmt::format(".{}", *device->function) : "");
}

void judge(const KernelLog& log, const std::vector<Match>& matches, Finding& finding) {
  const std::string doubt = log.whole ? "" : "; plain-text log; process names can imitate kernel messages";
  const Match* leading = nullptr;
  std::vector<std::string> others;
  for (const Match& match : matches) {
    if (!match.failure) continue;
    if (leading == nullptr)
      leading = &match;
    else
      others.push_back(match.signature->id);
  }
  const auto endangers = [](const Match& match) { return match.failure && match.signature->endangers_proof; };
  if (const auto worst = std::ranges::find_if(matches, endangers); worst != matches.end())
    finding.danger = worst->signature->cause;
  if (leading != nullptr)
    finding.set(Verdict::fail,
                fmt::format("{}: {}{}{}{}{}", leading->signature->id, leading->signature->cause, about(*leading),
                            others.empty() ? "" : "; also ", fmt::join(others, ", "), doubt),
                leading->signature->fix);
  else
    finding.set(Verdict::pass, fmt::format("no sign of a known failure in {} {}{}{}", log.records.size(),
                                           log.records.size() == 1 ? "line" : "lines",
                                           log.complete ? "" : "; the log does not reach back to the boot", doubt));
}

Result<Finding> check(const Host& host, const Parameters&) {
  const std::vector<Signature> table = TRY(signatures());
  const KernelLog log = TRY(kernel_log(host));
  if (log.records.empty()) return fail(ErrorCode::invalid, log.source + " is empty: it shows nothing of this boot");
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  const GpuFunctions gpus(devices, nvidia_gpus(devices));
  const GpuFunctions left_out(devices, left_out_of(devices));
  const Search search{log.records, gpus, left_out, load_of_driver(log.records)};
  std::vector<Match> matches;
  for (const Signature& row : table)
    if (row.log == "kernel") search.look_for(row, matches);

  Finding finding;
  finding.facts = {{"failures", nlohmann::json::array()}, {"notes", nlohmann::json::array()}};
  for (const Match& match : matches) {
    finding.facts[match.failure ? "failures" : "notes"].push_back(
        {{"id", match.signature->id}, {"lines", match.count}, {"first_line", match.first}});
    finding.saw(log.source, match.first);
  }
  judge(log, matches, finding);
  return finding;
}

}  // namespace

extern const Probe kKernelLog = {
    .id = "kernel-log",
    .asserts = "the kernel's log of this boot, as far as it is kept, has no known sign of a failure",
    .check = check,
    .tells_danger = true,
    .skip_on_image = true,
};

}  // namespace p2pd
