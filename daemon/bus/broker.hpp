// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

#include "bus/manager.hpp"

namespace p2pd {

/// Answers the bus until nothing has been asked for a while, SIGTERM comes, or the bus goes; the exit code.
int answer_the_bus(const std::filesystem::path& state, Manager::Gpus gpus);

}  // namespace p2pd
