// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>

namespace p2pd {

/// Directory of a tree's state: /var/lib/p2pd for the running system (P2PD_STATE names another). For another root it is
/// beside the tree ("DIR.p2pd"), because the state of a machine must never travel in an image.
std::filesystem::path state_directory(const std::filesystem::path& root = "/");

/// Directory of files that last for one boot: status, socket, ready file; /run/p2pd, or P2PD_RUNTIME.
std::string runtime_directory();

/// File of the running system with the report of its last full proof, p2pd.bench/1; root and group p2pd read it.
std::string proof_report_file();

}  // namespace p2pd
