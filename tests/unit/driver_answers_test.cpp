// SPDX-License-Identifier: MIT
// Holds plans, catalogue and code to tests/driver_answers.yaml: what NVIDIA's own code answers.
#include <fmt/format.h>

#include <fstream>
#include <map>

#include "base/units.hpp"
#include "base/version.hpp"
#include "base/yaml.hpp"
#include "catch.hpp"
#include "machine/catalogue/catalogue.hpp"
#include "machine/driver/driver_options.hpp"
#include "machine/driver/registry_keys.hpp"
#include "made_bus.hpp"

using namespace p2pd;
using nlohmann::json;

namespace {

json yaml_of(const std::string& path) {
  std::ifstream file(P2PD_SOURCE_DIR "/" + path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return yaml::parse(text, path).value().json().value();
}

const json& table() {
  static const json kTable = yaml_of("tests/driver_answers.yaml");
  return kTable;
}

const std::map<std::string, std::string> kKeys = {
    {"ForceP2P", "FP"}, {"RMForceP2PType", "FT"}, {"RMPcieP2PType", "PT"}};

/// Keys of a plan or a build as the table has them; those that are no matter of the answer are left out.
json short_keys(const json& dwords) {
  json keys = json::object();
  for (const auto& [key, value] : dwords.items())
    if (const auto known = kKeys.find(key); known != kKeys.end()) keys[known->second] = value;
  return keys;
}

bool has(const json& list, const json& value) { return std::ranges::count(list, value) > 0; }

/// Row of the table for a machine without NVLink, console and small BAR1; null: it was not asked.
json answer(const std::string& tree, int release, const std::string& chip, const json& keys) {
  for (const json& row : table()["answers"])
    if (row["tree"] == tree && has(row["releases"], release) && has(row["chips"], chip) && row["keys"] == keys &&
        !row.contains("bar1_mib") && !row.contains("console_mib"))
      return row;
  return nullptr;
}

const char* architecture_of(const std::string& chip) {
  return chip == "GB202" ? "Blackwell" : chip == "AD102" ? "Ada" : "Ampere";
}

std::optional<std::uint32_t> number(const json& keys, const char* key) {
  return keys.contains(key) ? std::optional(keys[key].get<std::uint32_t>()) : std::nullopt;
}

/// A machine with NVIDIA's own open modules of a version.
struct Machine : test::MadeBus {
  explicit Machine(const std::string& version) {
    file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " + version +
                                           "  Release Build  (dvs-builder@host)\n");
    file("proc/sys/kernel/osrelease", "6.8.0-31-generic\n");
    file("sys/module/nvidia/version", version + "\n");
  }
  Machine& card(std::uint16_t device, std::uint64_t bar1_gib, std::uint64_t told_mib = 0) {
    test::Function gpu;
    gpu.device = device;
    gpu.bar1 = bar1_gib == 0 ? 256 * test::kMiB : bar1_gib * test::kGiB;
    gpu.sizes = {gpu.bar1};
    add_slot(++cards_, gpu);
    if (told_mib > 0)
      told_ += fmt::format("GPU 00000000:0{}:00.0\n    FB Memory Usage\n        Total : {} MiB\n", cards_, told_mib);
    file("commands/nvidia-smi-q.json",
         json{{"argv", {"nvidia-smi", "-q"}}, {"status", 0}, {"output", told_}, {"errors", ""}}.dump());
    return *this;
  }
  Machine& boot_vga(int number) {
    file(fmt::format("sys/bus/pci/devices/0000:0{}:00.0/boot_vga", number), "1\n");
    return *this;
  }
  /// Says by screen_info that the firmware's framebuffer is at this address; 0: there is none.
  Machine& framebuffer(std::uint64_t base) {
    std::string info(4096, '\0');
    info[0x0f] = '\x70';
    info[0x36] = 2;  // the address has 64 bits
    for (std::size_t i = 0; i < 4; ++i) {
      info[0x18 + i] = static_cast<char>(base >> 8 * i);
      info[0x3a + i] = static_cast<char>(base >> (32 + 8 * i));
    }
    file("sys/kernel/boot_params/data", info);
    return *this;
  }
  StockP2p stock(std::string_view entry) {
    return see([&](const Host& host) { return stock_p2p(host, entry).value(); });
  }
  json build_keys(const std::string& entry) {
    const Parameters with{{"module", "nvidia"}, {"entry", entry}};
    return see([&](const Host& host) { return with_driver_options(host, with).value()["registry_dwords"]; });
  }
  json static_keys(int major) {
    return see([&](const Host& host) { return with_static_bar1(host, json::object(), major, json::object()).value(); });
  }

 private:
  int cards_ = 0;
  std::string told_ = "\n";
};

constexpr std::uint16_t k3090 = 0x2204, k3080 = 0x2206, k3070 = 0x2484, k4090 = 0x2684, k5090 = 0x2b85;

}  // namespace

