// SPDX-License-Identifier: MIT
// One libFuzzer program of all targets: its own file name, "fuzz_plan", selects one. Reference: libFuzzer of
// LLVM.
#include "fuzz.hpp"

namespace {

p2pd::fuzz::Target chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(const int* /*argc*/, char*** argv) {
  const std::string name = std::filesystem::path((*argv)[0]).filename();
  const auto found = p2pd::fuzz::targets().find(name.substr(name.find('_') + 1));
  if (found != p2pd::fuzz::targets().end()) {
    chosen = found->second;
    return 0;
  }
  std::cerr << "call it as fuzz_TARGET, of:";
  for (const auto& [target, run] : p2pd::fuzz::targets()) std::cerr << ' ' << target;
  std::cerr << '\n';
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen({reinterpret_cast<const char*>(data), size});
  return 0;
}
