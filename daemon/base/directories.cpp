// SPDX-License-Identifier: MIT
#include "base/directories.hpp"

#include <cstdlib>

namespace p2pd {
namespace {

std::string environment_or(const char* name, const char* usual) {
  const char* other = std::getenv(name);
  return other != nullptr && *other != '\0' ? other : usual;
}

}  // namespace

std::filesystem::path state_directory(const std::filesystem::path& root) {
  std::error_code error;
  std::string path =
      std::filesystem::weakly_canonical(root, error);  // same path for every name of the tree, as for the lock
  if (error) path = std::filesystem::absolute(root).lexically_normal();
  if (path == "/") return environment_or("P2PD_STATE", "/var/lib/p2pd");
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path + ".p2pd";
}

std::string runtime_directory() { return environment_or("P2PD_RUNTIME", "/run/p2pd"); }

std::string proof_report_file() { return state_directory() / "proof.json"; }

}  // namespace p2pd
