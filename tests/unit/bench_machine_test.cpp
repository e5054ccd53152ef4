// SPDX-License-Identifier: MIT
#include "probes/bench/report/machine.hpp"

#include <fstream>

#include "base/recorded.hpp"
#include "catch.hpp"
#include "machine/hardware/pci.hpp"
#include "machines.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace p2pd::bench;

namespace {

nlohmann::json facts_of(const fs::path& directory, const std::vector<std::string>& gpus) {
  const Root root = Root::open(directory).value();
  RecordedRunner runner(root);
  return machine_facts(Host(root, runner), gpus);
}

nlohmann::json recorded(const std::string& name, const std::vector<std::string>& gpus) {
  return facts_of(test::machine_path(name), gpus);
}

/// A copy of a record, to be changed.
class Copy {
 public:
  explicit Copy(const std::string& name) {
    fs::copy(test::machine_path(name), directory_.path(),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
  void file(const std::string& path, const std::string& content) {
    fs::create_directories((directory_ / path).parent_path());
    std::ofstream(directory_ / path) << content;
  }
  void remove(const std::string& path) { fs::remove_all(directory_ / path); }
  void link(const std::string& path, const std::string& target) { fs::create_symlink(target, directory_ / path); }
  std::string read(const std::string& path) {
    std::ifstream stream(directory_ / path);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  nlohmann::json facts(const std::vector<std::string>& gpus) { return facts_of(directory_.path(), gpus); }

 private:
  test::TemporaryDirectory directory_;
};

const nlohmann::json kRedirects = {"request redirect", "completion redirect", "upstream forwarding"};

}  // namespace

TEST_CASE("bench machine: a real host's driver and kernel") {
  const nlohmann::json facts = recorded("h200-x4-vm", {"0000:00:06.0", "0000:00:09.0"});
  CHECK(facts["kernel"] == "6.18.44");
  CHECK(facts["driver_version"] == "580.159.04");
  CHECK(facts["srcversion"] == "06B987C9B8B712FF4E7FB47");
  CHECK(facts["open_modules"] == true);
  CHECK(facts["registry_options"] == "");
  CHECK(facts["iommu_arguments"] == nlohmann::json::array());
  CHECK(facts["gpus"] == nlohmann::json::parse(R"([
    {"address": "0000:00:06.0", "bar1_bytes": 274877906944, "numa_node": -1},
    {"address": "0000:00:09.0", "bar1_bytes": 274877906944, "numa_node": -1}])"));
  CHECK_FALSE(facts.contains("acs"));  // no bridge is visible
  CHECK_FALSE(facts.contains("iommu_domain"));
  CHECK(facts["peermem_loaded"] == false);
  CHECK(facts["rdma_nics"] == nlohmann::json::array());
}

TEST_CASE("bench machine: the proprietary flavour is told") {
  CHECK(recorded("rtx4090-x2-rebar-off", {})["open_modules"] == false);
  CHECK_FALSE(recorded("no-gpu", {}).contains("open_modules"));
  CHECK_FALSE(recorded("no-gpu", {}).contains("driver_version"));
}

TEST_CASE("bench machine: IOMMU, and only the ports that pairs pass") {
  const nlohmann::json pair = recorded("rtx3090-x4-epyc", {"0000:01:00.0", "0000:c1:00.0"});
  CHECK(pair["iommu_arguments"] == nlohmann::json::array({"amd_iommu=on", "iommu=pt"}));
  CHECK(pair["iommu_domain"] == "identity");
  CHECK(pair["acs"] == nlohmann::json{{"0000:00:01.1", kRedirects}, {"0000:c0:01.1", kRedirects}});
  CHECK(pair["gpus"][1]["numa_node"] == 1);
  CHECK(recorded("rtx4090-x2-rebar-off", {"0000:01:00.0", "0000:02:00.0"})["acs"] ==
        nlohmann::json{{"0000:00:01.0", nlohmann::json::array()}, {"0000:00:01.1", nlohmann::json::array()}});
}

TEST_CASE("bench machine: each ACS bit has its name, and the others none") {
  Copy machine("rtx4090-x2-rebar-off");
  std::string dump = machine.read("lspci-xxxx.txt");
  const std::size_t port = dump.find("0000:00:01.0");
  const std::size_t row = dump.find("0d 00 01", port);  // the ACS capability; its control register is six bytes on
  REQUIRE(row < dump.find("0000:00:01.1"));
  dump.replace(row + 6 * 3, 2, "ff");
  machine.file("lspci-xxxx.txt", dump);
  CHECK(machine.facts({"0000:01:00.0", "0000:02:00.0"})["acs"]["0000:00:01.0"] ==
        nlohmann::json{"request redirect", "completion redirect", "upstream forwarding", "egress control",
                       "direct translated"});
}

TEST_CASE("bench machine: registry options, domains, RDMA") {
  Copy machine("rtx4090-x2-am5");
  machine.file("proc/driver/nvidia/params",
               "EnableMSI: 1\nRegistryDwords: \"RMForceStaticBar1=1;PeerMappingOverride=1\"\n"
               "RegistryDwordsPerDevice: \"no\"\n");
  machine.file("sys/kernel/iommu_groups/11/type", "identity\n");
  machine.file("sys/bus/pci/devices/0000:01:00.0/local_cpulist", "0-31\n");
  machine.file("sys/module/nvidia_peermem/version", "1\n");
  nlohmann::json facts = machine.facts({"0000:01:00.0", "0000:03:00.0"});
  CHECK(facts["registry_options"] == "RMForceStaticBar1=1;PeerMappingOverride=1");
  CHECK(facts["iommu_domain"] == "DMA-FQ, identity");
  CHECK(facts["gpus"][1]["iommu_group_type"] == "identity");
  CHECK(facts["gpus"][0]["local_cpulist"] == "0-31");
  CHECK(facts["peermem_loaded"] == true);
  CHECK(facts["rdma_nics"] == nlohmann::json::array());
}

TEST_CASE("bench machine: RDMA NICs are those that mlx5_core drives") {
  Copy machine("rtx3090-x4-epyc");
  const std::string nic = "sys/bus/pci/devices/0000:c2:00.0";
  machine.remove(nic + "/driver");
  machine.link(nic + "/driver", "../../../../bus/pci/drivers/ixgbe");
  CHECK(machine.facts({})["rdma_nics"] == nlohmann::json::array());
  machine.remove(nic + "/driver");
  machine.link(nic + "/driver", "../../../../bus/pci/drivers/mlx5_core");
  CHECK(machine.facts({})["rdma_nics"] == nlohmann::json::array({"0000:c2:00.0"}));
}

TEST_CASE("bench machine: what cannot be read is absent") {
  const test::TemporaryDirectory empty;
  const nlohmann::json facts = facts_of(empty.path(), {"0000:01:00.0"});
  CHECK(facts == nlohmann::json::parse(R"({"gpus": [{"address": "0000:01:00.0"}]})"));
  Copy machine("rtx4090-x2-am5");
  machine.file("lspci-xxxx.txt", "no dump");
  machine.file("proc/driver/nvidia/params", "RegistryDwords");
  machine.file("sys/bus/pci/devices/0000:01:00.0/numa_node", "many");
  const nlohmann::json broken = machine.facts({"0000:01:00.0"});
  CHECK(broken["kernel"] == "6.8.0-60-generic");
  for (const char* key : {"acs", "registry_options"}) CHECK_FALSE(broken.contains(key));
  CHECK_FALSE(broken["gpus"][0].contains("numa_node"));
}