TEST_CASE("driver answers: the path that p2pd expects, and whether it is mapped") {
  int compared = 0;
  for (const json& row : table()["answers"]) {
    if (row["says"] != "OK" || (row["tree"] == "cmpunlocker/p2p-bar1" && row["keys"]["PT"] == 2)) continue;
    std::vector<json> all_keys = {row["keys"]};
    const json harmless = row.value("harmless", json::object());
    for (const auto& [key, value] : harmless.items()) {
      all_keys.push_back(row["keys"]);
      all_keys.back()[key] = value;
    }
    for (const json& release : row["releases"])
      for (const json& chip : row["chips"])
        for (const json& keys : all_keys) {
          CAPTURE(row.dump(), release.dump(), chip.dump(), keys.dump());
          const std::uint64_t bar1 = row.value("bar1_mib", 32768U) * kMiB;
          const PeerPath path = likely_path({release,
                                             row["tree"] != "stock",
                                             chip,
                                             architecture_of(chip),
                                             number(keys, "FT"),
                                             number(keys, "PT"),
                                             number(keys, "SB"),
                                             {bar1, 24576 * kMiB, 24000 * kMiB, row.contains("console_mib")}});
          if (!row.contains("mapped")) continue;
          const bool works = chip == "GA102" || row["over"] != "mailbox";  // by reports
          CHECK(path.doubt.empty() == (row["mapped"] == "made" && works));
          if (row["mapped"] == "made") CHECK(path.mailbox == (row["over"] == "mailbox"));
          ++compared;
        }
  }
  CHECK(compared > 60);
}

TEST_CASE("driver answers: keys that are called wrong, and keys that are not") {
  const auto wrong = [](const json& keys, int release) {
    for (const auto& [name, key] : kKeys)
      if (keys.contains(key) && !wrong_registry_key(name, keys[key].dump(), release).empty()) return true;
    return false;
  };
  for (const json& row : table()["answers"])
    for (const json& release : row["releases"]) {
      CAPTURE(row.dump(), release.dump());
      if (row["says"] == "OK" && row.value("mapped", "") == "made" && row["over"] == "BAR1")
        CHECK_FALSE(wrong(row["keys"], release));
      const bool types = row["keys"].contains("FT") && row["keys"]["FT"] != 0;
      if (types && row["says"] == "OK" && row["over"] == "mailbox") CHECK(wrong(row["keys"], release));
    }
  for (const json& row : table()["static_bar1"])
    for (const json& release : row["releases"])
      if (const std::string mode = row["mode"]; mode.starts_with("SB="))
        CHECK(wrong_registry_key("RMForceStaticBar1", mode.substr(3), release).empty());
}

TEST_CASE("driver answers: each build of the catalogue gives P2P by what it sets, and takes no NVLink away") {
  int asked = 0;
  const Catalogue shipped = parse_catalogue({shipped_catalogue()}).value();
  for (const CatalogueEntry& entry : shipped.entries) {
    CAPTURE(entry.id);
    const int major = static_cast<int>(parse_version(entry.base_version)->front());
    const std::string tree = entry.id.substr(0, entry.id.find("-on-"));
    const json keys = short_keys(entry.registry_dwords);
    CHECK_FALSE(entry.registry_dwords.contains("RMForceStaticBar1"));  // for all GPUs: see with_static_bar1()
    CHECK(keys.value("FT", 0) != 1);                                   // loses NVLink in every release
    const auto says_ok = [&](const json& row) {
      return row["tree"] == tree && row["keys"] == keys && row["says"] == "OK";
    };
    CHECK((keys.empty() || keys.contains("FP") ||
           std::ranges::any_of(table()["answers"], says_ok)));  // no chipset is asked
    for (const auto& [key, value] : entry.registry_dwords.items())
      CHECK(wrong_registry_key(key, value.dump(), major).empty());
    for (const auto& [key, value] : entry.registry_dwords_forbidden.items()) {
      const json refused = answer(tree, major, "AD102", short_keys({{key, value}}));
      if (!refused.is_null()) CHECK(refused["over"] == "mailbox");
      CHECK_FALSE(wrong_registry_key(key, value.dump(), major).empty());
    }
    for (const json& row : table()["nvlink"])
      if (row["tree"] == tree && row["keys"] == keys) CHECK(entry.nvlink == (row["keeps"] == true ? "kept" : "lost"));
    for (const char* chip : {"GA102", "AD102", "GB202"}) {
      const json row = answer(tree, major, chip, keys);
      if (row.is_null() || !entry.architectures.contains(architecture_of(chip))) continue;
      CHECK((row["says"] == "OK" && row["over"] == "BAR1" && row["mapped"] == "made"));
      ++asked;
    }
  }
  CHECK(asked >= 16);  // two trees, one of them on seven releases
}

