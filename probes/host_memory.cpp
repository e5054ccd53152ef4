// SPDX-License-Identifier: MIT
// host-memory: the driver can allocate from all host memory, not only from the first 4 GiB.
// nvidia-uvm's HMM puts address ranges at the end of physical memory: at 2^52 on servers with five-level page tables.
// If no IOMMU translates and a GPU cannot address that much, the driver allocates below 4 GiB only, and CUDA contexts
// and NCCL soon find no memory. Reads modprobe.d as libkmod does, /proc/cpuinfo, dma_mask_bits of GPUs in use.
// Reference: nv_compute_gfp_mask() of nv-vm.c, uvm_hmm.c, NVIDIA/open-gpu-kernel-modules PR 1301; the kernel's
// request_free_mem_region().
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/probe.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/modules/modprobe_d.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    {"module", Parameter::Type::string, true, "nvidia_uvm"},
    {"options", Parameter::Type::object, true, "options that disable HMM"},
};

constexpr int kFourLevelBits = 46;  // of physical addresses that four levels of page tables reach
constexpr int kGpuBits = 47;        // of Ampere and Ada (Hopper: 52); known of a GPU once its driver has set it up
constexpr int kNoGpu = 64;
constexpr unsigned kNotSetUp = 32;  // the kernel's value until then

/// Value of the first line of /proc/cpuinfo that begins with `name`; empty: there is none.
std::string_view value_of(std::string_view cpuinfo, std::string_view name) {
  const std::size_t line = cpuinfo.find(name);
  if (line == std::string_view::npos) return {};
  const std::string_view text = cpuinfo.substr(line, cpuinfo.find('\n', line) - line);
  return text.substr(std::min(text.find(':') + 2, text.size()));
}

/// Bits of the physical address where HMM's ranges end; 0: not known, or not x86-64, which HMM requires.
int hmm_bits(const Host& host) {
  const std::string cpuinfo = host.files().read("/proc/cpuinfo", 16U << 20).value_or("");
  const std::string_view size = value_of(cpuinfo, "address sizes");
  int physical = 0;
  std::from_chars(size.data(), size.data() + size.size(), physical);
  const bool five_levels = fmt::format(" {} ", value_of(cpuinfo, "flags")).find(" la57 ") != std::string::npos;
  return five_levels ? physical : std::min(physical, kFourLevelBits);
}

/// Bits of the physical addresses that all NVIDIA GPUs reach; kNoGpu: there is none.
Result<int> gpu_bits(const Host& host) {
  int least = kNoGpu;
  for (const std::string& gpu : nvidia_gpus(TRY(pci_devices(host)))) {
    const auto bits = kernel_number(host.line(sysfs_path(gpu, "dma_mask_bits")).value_or(""));
    least = std::min(least, bits && *bits != kNotSetUp ? static_cast<int>(*bits) : kGpuBits);
  }
  return least;
}

Result<Finding> check(const Host& host, const Parameters& parameters) {
  const std::vector<OptionState> states = option_states(TRY(module_options(host)), parameters);
  const int hmm = hmm_bits(host), gpu = TRY(gpu_bits(host));
  const bool off = std::ranges::all_of(states, &OptionState::holds);
  Finding finding;
  finding.facts = {{"off", off}};
  if (off)
    finding.set(Verdict::pass, "HMM is off");
  else if (hmm == 0 || gpu == kNoGpu)
    finding.set(Verdict::not_applicable,
                gpu == kNoGpu ? "no NVIDIA GPU" : "this CPU has no HMM, or its address sizes are not known");
  else if (hmm <= gpu)
    finding.set(Verdict::pass, fmt::format("HMM's ranges end at 2^{}; the GPUs address 2^{} bytes", hmm, gpu));
  else
    finding.set(Verdict::fail,
                fmt::format("HMM's ranges end at 2^{}, and the GPUs address 2^{} bytes: the driver allocates host "
                            "memory below 4 GiB only",
                            hmm, gpu),
                "Set uvm_disable_hmm=1 of module nvidia_uvm in /etc/modprobe.d, then load it again.");
  return finding;
}

}  // namespace

extern const Probe kHostMemory = {
    .id = "host-memory",
    .asserts = "the driver can allocate from all host memory, not only from the first 4 GiB",
    .parameters = kParameters,
    .validate = validate_module_options,
    .check = check,
    .skip_on_image = true,
};

}  // namespace p2pd
