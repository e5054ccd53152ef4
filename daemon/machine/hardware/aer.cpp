// SPDX-License-Identifier: MIT
// Reference: the kernel's Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats.
#include "machine/hardware/aer.hpp"

#include <fmt/format.h>

#include <sstream>

namespace p2pd {

Result<std::map<std::string, std::uint64_t>> aer_counts(const Host& host, std::string_view address,
                                                        std::string_view severity) {
  std::istringstream lines(
      TRY(host.files().read(fmt::format("/sys/bus/pci/devices/{}/aer_dev_{}", address, severity), 4096)));
  std::map<std::string, std::uint64_t> counts;
  for (auto [name, count] = std::pair(std::string(), std::uint64_t{0}); lines >> name >> count;) counts[name] = count;
  return counts;
}

}  // namespace p2pd
