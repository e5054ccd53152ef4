// SPDX-License-Identifier: MIT
#include "probes/bench/collectives/nccl.hpp"

#include <dlfcn.h>

#include "probes/bench/report/text.hpp"

namespace p2pd::bench::nccl {

Result<Functions> load(const std::vector<std::string>& libraries) {
  std::string why;
  for (const std::string& name : libraries) {
    void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      why += (why.empty() ? "" : "; ") + plain(::dlerror());
      continue;
    }
    Functions functions;
#define F(result, symbol, ...)                                                                \
  functions.symbol = reinterpret_cast<decltype(functions.symbol)>(::dlsym(library, #symbol)); \
  if (functions.symbol == nullptr) return fail(ErrorCode::not_found, name + " has no " #symbol);
    P2PD_NCCL_FUNCTIONS(F)
#undef F
    return functions;
  }
  return fail(ErrorCode::not_found, why);
}

}  // namespace p2pd::bench::nccl
