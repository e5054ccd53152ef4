// SPDX-License-Identifier: MIT
// p2pd-worker: the root worker. Without an argument it serves its socket and walks. "prove", "reassert": each boot;
// "new-kernel": a kernel.
#include <fmt/format.h>

#include <exception>
#include <string_view>

#include "actions/registry.hpp"
#include "probes/registry.hpp"
#include "worker/service.hpp"

int main(int argc, char** argv) {
  const p2pd::Registry registry{p2pd::probes(), p2pd::actions()};
  const std::string_view word = argc > 1 ? argv[1] : "";
  try {
    if (word.empty()) return p2pd::serve(registry);
    if (word == "prove") return p2pd::prove(registry);
    if (word == "reassert") return p2pd::reassert(registry);
    if (word == "new-kernel") return p2pd::add_kernel(registry);
    fmt::print(stderr, "usage: p2pd-worker [prove|reassert|new-kernel]\n");
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "p2pd-worker: unexpected: {}\n", error.what());
    return 1;
  }
}
