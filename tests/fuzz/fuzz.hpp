// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>

#include "base/host.hpp"
#include "fake_runner.hpp"
#include "temporary.hpp"

namespace p2pd::fuzz {

/// What the target says of one input.
void run(std::string_view input);

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

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  p2pd::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
