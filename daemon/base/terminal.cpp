// SPDX-License-Identifier: MIT
#include "base/terminal.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace p2pd {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool obeys_escapes(int fd) { return ::isatty(fd) == 1 && variable("TERM") != "dumb"; }

bool has_colours(int fd) { return obeys_escapes(fd) && variable("NO_COLOR").empty(); }

}  // namespace p2pd