TEST_CASE("driver answers: no shipped plan sets a key that is wrong, or loses NVLink") {
  int keys = 0;
  for (const char* name : {"driver-update", "geforce-p2p", "p2p-atomics", "verify", "workstation"}) {
    const json plan = yaml_of(fmt::format("config/plans/{}.yaml", name));
    for (const json& step : plan.value("steps", json::array())) {
      const json dwords = step.value("with", json::object()).value("registry_dwords", json::object());
      for (const auto& [key, value] : dwords.items())
        for (const int release : {565, 570, 580, 595}) {
          CAPTURE(name, key, release);
          CHECK(wrong_registry_key(key, value.dump(), release).empty());
          CHECK_FALSE((key == "RMForceP2PType" && value == 1));
          if (key == "ForceP2P") CHECK(answer("stock", 595, "GB202", {{"FP", value}, {"PT", 1}})["atomics"] == "OK");
          ++keys;
        }
    }
  }
  CHECK(keys > 0);
}

TEST_CASE("driver answers: NVIDIA's own modules give P2P with the keys that are chosen, or are not asked to") {
  for (const char* version : {"565.57.01", "570.211.01", "580.142", "595.45.04"})
    for (const auto& [device, chip] : {std::pair{k3090, "GA102"}, {k3080, "GA102"}, {k4090, "AD102"}, {k5090, "GB202"}})
      for (const std::string_view entry : {kStockEntry, kStockMailboxEntry}) {
        CAPTURE(version, chip, std::string(entry));
        Machine machine(version);
        const StockP2p stock = machine.card(device, 32, 0).card(device, 32, 0).stock(entry);
        const int major = static_cast<int>(parse_version(version)->front());
        const json row =
            answer("stock", major, chip, short_keys(stock.options.value("registry_dwords", json::object())));
        const bool gives = row.is_object() && row["says"] == "OK" && row["mapped"] == "made" &&
                           (row["over"] == "BAR1" || std::string(chip) == "GA102");
        CHECK(stock.why_not.empty() == (gives && row["over"] == (entry == kStockEntry ? "BAR1" : "mailbox")));
      }
  CHECK(Machine("580.142").card(k5090, 32).card(k5090, 32).stock(kStockEntry).options["registry_dwords"] ==
        json{{"ForceP2P", 0x11},
             {"RMPcieP2PType", 1},
             {"0000:01:00.0/RMForceStaticBar1", 1},
             {"0000:02:00.0/RMForceStaticBar1", 1}});
  CHECK(Machine("575.64.05").card(k5090, 32).card(k5090, 32).stock(kStockEntry).why_not.find("570, 580 and later") !=
        std::string::npos);
}

TEST_CASE("driver answers: the mailbox needs no room in BAR1, and GA102 on every card") {
  const StockP2p small = Machine("550.163.01").card(k3090, 0).card(k3080, 0).stock(kStockMailboxEntry);
  CHECK(small.why_not.empty());
  CHECK(small.options["registry_dwords"] == json{{"ForceP2P", 0x11}});
  CHECK(Machine("580.142").card(k3090, 32).card(k3070, 8).stock(kStockMailboxEntry).why_not ==
        "P2P over the mailbox works between GA102 cards only (RTX 3080 to 3090 Ti); 0000:02:00.0 is GA104");
  CHECK_FALSE(Machine("580.142").card(0x2230, 64).card(0x2230, 64).stock(kStockMailboxEntry).why_not.empty());  // A6000
  Machine pt(/*version=*/"580.142");  // a guide's keys: with RMPcieP2PType=1 there is no mailbox
  pt.file("etc/modprobe.d/p2p.conf", "options nvidia NVreg_RegistryDwords=\"ForceP2P=0x11;RMPcieP2PType=1\"\n");
  CHECK(pt.card(k3090, 32).card(k3090, 32).stock(kStockMailboxEntry).options["registry_dwords"] ==
        json{{"ForceP2P", 0x11}, {"RMPcieP2PType", 2}});
  Machine built(/*version=*/"580.105.08");  // the same keys, and a version of which there is a patched build
  built.file("etc/modprobe.d/p2p.conf", "options nvidia NVreg_RegistryDwords=\"ForceP2P=0x11;RMPcieP2PType=1\"\n");
  const std::string why_not = built.card(k3090, 32).card(k3090, 32).stock(kStockMailboxEntry).why_not;
  CHECK(why_not.find("a patched build") != why_not.npos);
}

