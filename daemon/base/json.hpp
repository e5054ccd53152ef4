// SPDX-License-Identifier: MIT
#pragma once

// The library's literals have every file that includes it instantiate the whole parser, a fifth of a compilation, to throw it
// away: their bodies become those of templates that nobody uses. Where it writes operator""_json (3.11.3) this does nothing.
#define _json(text, size) _json(text, size); template <typename Never> Never never_parsed(text, size)
#define _json_pointer(text, size) _json_pointer(text, size); template <typename Never> Never never_pointed(text, size)
#include <nlohmann/json.hpp>
#undef _json
#undef _json_pointer

#include <string_view>

extern template class nlohmann::basic_json<>;  // instantiated once, in json.cpp

namespace p2pd {

/// A JSON document; `is_discarded()` where `text` is none.
nlohmann::json parse_json(std::string_view text);

}  // namespace p2pd
