// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/host.hpp"
#include "base/parameters.hpp"
#include "base/result.hpp"
#include "machine/modules/modprobe_files.hpp"

namespace p2pd {

inline constexpr std::string_view kModprobeDropIn = "/etc/modprobe.d/zz-p2pd.conf";
inline constexpr std::string_view kRegistryDwords = "NVreg_RegistryDwords";  ///< option of module nvidia: "a=1;b=0x2"
inline constexpr std::string_view kDeviceDwords =
    "NVreg_RegistryDwordsPerDevice";  ///< the same for single GPUs: "pci=0000:01:00.0;a=1;pci=0000:02:00.0;a=2"

/// One option that modprobe gives to a module; '-' is '_' in the names, as for the kernel.
struct ModuleOption {
  std::string module;
  std::string name;
  std::string value;
  std::string file;  ///< modprobe.d file that sets it, or /proc/cmdline
  int line = 0;      ///< line from 1; 0 in /proc/cmdline

  std::string source() const { return line == 0 ? file : file + ":" + std::to_string(line); }
};

/// Options that modprobe would give, in its order: of one name, the last wins. Reads as libkmod does: modprobe.d
/// of /etc, /run, /usr/local/lib, /usr/lib, /lib by file name, of equal names the first; then the kernel command line.
/// `drop_in`, if given, replaces kModprobeDropIn.
Result<std::vector<ModuleOption>> module_options(const Host& host, const std::optional<std::string>& drop_in = {});

/// Parses the options lines of one modprobe.d file. ErrorCode::invalid names the line with a quotation mark that is not
/// closed.
Result<std::vector<ModuleOption>> parse_modprobe_d(std::string_view text, std::string_view file);

/// Keys of a RegistryDwords value, in order, each once with its last value.
using Dwords = std::vector<std::pair<std::string, std::string>>;
Dwords parse_dwords(std::string_view value);
std::string dwords_text(const Dwords& dwords);

/// Name of a registry key of one GPU in parameters, findings and Dwords: "0000:01:00.0/RMForceStaticBar1".
std::string device_key(std::string_view address, std::string_view key);
bool is_device_key(std::string_view name);
/// Keys of a RegistryDwordsPerDevice value under these names. Keys before the first "pci=" count for no GPU.
Dwords parse_device_dwords(std::string_view value);

/// Checks that parameters `module`, `options` and `registry_dwords` fit into an options line.
Result<void> validate_module_options(const Parameters& parameters);

/// One wanted option or registry key, and its configured value.
struct OptionState {
  std::string name;
  bool dword = false;  ///< a key in kRegistryDwords or kDeviceDwords
  std::string wanted;
  std::optional<std::string> configured;  ///< nullopt if no file sets it
  std::string source;                     ///< file and line that decide; empty if none does
  bool holds = false;
};

/// States of the option and registry keys of `parameters` among `options`.
std::vector<OptionState> option_states(const std::vector<ModuleOption>& options, const Parameters& parameters);

/// Parses a number as the kernel and the NVIDIA driver do: hexadecimal after 0x, octal after 0, else decimal. A
/// negative one becomes 32 bits, as the driver shows it. nullopt if `text` is no number.
std::optional<std::uint64_t> kernel_number(std::string_view text);

/// Checks that two values mean the same to the kernel: equal text, equal numbers, and 1, y or on beside the Y of a
/// switch.
bool same_value(std::string_view left, std::string_view right);

/// Checks that a registry key has the wanted value; bits of ForceP2P beyond the wanted ones do no harm: 0x111 gives
/// atomics besides the reads and writes of 0x11.
bool same_dword(std::string_view key, std::string_view there, std::string_view wanted);

/// Text of the drop-in of `host` once `parameters` are merged into it: options of earlier steps stay, and
/// RegistryDwords and RegistryDwordsPerDevice include the keys of other files too, since only the last line of a name
/// counts. A key of single GPUs replaces p2pd's own key of that name for all or for other GPUs.
/// ErrorCode::invalid if p2pd did not write the file.
Result<std::string> modprobe_drop_in(const Host& host, const Parameters& parameters);

}  // namespace p2pd
