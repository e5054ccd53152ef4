// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/host.hpp"

namespace p2pd::ctl {

constexpr std::size_t kScreen = 78;  ///< characters in a line of 80 columns

/// `text` if it has at most `limit` characters; otherwise without the parts in parentheses, then cut, where a clause
/// ends if possible. Cuts long words.
std::string shortened(const std::string& text, std::size_t limit);

/// "2 x GeForce RTX 4090; Ubuntu 24.04; Linux 6.14.0-37-generic; driver 580.95.05", at most two lines.
std::string machine_text(const Host& host);

}  // namespace p2pd::ctl
