// SPDX-License-Identifier: MIT
#include "base/json.hpp"

template class nlohmann::basic_json<>;

namespace p2pd {

nlohmann::json parse_json(std::string_view text) {
  return nlohmann::json::parse(text.data(), text.data() + text.size(), nullptr, false);
}

}  // namespace p2pd