TEST_CASE("driver answers: a driver that says OK without ForceP2P is not NVIDIA's own, and takes no mailbox") {
  const auto why = [](const char* read, const char* nvlink) {
    Machine machine("570.86.16");
    machine.file(
        "commands/p2p-bench-driver-peers.json",
        json{{"argv", {"p2p-bench", "--driver-peers"}},
             {"status", 0},
             {"output", json{{"gpus", json::array()}, {"pairs", {{{"read", read}, {"nvlink", nvlink}}}}}.dump()},
             {"errors", ""}}
            .dump());
    return machine.card(k3090, 32).card(k3090, 0).stock(kStockMailboxEntry).why_not;
  };
  CHECK(why("CNS", "NS").empty());
  CHECK(why("OK", "OK").empty());  // over a bridge, which says nothing of PCIe
  CHECK(why("OK", "NS") == "the loaded modules give P2P over BAR1: they are not NVIDIA's own");
}

TEST_CASE("driver answers: static BAR1 at both sides of each size") {
  const std::uint64_t vram = 24576, clients = 24000;
  for (const json& row : table()["static_bar1"])
    for (const json& release : row["releases"])
      for (const bool console : {false, true}) {
        CAPTURE(row.dump(), release.dump(), console);
        const std::uint64_t least =
            row[console ? "offset" : "plain"].get<std::uint64_t>() + (row["above"] == "vram" ? vram : clients);
        const auto at = [&](std::uint64_t bar1) {
          return static_bar1(release, {bar1 * kMiB, vram * kMiB, clients * kMiB, console});
        };
        if (release == 565 && console) continue;  // it does not keep the console
        if (has(table()["console_refuses_peers_in"], release) && console) {
          CHECK(at(least) == StaticBar1::impossible);
        } else if (row["mode"] == "automatic") {
          CHECK(at(least) == StaticBar1::automatic);
          CHECK(at(least - 1) != StaticBar1::automatic);
        } else if (row["mode"] == "SB=1") {
          CHECK(at(least) == StaticBar1::forced);
          CHECK(at(least - 1) == StaticBar1::impossible);  // the GPU would not start
        }
      }
  CHECK(static_bar1(550, {64ULL << 30, 24ULL << 30, 24ULL << 30, false}) == StaticBar1::impossible);  // not asked
}

TEST_CASE("driver answers: static BAR1 is forced for the GPUs that need it, never for one that it would stop") {
  const json both{{"0000:01:00.0/RMForceStaticBar1", 1}, {"0000:02:00.0/RMForceStaticBar1", 1}};
  CHECK(Machine("595.45.04").card(k5090, 32, 32607).card(k5090, 32, 32607).static_keys(595) == both);
  CHECK(Machine("595.45.04").card(k3090, 32, 24576).card(k3090, 32, 24576).static_keys(595).empty());  // automatic
  CHECK(Machine("595.45.04").card(k5090, 32, 32607).card(k5090, 0, 32607).static_keys(595) ==
        json{{"0000:01:00.0/RMForceStaticBar1", 1}});                                 // 256 MiB of BAR1
  CHECK(static_bar1(595, {32 * test::kGiB, 0, 0, false}) == StaticBar1::impossible);  // no VRAM is known
  // with the mailbox BAR1 would lack 512 MiB, and the GPU would not start
  const json keys =
      Machine("595.45.04").card(k5090, 32, 32607).card(k5090, 32, 32607).build_keys("aikitoria/595.58.03-p2p");
  CHECK(keys.at("0000:01:00.0/RMForceStaticBar1") == 1);
  CHECK(keys.at("0000:01:00.0/RMPcieP2PType") == 1);
  const json second{{"0000:02:00.0/RMForceStaticBar1", 1}};
  Machine console("595.45.04");
  console.card(k5090, 32, 32607).card(k5090, 32, 32607);
  CHECK(console.framebuffer(0x2000000000 + 64 * test::kGiB).static_keys(595) == second);  // BAR1 of 01:00.0
  CHECK(console.stock(kStockEntry).why_not.find("0000:01:00.0 has no room") != std::string::npos);
  CHECK(console.framebuffer(0xd0000000).static_keys(595) == both);  // of another device
  CHECK(console.framebuffer(0).boot_vga(1).static_keys(595) == both);
  Machine old_kernel("595.45.04");
  old_kernel.card(k5090, 32, 32607).card(k5090, 32, 32607).boot_vga(1);
  CHECK(old_kernel.static_keys(595) == both);
  old_kernel.file("sys/class/graphics/fb0/name", "EFI VGA\n");
  CHECK(old_kernel.static_keys(595) == second);
}
