// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>

namespace p2pd {

/// Where the state of a tree lies: /var/lib/p2pd for the running system (P2PD_STATE names another). For another root it
/// lies beside the tree ("DIR.p2pd"), because state of a machine must never travel in an image.
std::filesystem::path state_directory(const std::filesystem::path& root = "/");

/// Where what lasts for one boot lies: status, socket, ready file; /run/p2pd, or P2PD_RUNTIME.
std::string runtime_directory();

}  // namespace p2pd
