// SPDX-License-Identifier: MIT
// The functions of libsystemd that p2pctl calls, for P2PD_PORTABLE: each jumps to the one of this machine's libsystemd;
// where that is missing, it returns -ENOSYS. Reference: dlopen(3).
#include <dlfcn.h>

#include <cerrno>

#define FUNCTIONS(each)                                                                                            \
  each(sd_booted) each(sd_bus_call_async) each(sd_bus_error_has_name) each(sd_bus_flush_close_unref)               \
      each(sd_bus_get_events) each(sd_bus_get_fd) each(sd_bus_match_signal) each(sd_bus_message_append)            \
          each(sd_bus_message_get_error) each(sd_bus_message_is_method_error) each(sd_bus_message_new_method_call) \
              each(sd_bus_message_read) each(sd_bus_message_ref) each(sd_bus_message_rewind)                       \
                  each(sd_bus_message_unref) each(sd_bus_open_system) each(sd_bus_open_system_remote)              \
                      each(sd_bus_process) each(sd_bus_set_allow_interactive_authorization)                        \
                          each(sd_bus_set_method_call_timeout) each(sd_bus_slot_unref) each(sd_bus_wait)           \
                              each(sd_journal_send) each(sd_journal_sendv)

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
