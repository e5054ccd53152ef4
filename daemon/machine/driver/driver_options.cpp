// SPDX-License-Identifier: MIT
// Options of module nvidia for P2P, of builds and of NVIDIA's own modules. Reference: open-gpu-kernel-modules 565.57.01
// to 595.45.04: kern_bus_gb20x.c, kern_bif.c, p2p_caps.c, nv-reg.h; tests/driver_answers.yaml.
#include "machine/driver/driver_options.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_members.hpp"
#include "base/units.hpp"
#include "base/version.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/driver/machine.hpp"
#include "machine/hardware/driver_answer.hpp"
#include "machine/hardware/gpus.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/modules/default_kernel.hpp"
#include "machine/modules/loaded_modules.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "machine/modules/module_file.hpp"

namespace p2pd {
namespace {

using Gpus = std::vector<Bar1>;
constexpr const char* kForceStatic = "RMForceStaticBar1";
constexpr const char* kPatched = "the loaded modules give P2P over BAR1: they are not NVIDIA's own";

/// Version of the modules that modprobe would load; of compressed ones, of those that are loaded.
Result<NvidiaVersion> installed_version(const Host& host) {
  const std::string release = TRY(host.line("/proc/sys/kernel/osrelease"));
  const auto name = installed_name(host, "nvidia");
  const auto files = modules_by_name(host, release);
  if (name && files && files->contains(*name))
    if (const auto info = module_info(host, files->at(*name));
        info && info->contains("version") && info->contains("license"))
      return NvidiaVersion{info->at("version"), info->at("license") == "Dual MIT/GPL"};
  return nvidia_version(host);
}

/// Size of BAR1 now, or as the driver makes it.
std::uint64_t size_of(const Bar1& bar1) {
  return bar1.covers_vram() ? bar1.range->length : bar1.goal_bytes().value_or(0);
}

/// Reason that holds for NVIDIA's professional cards; empty: one may be a GeForce.
std::string no_need(const Gpus& gpus) {
  return std::ranges::any_of(gpus, [](const Bar1& gpu) { return may_be_geforce(gpu.model); })
             ? ""
             : "NVIDIA's own driver gives P2P between these cards as it is";
}

/// Reason why P2P over BAR1 is not in these modules, or not for these GPUs; empty: it is.
std::string no_bar1_p2p(const Host& host, const Gpus& gpus, const NvidiaVersion& driver, int major) {
  for (const Bar1& gpu : gpus) {
    const std::string& address = gpu.gpu->address;
    if (!gpu.model || gpu.model->architecture != "Blackwell" || gpu.model->segment == "data centre")
      return fmt::format("NVIDIA's own modules have P2P over BAR1 for RTX 50 only; {} is another generation", address);
    if (!gpu.vram_bytes() || size_of(gpu) < *gpu.vram_bytes())
      return fmt::format("BAR1 of {} cannot cover its VRAM", address);
    if (major != 570 && major < 580)
      return fmt::format("of NVIDIA's own modules 570, 580 and later have P2P over BAR1; {} is installed",
                         driver.version);
    if (static_bar1(major, static_bar1_sizes(host, gpu)) == StaticBar1::impossible)
      return fmt::format("BAR1 of {} has no room for its VRAM beside the firmware's framebuffer", address);
  }
  return no_need(gpus);
}

/// Reason why the mailbox does not give these GPUs P2P; empty: it does, by reports.
std::string no_mailbox(const Gpus& gpus) {
  for (const Bar1& gpu : gpus)
    if (!gpu.model || gpu.model->chip != "GA102")
      return fmt::format("P2P over the mailbox works between GA102 cards only (RTX 3080 to 3090 Ti); {} is {}",
                         gpu.gpu->address, gpu.model && !gpu.model->chip.empty() ? gpu.model->chip : "another chip");
  return no_need(gpus);
}

/// Checks that a key has this value in modprobe.d.
bool is_configured(const Host& host, const char* key, int value) {
  const Parameters wanted{{"module", "nvidia"}, {"registry_dwords", {{key, value}}}};
  const auto options = module_options(host);
  return options && option_states(*options, wanted).front().holds;
}

/// Keys for the mailbox: RMPcieP2PType=1 of the user's files would leave it out.
nlohmann::json mailbox_keys(const Host& host) {
  nlohmann::json keys = {{"ForceP2P", 0x11}};
  if (is_configured(host, "RMPcieP2PType", 1)) keys["RMPcieP2PType"] = 2;
  return keys;
}

/// True if the catalogue has a patched build of this version with P2P over BAR1.
bool has_build(const Host& host, const std::string& version) {
  const auto all = catalogue(host);
  return all && std::ranges::any_of(all->entries, [&](const CatalogueEntry& entry) {
           return entry.base_version == version && entry.registry_dwords.contains("RMPcieP2PType");
         });
}

/// RTX 5090 with builds of this major version and later: NCCL hung until both keys were set (noonghunna/club-3090,
/// issues 873 and 875).
constexpr int kPeerMapping = 595;
constexpr int kPcieType = 580;  // with the mailbox, static BAR1 takes 512 MiB more from here on

void add(Parameters& parameters, const char* key, const nlohmann::json& more) {
  nlohmann::json all = more;
  all.update(parameters.value(key, nlohmann::json::object()));
  parameters[key] = std::move(all);
}

}  // namespace

bool is_patched(const Host& host) {
  const auto params = nvidia_params(host).value_or(std::map<std::string, std::string>());
  for (const auto& [name, value] : params)
    if (value.find("ForceP2P=") != std::string::npos) return false;
  const auto answer = driver_answer(host);
  if (!answer) return false;
  const nlohmann::json& pairs = field_of(*answer, "pairs");
  return std::ranges::any_of(pairs, [](const nlohmann::json& pair) {
    return field_of(pair, "read") == "OK" && field_of(pair, "nvlink") != "OK";
  });
}

/// The card has whole GiB of VRAM; clients get less, and no more than the driver reports. Before a driver tells the
/// VRAM, the largest BAR1 is taken for it: the card has no more.
StaticBar1Sizes static_bar1_sizes(const Host& host, const Bar1& gpu) {
  const std::uint64_t gib = kMiB << 10, most = gpu.vram_bytes().value_or(gpu.goal_bytes().value_or(0));
  const std::uint64_t vram = (most + gib - 1) / gib * gib;
  return {size_of(gpu), vram, gpu.told_bytes > 0 ? std::min(gpu.told_bytes, vram - kMiB) : vram - kMiB,
          !firmware_console(host, gpu).empty()};
}

Result<nlohmann::json> with_static_bar1(const Host& host, nlohmann::json keys, int major, const nlohmann::json& more) {
  keys.erase(kForceStatic);
  if (is_image(host)) return keys;
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  for (const Bar1& gpu : bar1_of_gpus(host, devices, told_vram_bytes(host))) {
    const bool forced = gpu.carries_p2p() && (gpu.vram_bytes() || gpu.goal_bytes()) &&
                        static_bar1(major, static_bar1_sizes(host, gpu)) == StaticBar1::forced;
    if (!forced) continue;
    keys[device_key(gpu.gpu->address, kForceStatic)] = 1;
    for (const auto& [key, value] : more.items()) keys[device_key(gpu.gpu->address, key)] = value;
  }
  return keys;
}

Result<StockP2p> stock_p2p(const Host& host, std::string_view entry) {
  StockP2p found;
  const auto refused = [&](std::string why) {
    found.why_not = std::move(why);
    return found;
  };
  if (is_image(host)) return refused("the GPUs of an image are not known");
  const auto installed = installed_version(host);
  if (!installed) return refused("no NVIDIA driver is installed");
  found.version = installed->version;
  const int major = major_of(installed->version);
  if (has_own_modules(host, TRY(host.line("/proc/sys/kernel/osrelease"))))
    return refused("the installed modules are p2pd's");
  if (!installed->open) return refused(fmt::format("the modules of {} are proprietary", installed->version));
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  const Gpus gpus = bar1_of_gpus(host, devices, told_vram_bytes(host));
  if (gpus.empty()) return refused("no NVIDIA GPU");
  if (entry == kStockMailboxEntry) {
    found.options = {{"registry_dwords", mailbox_keys(host)}};
    std::string why = no_mailbox(gpus);
    if (why.empty() && is_patched(host)) why = kPatched;
    if (why.empty() && is_configured(host, "RMPcieP2PType", 1) && has_build(host, installed->version))
      why =
          "the options are those of a patched build of this version, with P2P over BAR1; remove RMPcieP2PType=1 from "
          "/etc/modprobe.d to try the mailbox";
    if (why.empty() && major < 575 && is_configured(host, "RMForceP2PType", 2))
      why = "RMForceP2PType=2 in /etc/modprobe.d leaves the mailbox out; remove that key to try it";
    return refused(std::move(why));
  }
  nlohmann::json keys = {{"ForceP2P", 0x11}};                                    // reads and writes
  keys[major < 580 ? "RMForceP2PType" : "RMPcieP2PType"] = major < 580 ? 2 : 1;  // BAR1 in place of the mailbox
  keys = TRY(with_static_bar1(host, std::move(keys), major, nlohmann::json::object()));
  found.options = {{"options", {{"NVreg_EnableResizableBar", 1}}}, {"registry_dwords", std::move(keys)}};
  std::string why = no_bar1_p2p(host, gpus, *installed, major);
  return refused(why.empty() && is_patched(host) ? kPatched : std::move(why));
}

Result<bool> is_stock_p2p_configured(const Host& host) {
  for (const std::string_view entry : {kStockEntry, kStockMailboxEntry}) {
    const StockP2p stock = TRY(stock_p2p(host, entry));
    if (!stock.why_not.empty()) continue;
    Parameters wanted = stock.options;
    wanted["module"] = "nvidia";
    if (std::ranges::all_of(option_states(TRY(module_options(host)), wanted), &OptionState::holds)) return true;
  }
  return false;
}

Result<std::map<std::string, ModuleOption>> configured_options(const Host& host) {
  const std::vector<ModuleOption> options = TRY(module_options(host));
  std::map<std::string, ModuleOption> out;
  const std::string here = installed_name(host, "nvidia").value_or("nvidia");  // "nvidia_current" if Debian renamed it
  for (const std::string& module : {here, std::string("nvidia")})  // an install line passes these to it as well
    for (const ModuleOption& option : options)
      if (option.module == module && option.name.starts_with("NVreg_")) out[option.name] = option;
  return out;
}

Result<Parameters> with_driver_options(const Host& host, Parameters parameters) {
  const auto name = parameters.value("entry", std::string(kNoEntry));
  std::string version = host.line(kLoadedDriver).value_or("");
  if (is_stock(name)) {
    const StockP2p stock = TRY(stock_p2p(host, name));
    if (!stock.why_not.empty()) return fail(ErrorCode::not_found, stock.why_not);
    for (const auto& [key, more] : stock.options.items()) add(parameters, key.c_str(), more);
    version = stock.version;
  } else if (name != kNoEntry) {
    const CatalogueEntry entry = TRY(staged_entry(TRY(catalogue(host)), parameters));
    add(parameters, "options", entry.module_options);
    const int major = major_of(entry.base_version);
    nlohmann::json beside = nlohmann::json::object();  // what a GPU needs with static BAR1: no mailbox in its way
    if (major >= kPcieType && !entry.registry_dwords.contains("RMPcieP2PType")) beside["RMPcieP2PType"] = 1;
    if (major >= kPeerMapping) beside["PeerMappingOverride"] = 1;
    add(parameters, "registry_dwords", TRY(with_static_bar1(host, entry.registry_dwords, major, beside)));
    version = entry.base_version;
    for (const auto& [key, value] : entry.registry_dwords_forbidden.items())
      if (parameters["registry_dwords"].value(key, nlohmann::json()) == value)
        return fail(ErrorCode::invalid, fmt::format("registry_dwords: {}={} breaks P2P in {}", key, value.dump(), name),
                    "Take the key out of the plan.");
  }
  const auto dwords = parameters.value("registry_dwords", nlohmann::json::object());
  for (const auto& [key, value] : dwords.items()) {
    const std::string name_of_key = key.substr(key.find('/') + 1);  // without the GPU
    const std::string wrong = version.empty() ? "" : wrong_registry_key(name_of_key, value.dump(), major_of(version));
    if (!wrong.empty())
      return fail(ErrorCode::invalid,
                  fmt::format("registry_dwords: {}={} in driver {}: {}", key, value.dump(), version, wrong),
                  "Correct the plan: values of these keys differ between drivers.");
    if (is_experimental_key(name_of_key) && !parameters.value("experimental", false))
      return fail(ErrorCode::invalid, "registry_dwords: what " + key + " does is not known from the driver's source",
                  "A plan that wants it nevertheless says \"experimental: true\" beside it.");
  }
  return parameters;
}

}  // namespace p2pd
