// SPDX-License-Identifier: MIT
#pragma once

// Literals of the library make every file that includes it instantiate the whole parser, a fifth of a compilation, for
// nothing. These macros turn their bodies into unused templates. No effect if it writes operator""_json (3.11.3).
#define _json(text, size)   \
  _json(text, size);        \
  template <typename Never> \
  Never never_parsed(text, size)
#define _json_pointer(text, size) \
  _json_pointer(text, size);      \
  template <typename Never>       \
  Never never_pointed(text, size)
#include <nlohmann/json.hpp>
#undef _json
#undef _json_pointer

#include <string_view>

extern template class nlohmann::basic_json<>;  // instantiated once, in json.cpp

namespace p2pd {

/// Parses a JSON document; `is_discarded()` if `text` is none.
nlohmann::json parse_json(std::string_view text);

}  // namespace p2pd
