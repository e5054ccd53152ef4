// SPDX-License-Identifier: MIT
// What a record and a report leave out.
#include "redaction.hpp"

#include "fuzz.hpp"

/// Any text around a secret: the secret does not survive, and a second redaction changes nothing.
FUZZ(redaction) {
  if (input.find("Zq") != std::string_view::npos) return;
  const std::size_t middle = input.size() / 2;
  const std::string broken =
      test::broken_redaction(std::string(input.substr(0, middle)), std::string(input.substr(middle)));
  require(broken.empty(), broken);
}
