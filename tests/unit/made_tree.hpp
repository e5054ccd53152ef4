// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "base/probe.hpp"
#include "fake_runner.hpp"
#include "temporary.hpp"

namespace p2pd::test {

/// A tree of files for a probe, with commands that give the results that a test sets.
struct MadeTree {
  void put(const std::string& path, std::string_view content = "x") const { directory.put(path, content); }
  /// One NVIDIA GPU on the bus, by the last four digits of its id in the order of a dump: "84 26" is an RTX 4090.
  void gpu(const std::string& id) const {
    put("lspci-xxxx.txt", "0000:01:00.0 GPU\n00: de 10 " + id + " 00 00 00 00 a1 00 00 03 00 00 00 00\n\n");
  }

  TemporaryDirectory directory;
  FakeRunner runner;
  Host host{Root::open(directory.path()).value(), runner};
};

}  // namespace p2pd::test
