// SPDX-License-Identifier: MIT
// The functions of libsystemd, for P2PD_PORTABLE: each jumps to the one of this machine's libsystemd;
// where that is missing, it returns -ENOSYS. Reference: dlopen(3).
#include <dlfcn.h>

#include <cerrno>

#include "late_systemd.inc"  // FUNCTIONS: each word of the sources that begins as one

namespace {

int absent() { return -ENOSYS; }

}  // namespace

#define SLOT(name)   \
  extern "C" {       \
  void* late_##name; \
  }                  \
  asm(".text\n.globl " #name "\n.type " #name ",@function\n" #name ": jmp *late_" #name "(%rip)");
FUNCTIONS(SLOT)

namespace {

__attribute__((constructor)) void open_systemd() {
  void* const library = ::dlopen("libsystemd.so.0", RTLD_LAZY);
  const auto find = [&](const char* name) {
    void* const found = library == nullptr ? nullptr : ::dlsym(library, name);
    return found == nullptr ? reinterpret_cast<void*>(absent) : found;
  };
#define FIND(name) late_##name = find(#name);
  FUNCTIONS(FIND)
}

}  // namespace
