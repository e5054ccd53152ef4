// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "base/host.hpp"

namespace p2pd {

/// Removes files that a killed installer had installed and not noted yet: it notes each file after that, so that
/// neither its uninstaller nor a second run would recognise them. `unpacked`: directory of the runfile's content.
/// A file of that name that has other content, or that belongs to a package, stays.
Result<void> clear_unnoted_files(Host& host, const std::string& unpacked);

}  // namespace p2pd
