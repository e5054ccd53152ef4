// SPDX-License-Identifier: MIT
#include "protocol/error.hpp"

#include <algorithm>
#include <array>

#include "base/json_members.hpp"

namespace p2pd {
namespace {

struct Name {
  ErrorCode code;
  const char* on_the_bus;
};
constexpr std::array kNames = {
    Name{ErrorCode::io, "org.p2pd1.Error.Io"},
    Name{ErrorCode::not_found, "org.p2pd1.Error.NotFound"},
    Name{ErrorCode::invalid, "org.p2pd1.Error.Invalid"},
    Name{ErrorCode::denied, "org.p2pd1.Error.Denied"},
    Name{ErrorCode::timeout, "org.p2pd1.Error.Timeout"},
    Name{ErrorCode::command, "org.p2pd1.Error.Command"},
    Name{ErrorCode::interrupted, "org.p2pd1.Error.Interrupted"},
    Name{ErrorCode::busy, "org.p2pd1.Error.Busy"},
    Name{ErrorCode::state, "org.p2pd1.Error.State"},
    Name{ErrorCode::database_quarantined, "org.p2pd1.Error.Unavailable"},
};

}  // namespace

nlohmann::json to_json(const Error& error) {
  return {{"code", to_string(error.code)}, {"message", error.message}, {"next", error.next}};
}

Error error_from_json(const nlohmann::json& error) {
  const auto text = [&](const char* key) {
    const nlohmann::json& value = field_of(error, key);
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  const auto* name = std::ranges::find(kNames, text("code"), [](const Name& known) { return to_string(known.code); });
  return {name == kNames.end() ? ErrorCode::io : name->code, text("message"), text("next")};
}

const char* bus_error_name(ErrorCode code) { return std::ranges::find(kNames, code, &Name::code)->on_the_bus; }

std::optional<ErrorCode> error_code_of(std::string_view bus_error_name) {
  const auto* name = std::ranges::find(kNames, bus_error_name, &Name::on_the_bus);
  return name == kNames.end() ? std::nullopt : std::optional(name->code);
}

}  // namespace p2pd
