// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

namespace p2pd {

/// Strings of a row of a table. It is a call because clang-format puts several arguments, but not several
/// items of a long braced list, on a line.
template <class... Literal>
std::vector<const char*> strings(Literal... literals) {
  return {literals...};
}

}  // namespace p2pd
