// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/parameters.hpp"
#include "base/result.hpp"

namespace p2pd {

/// One argument of the kernel command line: `key` or `key=value`, without quotes.
struct KernelArgument {
  std::string key;
  std::optional<std::string> value;

  bool operator==(const KernelArgument&) const = default;
  std::string text() const;
};

/// Parses `text` as one argument: the text before the first '=' is the key.
KernelArgument kernel_argument(std::string_view text);

/// Parses a command line by the kernel's rules: double quotes span spaces, "--" ends the arguments.
std::vector<KernelArgument> parse_kernel_line(std::string_view line);

/// State of one wanted argument on a command line.
struct ArgumentState {
  bool in_force = false;
  std::string running;  ///< last argument of that key, which decides; empty if there is none
};

/// Checks that `wanted` is in force on `line`. '-' and '_' are equal in keys. The rule depends on the key:
/// - `pci`: every comma option of every occurrence counts; of options with one name the last;
/// - `iommu`, `intel_iommu`, `amd_iommu`: the last occurrence has every wanted comma option;
/// - `console`, `modprobe.blacklist`: any occurrence is equal;
/// - any other key: the last occurrence is equal.
ArgumentState argument_state(const KernelArgument& wanted, const std::vector<KernelArgument>& line);

/// Checks that every one of `wanted` is in force on `line`.
bool all_in_force(const std::vector<std::string>& wanted, const std::vector<KernelArgument>& line);

/// Checks that parameter `arguments` has at least one, and that each can pass through sh and GRUB.
Result<void> validate_kernel_arguments(const Parameters& parameters);

/// Word of a plan for "disable ACS redirect at the ports that matter"; plan/resolve.hpp inserts the ports.
inline constexpr std::string_view kChosenAcsArgument = "pci=disable_acs_redir=chosen";

/// Addresses of the ports at which `line` asks the kernel to clear ACS redirect: of the last pci=disable_acs_redir=.
std::vector<std::string> ports_without_acs_redirect(const std::vector<KernelArgument>& line);

/// Checks for a release of Linux ("6.11.0-26-generic") that may leave ACS redirect of the firmware as it is where
/// pci=disable_acs_redir= asks to clear it: 6.11 to 6.14, before 6.12.23, 6.13.11 and 6.14.2. A distribution's release
/// may have the correction without having one of these numbers.
bool may_keep_acs_redirect(std::string_view release);

/// Words in a `next` that stand for the arguments which a step wants; assess() puts them there.
inline constexpr std::string_view kTheArguments = "the kernel arguments";
/// The same as GRUB reads them, whose commands end at a ";".
inline constexpr std::string_view kTheGrubArguments = "the kernel arguments as GRUB reads them";

/// Values of parameter `arguments`, without repetitions.
std::vector<std::string> wanted_kernel_arguments(const Parameters& parameters);

/// What `arguments` cost in security, for people; empty: nothing.
std::string isolation_cost(const std::vector<std::string>& arguments);

/// Returns `first` without what `second` overrides, then those of `second` that it lacks.
std::vector<std::string> merged_arguments(std::vector<std::string> first, const std::vector<std::string>& second);

}  // namespace p2pd
