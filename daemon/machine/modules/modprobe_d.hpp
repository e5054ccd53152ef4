// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/host.hpp"
#include "base/parameters.hpp"
#include "base/result.hpp"

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

/// Parses the value of `option`, kRegistryDwords or kDeviceDwords; there, the keys have the names of device_key(), and
/// those before the first "pci=" count for no GPU.
Dwords parse_dwords(std::string_view option, std::string_view value);
std::string dwords_text(std::string_view option, Dwords dwords);

/// Name of a registry key of one GPU in parameters, findings and Dwords: "0000:01:00.0/RMForceStaticBar1".
std::string device_key(std::string_view address, std::string_view key);
bool is_device_key(std::string_view name);

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

/// Text of the drop-in of `host` once `parameters` are merged into it: options of earlier steps stay, and
/// RegistryDwords and RegistryDwordsPerDevice include the keys of other files too, since only the last line of a name
/// counts. A key of single GPUs replaces p2pd's own key of that name for all or for other GPUs.
/// ErrorCode::invalid if p2pd did not write the file.
Result<std::string> modprobe_drop_in(const Host& host, const Parameters& parameters);

/// File that keeps the new modules from being loaded, for a device or by name, until P2P is proven. Of install lines
/// for one module libkmod uses the first, in the order of file names.
inline constexpr std::string_view kTrialBan = "/etc/modprobe.d/00-p2pd-trial.conf";

/// Form of `name` that the kernel compares: '_' for '-'.
std::string kernel_name(std::string_view name);

/// Files of `directory` ("modprobe.d", "depmod.d") that libkmod reads, in its order: base name to path; of equal names
/// the first of /etc, /run, /usr/local/lib, /usr/lib, /lib.
Result<std::map<std::string, std::string>> kmod_files(const Host& host, std::string_view directory);

/// Modules of Linux itself that drive NVIDIA GPUs, in the order in which they can be unloaded: Nova, since Linux 7.0,
/// whose PCI driver is called NovaCore, and nouveau.
inline constexpr std::array<std::string_view, 4> kLinuxDrivers = {"nova_drm", "nova", "nova_core", "nouveau"};

/// A module that modprobe.d keeps from being loaded for a device: by `blacklist`, by an `install` line that runs true
/// or false, or by `alias NAME off`.
struct BannedModule {
  std::string module;
  std::string source;  ///< file:line
};
Result<std::vector<BannedModule>> banned_modules(const Host& host);

/// A line as libkmod reads it: a backslash joins it with the next, and is removed before anything else.
struct ModprobeLine {
  std::string text;
  int number = 0;  ///< number of its first physical line
};
std::vector<ModprobeLine> modprobe_lines(std::string_view text);

/// A line of a file of modprobe.d or depmod.d: "install nvidia /bin/false".
struct Statement {
  std::string verb, module, rest, file;
  int line = 0;

  std::string source() const { return file + ":" + std::to_string(line); }
};

std::vector<Statement> statements_of(std::string_view text, const std::string& file);

/// First install line of modprobe.d that libkmod uses for `module`, except those of kTrialBan; nullopt if it
/// loads the module itself.
Result<std::optional<Statement>> install_line(const Host& host, std::string_view module);

/// Takes the first word off `rest`; blanks are spaces and tabs.
std::string_view take_word(std::string_view& rest);

}  // namespace p2pd
