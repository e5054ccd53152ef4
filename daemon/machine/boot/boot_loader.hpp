// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/action.hpp"
#include "base/host.hpp"
#include "base/result.hpp"

namespace p2pd {

/// A boot loader that can try kernel arguments for one boot, as a row of functions.
///
/// The trial is an entry beside the default one: it is written, chosen for one boot, then made the default or removed.
/// The engine restores files that are recorded with their bytes; `undo` does the rest.
struct BootLoader {
  using Arguments = std::vector<std::string>;

  std::string_view id;  ///< "grub", "systemd-boot"
  /// Adds files and commands, and what may prevent a trial. An Error: this machine cannot try arguments.
  Result<void> (*describe)(const Host&, const Arguments&, Description&);
  /// Writes the trial entry: the entry that boots without it, with `arguments` and those that are on trial already.
  Result<void> (*write_trial)(Host&, const Arguments&);
  /// Chooses the trial entry for the next boot, and only for that one.
  Result<void> (*arm)(Host&, const Arguments&);
  /// Takes that choice back.
  Result<void> (*disarm)(Host&);
  /// Makes `arguments` and those on trial permanent, in one step for each boot, and removes the trial entry.
  Result<void> (*make_default)(Host&, const Arguments&);
  /// Makes sure that `undo` can succeed; see Action.
  Result<void> (*prepare_undo)(Host&, const Arguments&);
  /// Removes the trial entry, and `arguments` from what boots by default, unless an earlier run made them permanent.
  Result<void> (*undo)(Host&, const Arguments&);
};

inline constexpr std::string_view kTrialArgument = "p2pd.trial=1";  ///< mark of a trial boot
inline constexpr std::string_view kTrialPanic =
    "panic=30";  ///< seconds until a trial that panics reboots into the default

/// Name and version from the loader itself, such as "systemd-boot 252.22-1~deb12u1" (EFI variable LoaderInfo); empty if
/// it gave none.
Result<std::string> loader_info(const Host& host);
bool boots_by_systemd_boot(const Host& host);

/// The boot loader of a running host, or GRUB, whose files an image gets; ErrorCode::invalid: none that can try
/// arguments.
Result<const BootLoader*> boot_loader(const Host& host);

/// Arguments that p2pd made permanent on this host, or in this image; ErrorCode::invalid: see drop_in_arguments().
Result<std::vector<std::string>> permanent_arguments(const Host& host);

/// How a person adds kTheArguments, or kTheGrubArguments, on this host, one sentence; assess() puts the wanted ones in
/// their place.
std::string add_arguments_by_hand(const Host& host);

/// Error if systemd-boot of this host cannot boot an entry once; ErrorCode::denied: known to root alone.
Result<void> systemd_boot_can_try(const Host& host);

/// Line "# arguments: ..." by which a file of p2pd notes kernel arguments, and those of such a file.
std::string arguments_note(const std::vector<std::string>& arguments);
std::vector<std::string> noted_arguments(std::string_view text);

/// Content of `path`; empty if it does not exist.
Result<std::string> read_if_any(const Host& host, std::string_view path);

inline constexpr std::string_view kBootArguments =
    "/var/lib/p2pd/boot-arguments";  ///< notes what is permanent in boot entries that systemd-boot reads

extern const BootLoader kGrubLoader;
extern const BootLoader kSystemdBoot;

}  // namespace p2pd
