// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

// Instantiated once, in json.cpp: in each file they would take a third of its compilation. The parser is there for all who
// include the library's header, which uses it in its literals.
extern template class nlohmann::basic_json<>;
extern template nlohmann::json nlohmann::json::parse(const char*, const char*, nlohmann::json::parser_callback_t, bool, bool);

namespace p2pd {

/// A JSON document; `is_discarded()` where `text` is none.
nlohmann::json parse_json(std::string_view text);

}  // namespace p2pd
