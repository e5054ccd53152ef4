// SPDX-License-Identifier: MIT
#include "machine/modules/build_log.hpp"

#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <set>

#include "base/signatures.hpp"
#include "catch.hpp"

using namespace p2pd;

namespace {

bool holds(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// Build log from a user's report, reworded, and its meaning.
struct Case {
  std::string name;
  std::string log;
  std::string signature;  ///< empty: none fits
  std::string line;       ///< a part of the reported line
  std::string next;       ///< a part of the next step
};

/// Output of apport's hook for DKMS, which is no cause.
std::string apport(const std::string& release) {
  return fmt::format("ERROR (dkms apport): kernel package linux-headers-{} is not supported\n", release);
}

/// Last lines of DKMS after any build error.
std::string dkms_end(const std::string& tree, const std::string& release) {
  return fmt::format(
      "Building module:\ncleaning build area...\nmake -j8 KERNEL_UNAME={1} modules......(bad exit status: 2)\n"
      "Error! Bad return status for module build on kernel: {1} (x86_64)\n"
      "Consult /var/lib/dkms/{0}/build/make.log for more information.\n",
      tree, release);
}

/// Errors of dpkg for a package whose script failed.
std::string dpkg_chain(const std::string& package, int status) {
  return fmt::format(
      "dpkg: error processing package {0} (--configure):\n"
      " installed {0} package post-installation script subprocess returned error exit status {1}\n"
      "dpkg: dependency problems prevent configuration of nvidia-driver:\n nvidia-driver depends on {0}; however:\n"
      "  Package {0} is not configured yet.\nErrors were encountered while processing:\n {0}\n"
      "E: Sub-process /usr/bin/dpkg returned an error code (1)\n",
      package, status);
}

/// Errors of make, one for each level that passes a failure on.
std::string make_end(const std::string& object, const std::string& error) {
  return fmt::format(
      "make[3]: *** [scripts/Makefile.build:250: {0}] {1} 1\nmake[2]: *** [/usr/src/linux/Makefile:1943: /b] {1} 2\n"
      "make[1]: *** [Makefile:234: __sub-make] {1} 2\nmake: *** [Makefile:82: modules] {1} 2\n",
      object, error);
}

std::vector<Case> dkms_cases() {
  return {
      {"dkms-ubuntu-3.4rc-generic-fail",
       "[B]Setting up nvidia-current ...[/B]\n[COLOR=\"Red\"]" +
           dkms_end("nvidia-current/295.40", "3.4.0-030400rc4-generic") + "[/COLOR]" + dpkg_chain("nvidia-current", 10),
       "", "Bad return status", "/var/lib/dkms/nvidia-current/295.40/build/make.log"},
      {"dkms-debian12-470-dpkg-chain",
       dkms_end("nvidia-current/470.223.02", "6.1.0-18-amd64") + dpkg_chain("nvidia-kernel-dkms", 10), "",
       "Bad return status", "/var/lib/dkms/nvidia-current/470.223.02/build/make.log"},
      {"runfile-installer-dkms-390-kernel56",
       "ERROR: Failed to run `/usr/sbin/dkms build -m nvidia -v 390.87 -k 5.6.0-rc2`:\n"
       "   Error! Bad return status for module build on kernel: 5.6.0-rc2\n   (x86_64)\n"
       "   Consult /var/lib/dkms/nvidia/390.87/build/make.log for more information.\n"
       "ERROR: Failed to install the kernel module through DKMS.\n",
       "", "Failed to run `/usr/sbin/dkms", "/var/lib/dkms/nvidia/390.87/build/make.log"},
      {"dkms-apport-headers-not-supported",
       apport("3.13.0-031300") +
           "Error! Bad return status for module build on kernel: 3.13.0-031300-generic (x86_64)\n"
           "DKMS make.log for nvidia-331 for kernel 3.13.0-031300-generic (x86_64)\n"
           "  ERROR: Kernel configuration is invalid.\n"
           "         include/generated/autoconf.h or include/config/auto.conf are missing.\n" +
           make_end("config", "Error"),
       "kernel-config-invalid", "Kernel configuration is invalid", "Install the headers again"},
      {"proxmox-6.17-pve-550-dkms-error2",
       "make[2]: *** [/usr/src/linux-headers-6.17.13-2-pve/Makefile:2015: modules] Error 2\n"
       "make[1]: *** [Makefile:248: __sub-make] Error 2\nmake: *** [Makefile:115: modules] Error 2\n" +
           dkms_end("nvidia/550.163.01", "6.17.13-2-pve"),
       "", "Makefile:2015: modules] Error 2", "/var/lib/dkms/nvidia/550.163.01/build/make.log"},
      {"popos-6.17-580-open-dkms",
       apport("6.17.9-76061709") + dkms_end("nvidia/580.119.02", "6.17.9-76061709-generic") +
           dpkg_chain("nvidia-dkms-580-open", 10),
       "", "Bad return status", "/var/lib/dkms/nvidia/580.119.02/build/make.log"},
      {"missing-headers-dkms-multi-kernel",
       "cc -c conftest.c\nfatal error: /lib/modules/5.19.1-zen/build/include/generated/autoconf.h: No such file or "
       "directory\ncompilation terminated.\nError! Your kernel headers for kernel 5.18.16-arch1-1 cannot be found at\n"
       "/usr/lib/modules/5.18.16-arch1-1/build or /usr/lib/modules/5.18.16-arch1-1/source.\n"
       "==> ERROR: Missing 5.15.59-lts kernel headers for module nvidia/515.65.01.\n",
       "kernel-headers-missing", "autoconf.h", "Install the headers of exactly that kernel"},
  };
}

std::vector<Case> compiler_cases() {
  return {
      {"kernel614-proc-ops-conftest-misfire",
       "  CC [M]  nvidia/nv-procfs.o\n"
       "nvidia/nv-procfs.c:208:5: error: passing argument 4 of ‘proc_create_data’ from incompatible pointer type "
       "[-Wincompatible-pointer-types]\n"
       "note: expected ‘const struct proc_ops *’ but argument is of type ‘const struct file_operations *’\n" +
           make_end("nvidia/nv-procfs.o", "Error"),
       "conftest-misfire", "proc_create_data", "/proc/version"},
      {"gcc-mismatch-compiler-differs",
       "warning: the compiler differs from the one used to build the kernel\n"
       "  The kernel was built by: gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0\n"
       "  You are using:           gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0\n"
       "gcc: error: unrecognized command-line option ‘-ftrivial-auto-var-init=zero’\n" +
           make_end("x.o", "Error"),
       "compiler-too-old", "-ftrivial-auto-var-init=zero", "set CC"},
      {"void-localised-make-error",
       "  CC [M]  /var/lib/dkms/nvidia/470.239.06/build/nvidia-drm/nvidia-drm-drv.o\n" +
           make_end("/var/lib/dkms/nvidia/470.239.06/build/nvidia-drm/nvidia-drm-drv.o", "Chyba"),
       "", "nvidia-drm-drv.o] Chyba 1", "above line 2"},
      // the end of a log as people paste it: make's report alone
      {"make-report-alone",
       "make[2]: *** [scripts/Makefile.build:243: /build/nvidia-uvm/uvm_hmm.o] Error 1\n"
       "make[1]: *** [/usr/src/linux-headers-6.8.0/Makefile:1925: /build] Error 2\n",
       "", "uvm_hmm.o] Error 1", "above line 1"},
      {"f-595-6.19-objtool-werror",
       "  LD [M]  nvidia.o\n"
       "/build/nvidia.o: error: objtool: libosPreserveLogs+0x5e: 'naked' return found in MITIGATION_RETHUNK build\n"
       "make[4]: *** [/usr/src/linux/scripts/Makefile.build:503: /build/nvidia.o] Error 1\n"
       "make[4]: *** Deleting file '/build/nvidia.o'\n" +
           make_end("/build", "Error"),
       "objtool-werror", "libosPreserveLogs", "CONFIG_OBJTOOL_WERROR="},
      {"f-595.71.05-5.15-folio",
       "nvidia-uvm/uvm_pmm_gpu.c:3282:42: warning: ‘struct folio’ declared inside parameter list\n"
       "nvidia-uvm/uvm_pmm_gpu.c:3284:32: error: invalid use of undefined type ‘struct folio’\n" +
           make_end("nvidia-uvm/uvm_pmm_gpu.o", "Error"),
       "kernel-without-folio", "3284:32", "5.16"},
      {"f-570.153.02-6.15-pgmap",
       "nvidia-uvm/uvm_linux.h:429:32: error: ‘struct page’ has no member named ‘pgmap’\n" +
           make_end("nvidia-uvm/uvm_pmm_gpu.o", "Error"),
       "conftest-misfire", "pgmap", "/proc/version"},
      {"f-595-7.2-strncpy",
       "nvidia/nv-acpi.c:90:5: error: implicit declaration of function ‘strncpy’; did you mean ‘strscpy’? "
       "[-Wimplicit-function-declaration]\n" +
           make_end("nvidia/nv-acpi.o", "Error"),
       "no-strncpy", "strncpy", "Let p2pd build"},
      {"modpost-gpl-rcu-read-unlock-strict-530",
       "   warning: the compiler differs from the one used to build the kernel\n"
       "     The kernel was built by: gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0\n"
       "     You are using:           cc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0\n"
       "   ERROR: modpost: GPL-incompatible module nvidia.ko uses GPL-only symbol '__rcu_read_unlock_strict'\n"
       "   make[3]: *** [scripts/Makefile.modpost:133: Module.symvers] Error 1\n"
       "   make[2]: *** [Makefile:1830: modules] Error 2\n"
       "ERROR: Unable to build the NVIDIA kernel module.\n",
       "gpl-only-symbol", "__rcu_read_unlock_strict", "open kernel modules"},
      {"kernel615-uvm-localised-chinese",
       "nvidia-uvm/uvm_va_block.c:88:9: 错误：隐式声明函数‘uvm_page’ [-Wimplicit-function-declaration]\n"
       "nvidia-uvm/uvm_hmm.c:71:2: 错误：#else 没有匹配的 #if\n   71 | #else\n" +
           make_end("nvidia-uvm/uvm_hmm.o", "错误"),
       "half-applied-patch", "uvm_hmm.c:71:2", "from its pinned commit"},
      {"kernel614-too-few-args-add-memory",
       "nv-mmap.c:30:6: warning: no previous prototype for ‘nv_a’ [-Wmissing-prototypes]\n"
       "nvidia/os-mlock.c:12:5: error: too few arguments to function ‘add_memory_driver_managed’\n"
       "nv-pat.c:90:6: warning: no previous prototype for ‘nv_b’ [-Wmissing-prototypes]\n" +
           make_end("nvidia/os-mlock.o", "Error"),
       "conftest-misfire", "add_memory_driver_managed", "/proc/version"},
      {"kernel70-del-timer-sync",
       "make IGNORE_MISSING_MODULE_SYMVERS=1 modules\n"
       "nvidia/nv-nano-timer.c:213:5: error: implicit declaration of function ‘del_timer_sync’; did you mean "
       "‘timer_delete_sync’? [-Wimplicit-function-declaration]\n" +
           make_end("nvidia/nv-nano-timer.o", "Error"),
       "no-del-timer-sync", "del_timer_sync", "driver 580"},
      {"kernel50-drm-connector-rename-396",
       "nvidia-drm-connector.c:30:5: error: implicit declaration of function 'drm_mode_connector_attach_encoder'; did "
       "you mean 'drm_connector_attach_encoder'?\ncc1: some warnings being treated as errors\n" +
           make_end("nvidia-drm/nvidia-drm-connector.o", "Error"),
       "drm-connector-renamed", "drm_mode_connector_attach_encoder", "newer driver branch"},
  };
}

std::vector<Case> system_cases() {
  return {
      {"missing-headers-fedora36-build-dir",
       "make -C src/nvidia\n[ nvidia            ] CC           generated/g_system_nvoc.c\nmake -C kernel-open modules\n"
       "make[2]: *** /lib/modules/5.17.5-300.fc36.x86_64/build: No such file or directory.  Stop.\n"
       "make[1]: *** [Makefile:82: modules] Error 2\nmake: *** [Makefile:34: modules] Error 2\n",
       "kernel-headers-missing", "5.17.5-300.fc36.x86_64/build", "Install the headers of exactly that kernel"},
      {"kernel-config-invalid-void-340",
       "  ERROR: Kernel configuration is invalid.\n"
       "         include/generated/autoconf.h or include/config/auto.conf are missing.\n"
       "         Run 'make oldconfig && make prepare' on kernel src to fix it.\n"
       "make[1]: *** [Makefile:600: include/config/auto.conf] Error 1\nmake: *** [Makefile:206: module] Error 2\n",
       "kernel-config-invalid", "Kernel configuration is invalid", "kernel's own compiler"},
      {"oom-killed-cc1-parallel-build",
       "nvidia-driver-ctr |   CC [M]  nvidia-uvm/uvm_tools.o\n"
       "nvidia-driver-ctr | gcc: fatal error: Killed signal terminated program cc1\n"
       "nvidia-driver-ctr | compilation terminated.\n"
       "nvidia-driver-ctr | make[3]: *** [scripts/Makefile.build:297: nvidia-uvm/uvm_tools.o] Error 1\n"
       "nvidia-driver-ctr | make[3]: *** Waiting for unfinished jobs....\n",
       "out-of-memory", "Killed signal terminated", "fewer jobs"},
      {"disk-full-linker-and-printf",
       "ld: final link failed: No space left on device\nmake[1]: *** [Makefile:1160: vmlinux] Error 1\n", "disk-full",
       "final link failed", "Free some gigabytes"},
  };
}

std::vector<Case> cases() {
  std::vector<Case> all = dkms_cases();
  for (const auto& more : {compiler_cases(), system_cases()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

TEST_CASE("build log: cases of the field mean what they meant there") {
  std::cout << fmt::format("{:<40} {:<24} {}\n", "build log case", "signature", "line: cause");
  REQUIRE(cases().size() == 24);
  for (const Case& one : cases()) {
    CAPTURE(one.name);
    const auto failure = build_failure(one.log).value();
    REQUIRE(failure);
    std::cout << fmt::format("{:<40} {:<24} {}: {}\n", one.name,
                             failure->signature_id.empty() ? "-" : failure->signature_id, failure->line_number,
                             failure->cause);
    CHECK(failure->signature_id == one.signature);
    CHECK(holds(failure->line, one.line));
    CHECK(holds(failure->next, one.next));
    CHECK_FALSE(failure->cause.empty());
    // line_number is the number of the line
    std::string_view rest = one.log;
    for (std::size_t i = 1; i < failure->line_number; ++i) rest.remove_prefix(rest.find('\n') + 1);
    CHECK(holds(rest.substr(0, rest.find('\n')), failure->line));
  }
}

TEST_CASE("build log: every row of builds is found") {
  const std::vector<std::pair<std::string, std::string>> lines = {
      {"disk-full", "printf: write error: No space left on device"},
      {"disk-full", "/usr/bin/ld: /tmp/cc1.o: No space left on device"},
      {"out-of-memory", "gcc: internal compiler error: Killed (program cc1)"},
      {"kernel-headers-missing", "ERROR: Unable to find the kernel source tree for the currently running kernel."},
      {"build-program-missing", "make[1]: g++: No such file or directory"},
      {"build-program-missing", "/bin/sh: 1: xz: not found"},
      {"build-program-missing", "make[1]: *** [Makefile:219: _out/Linux_x86_64/dp_auxretry.o] Error 127"},
      {"kernel-headers-missing", "make[2]: *** /usr/src/linux: No such file or directory.  Stop."},
      {"kernel-headers-missing", "make[2]: *** No rule to make target 'modules'.  Stop."},
      {"kernel-headers-missing", "make[2]: *** No rule to make target `modules'.  Stop."},
      {"no-drm-unlocked",
       "nvidia-drm-drv.c:1513:40: error: ‘DRM_UNLOCKED’ undeclared here (not in a function); did you mean "
       "‘VM_LOCKED’?"},
      {"no-drm-unlocked", "nvidia-drm-drv.c:1513:40: error: use of undeclared identifier 'DRM_UNLOCKED'"},
      {"no-dumb-destroy",
       "nvidia-drm-drv.c:907:6: error: ‘struct drm_driver’ has no member named ‘dumb_destroy’; did you mean "
       "‘dumb_create’?"},
      {"no-nv-kernel-object", "ld: cannot find nvidia/nv-kernel.o: No such file or directory"},
      {"no-output-poll-changed", "x.c:9:6: error: ‘struct s’ has no member named ‘output_poll_changed’"},
      {"no-nv-dmabuf-header", "x.c:1:10: fatal error: nv-dmabuf.h: No such file or directory"},
      {"no-follow-pfn", "x.c:1:2: error: implicit declaration of function ‘follow_pfn’"},
      {"no-page-pgmap", "x.c:1:2: error: 'struct page' has no member named 'pgmap'"},
      {"no-strncpy", "x.c:1:2: error: call to undeclared function 'strncpy'; ISO C99 and later do not support it"},
      {"kernel-without-folio", "x.c:1:2: error: invalid use of undefined type 'struct folio'"},
      {"kernel-without-folio", "x.c:1:2: error: incomplete definition of type 'struct folio'"},
      {"objtool-werror", "nvidia.o: error: objtool: libosPreserveLogs+0x5e: 'naked' return found in RETHUNK build"},
      {"resize-resource-arguments", "x.c:1:2: error: too few arguments to function ‘pci_resize_resource’"},
  };
  std::set<std::string> found, rows;
  for (const auto& [id, line] : lines) {
    CAPTURE(line);
    CHECK(build_failure(line).value()->signature_id == id);
    found.insert(id);
  }
  for (const Case& one : cases())
    if (!one.signature.empty()) found.insert(build_failure(one.log).value()->signature_id);
  const std::vector<Signature> table = signatures().value();
  for (const Signature& row : table)
    if (row.log == "build") rows.insert(row.id);
  CHECK(found == rows);
}

TEST_CASE("build log: the first error of its own leads, in any language, never what passes it on") {
  const auto line = [](const std::string& log) { return build_failure(log).value()->line; };
  for (const char* error :
       {"a.c:1:2: error: x", "a.c:1:10: fatal error: b.h: No such file or directory", "a.c:1:2: Fehler: x",
        "a.c:1:2: erreur : x", "a.c:1:2: chyba: x", "a.c:1:2: 错误：x", "ERROR: modpost: \"x\" [y.ko] undefined!",
        "/usr/bin/ld: a.o: relocation overflow", "/bin/sh: line 1: 4242 Killed   objtool a.o", "Killed",
        "*** Failed CC sanity check. Bailing out! ***", "make[3]: *** No rule to make target 'a.o'.  Stop.",
        "make[3]: *** a.mk:3: missing separator.  Stop."}) {
    CAPTURE(error);
    for (const std::string& before : {std::string(), std::string("make: *** [Makefile:9: b] Error 2\n"), apport("6.1"),
                                      std::string("a.c:1: warning: w\n")})
      CHECK(line(before + "  " + error + "\r\n" + make_end("a.o", "Error")) == error);
  }
  CHECK(line("make[3]: *** [a.o] Chyba 2\nmake[2]: recipe for target 'b' failed\n") == "make[3]: *** [a.o] Chyba 2");
  // the status of a command is no error of its own: its output is, wherever it is among that of other jobs
  CHECK(line("make[3]: *** [Makefile:1: a.o] 错误 1\nb.c:1:2: error: x\n") == "b.c:1:2: error: x");
  CHECK(build_failure("make: *** [a] Error 2\n").value()->next ==
        "The cause is above line 1, or above this part of the log: look for the first \"error:\" there.");
}

TEST_CASE("build log: a clean build has no failure") {
  CHECK_FALSE(build_failure("").value());
  CHECK_FALSE(build_failure("make[1]: Entering directory '/usr/src/linux-headers-6.1.0-32-amd64'\n"
                            "warning: the compiler differs from the one used to build the kernel\n"
                            "  The kernel was built by: gcc-12 (Debian 12.2.0-14) 12.2.0\n"
                            "  SYMLINK nvidia/nv-kernel.o\n CONFTEST: proc_ops\n CONFTEST: follow_pfn\n"
                            "  CC [M]  nvidia/nv-procfs.o\nnv.c:30:6: warning: no previous prototype for 'nv_error'\n"
                            "  LD [M]  nvidia.o\nld: warning: x.o: missing .note.GNU-stack section\n"
                            "  MODPOST Module.symvers\n  LD [M]  nvidia.ko\n"
                            "Skipping BTF generation for nvidia.ko due to unavailability of vmlinux\n"
                            "make[1]: Leaving directory '/usr/src/linux-headers-6.1.0-32-amd64'\n")
                  .value());
}

TEST_CASE("build log: hostile text costs no more than its length, and what is shown is short and printable") {
  std::string log(300'000, '\0');
  for (int i = 0; i < 200; ++i) log += std::string(30'000, '*') + " #else implicit declaration of \xff\xfe\n";
  log += std::string("a.c: error: \x1b[2J\a") + std::string(3'000'000, 'x');
  const auto start = std::chrono::steady_clock::now();
  const auto failure = build_failure(log).value();
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  REQUIRE(failure);
  CHECK(failure->line.size() == 512);
  CHECK(failure->line.starts_with("a.c: error: ?[2J?xxx"));
}
