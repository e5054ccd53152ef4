// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string_view>

#include "base/json.hpp"
#include "base/result.hpp"

namespace p2pd {

/// Error as JSON, on the worker's socket and in the status: {"code": "state", "message": "...", "next": "..."}.
nlohmann::json to_json(const Error& error);
/// Error from such an object, which comes from outside: a code that is unknown or missing is ErrorCode::io.
Error error_from_json(const nlohmann::json& error);

/// Name of an error reply on the bus. The arguments of the reply are message and next step.
const char* bus_error_name(ErrorCode code);
/// Code of an error reply; nothing if the error is none of the service.
std::optional<ErrorCode> error_code_of(std::string_view bus_error_name);

}  // namespace p2pd
