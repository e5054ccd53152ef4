// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

#include "base/host.hpp"
#include "fake_runner.hpp"
#include "temporary.hpp"

namespace p2pd::fuzz {

using Target = void (*)(std::string_view input);

/// Every target by its name.
inline std::map<std::string_view, Target>& targets() {
  static std::map<std::string_view, Target> all;
  return all;
}

/// FUZZ(name) { ... }: the body of the target `name` for one `input`.
#define FUZZ(name)                                                                       \
  namespace p2pd::fuzz {                                                                 \
  void run_##name(std::string_view input);                                               \
  [[maybe_unused]] const bool kHas_##name = targets().emplace(#name, run_##name).second; \
  }                                                                                      \
  void p2pd::fuzz::run_##name(std::string_view input)

/// Ends the target with a finding unless `condition`.
inline void require(bool condition, std::string_view what) {
  if (condition) return;
  std::cerr << "finding: " << what << '\n';
  std::abort();
}

/// A directory of this process, and a host whose root it is; commands are refused.
struct Tree {
  test::TemporaryDirectory directory;
  test::FakeRunner runner;
  Host host{Root::open(directory.path()).value(), runner};

  void write(const std::string& path, std::string_view content) const {
    std::filesystem::create_directories((directory / path).parent_path());
    std::ofstream(directory / path, std::ios::binary) << content;
  }
};

}  // namespace p2pd::fuzz
