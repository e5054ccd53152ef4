// SPDX-License-Identifier: MIT
#include "machine/driver/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "base/json_members.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/hardware/bar1.hpp"
#include "machine/hardware/driver_answer.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/hardware/peer_groups.hpp"
#include "machine/modules/build_log.hpp"
#include "machine/modules/default_kernel.hpp"
#include "machine/modules/module_build.hpp"

namespace p2pd {
namespace {

std::optional<std::uint64_t> length_of(const Bar1& bar1) {
  return bar1.range ? std::optional(bar1.range->length) : std::nullopt;
}

/// Largest size that BAR1 can have; nullopt if that is not readable.
std::optional<std::uint64_t> bar1_most(const Bar1& bar1) {
  if (!bar1.gpu->extended_readable || bar1.gpu->is_lost()) return std::nullopt;
  if (!bar1.resizable) return length_of(bar1);  // BAR1 keeps its size
  if (bar1.resizable->supported_bytes.empty()) return std::nullopt;
  return std::max(bar1.resizable->bytes, bar1.resizable->supported_bytes.back());
}

std::vector<Machine::Gpu> gpus_of(const Host& host, const std::vector<PciDevice>& devices) {
  std::vector<Machine::Gpu> gpus;
  for (const Bar1& bar1 : bar1_of_gpus(host, devices))
    gpus.push_back({{bar1.gpu->address, bar1.gpu->id(), bar1.model}, std::nullopt, length_of(bar1), bar1_most(bar1)});
  if (std::ranges::none_of(gpus, [](const auto& gpu) { return may_be_geforce(gpu.model); })) return gpus;
  const auto told = told_vram_bytes(host);
  for (Machine::Gpu& gpu : gpus)
    if (const auto vram = told.find(gpu.address); vram != told.end()) gpu.vram_bytes = vram->second;
  return gpus;
}

std::set<std::string> generations_left_out(const std::vector<PciDevice>& devices) {
  std::set<std::string> generations;
  for (const PciDevice& device : devices)
    if (const auto model = model_of(device.id()); device.is_nvidia_gpu() && !device.takes_part() && model)
      generations.insert(model->architecture);
  return generations;
}

/// Checks for "x.c:7:2: error: ..." of a compiler, or modpost's undefined symbol. A full disk can cause either; faults
/// of the kernel's headers or of p2pd are no fault of the source.
bool blames_source(const BuildFailure& failure) {
  static const std::regex kInSource(R"(\.[ch]:[0-9]+:[0-9]+: (fatal )?error: )");
  if (failure.signature_id == "disk-full" || failure.signature_id == "out-of-memory") return false;
  for (const std::string_view other : {"generated/", "/compat/"})
    if (failure.line.find(other) != std::string::npos) return false;
  return failure.line.find(" undefined!") != std::string::npos || std::regex_search(failure.line, kInSource);
}

/// Builds that the compiler refused here: their logs stay until one succeeds. Other failures do not count against the
/// source.
std::map<std::string, std::string> failed_builds(const Host& host) {
  std::map<std::string, std::string> failed;
  for (const std::string& name : host.names(kLogs)) {
    if (!name.starts_with(kBuildLogPrefix) || !name.ends_with(".log")) continue;
    const std::string log = host.files().read(fmt::format("{}/{}", kLogs, name)).value_or("");
    if (!log.starts_with(kBuildLogHead)) continue;  // log of another p2pd, which may have built otherwise
    const std::string build = name.substr(kBuildLogPrefix.size(), name.size() - kBuildLogPrefix.size() - 4);
    const auto failure = build_failure(log);
    if (build.ends_with(fmt::format("-{}", kNoSource)))
      failed[build] = log.substr(kBuildLogHead.size(), log.find('\n') - kBuildLogHead.size());
    else if (failure && *failure && blames_source(**failure))
      failed[build] = (*failure)->line;
  }
  return failed;
}

/// True if the loaded driver says that NVLink joins two GPUs. From Ampere on, no GeForce chip but GA102 has it.
bool has_nvlink(const Host& host, const std::vector<Machine::Gpu>& gpus) {
  if (std::ranges::none_of(gpus, [](const auto& gpu) { return gpu.model && gpu.model->chip == "GA102"; })) return false;
  const auto answer = driver_answer(host);
  if (!answer) return false;
  const nlohmann::json& pairs = field_of(*answer, "pairs");
  return std::ranges::any_of(pairs, [](const nlohmann::json& pair) { return field_of(pair, "nvlink") == "OK"; });
}

std::string newest_installed(const Host& host, const Machine& machine) {
  std::set<std::string> versions = {machine.driver_version};
  if (const auto install = installed_driver(host); install && machine.packages.version.empty()) {
    versions = install->package_versions();
    versions.insert({machine.driver_version, install->runfile.version});
  }
  versions.insert(machine.packages.version);
  const auto order = [](const std::string& version) { return parse_version(version).value_or(Version()); };
  return std::ranges::max(versions, {}, order);
}

}  // namespace

Result<Machine> machine_of(const Host& host, const Catalogue& all) {
  Machine machine;
  machine.gpus_known = !is_image(host);
  if (machine.gpus_known) {
    const std::vector<PciDevice> devices = TRY(pci_devices(host));
    machine.gpus = gpus_of(host, devices);
    machine.divided = peer_groups(devices).size() > 1;
    machine.beside = generations_left_out(devices);
  }
  machine.nvlink = has_nvlink(host, machine.gpus);
  machine.driver_version = host.line(kLoadedDriver).value_or("");
  if (const auto packages = packaged_userspace(host)) machine.packages = *packages;  // dpkg is absent: no packages
  machine.installed = newest_installed(host, machine);
  const std::vector<std::string> held_back = kernels_held_back(host);
  for (BuildTarget& kernel : TRY(build_targets(host))) {
    Machine::Target bootable{std::move(kernel), {}};
    bootable.held_back = std::ranges::count(held_back, bootable.release) > 0 && !bootable.running;
    for (const auto& [name, rule] : all.compat_rules) {
      if (const auto known = applies(host, bootable, rule)) bootable.rules[name] = *known;
    }
    machine.kernels.push_back(std::move(bootable));
  }
  machine.distribution = distribution(host);
  machine.failed_builds = failed_builds(host);
  return machine;
}

std::set<std::string> generations(const Machine& machine) {
  std::set<std::string> found;
  for (const Machine::Gpu& gpu : machine.gpus)
    if (gpu.model) found.insert(gpu.model->architecture);
  return found;
}

bool is_converted(const Machine::Gpu& gpu) { return is_converted(gpu.model, gpu.vram_bytes.value_or(0)); }

}  // namespace p2pd
