// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

#include "bus/manager.hpp"

namespace p2pd {

/// Answers the bus until no request has come for a while, SIGTERM arrives, or the bus ends. Returns the exit code.
int answer_the_bus(const std::filesystem::path& state, Manager::Gpus gpus);

}  // namespace p2pd
