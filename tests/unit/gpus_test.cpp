// SPDX-License-Identifier: MIT
#include "machine/hardware/gpus.hpp"

#include <algorithm>
#include <functional>

#include "base/recorded.hpp"
#include "catch.hpp"
#include "machine/hardware/nvidia_procfs.hpp"
#include "machine/hardware/peer_groups.hpp"
#include "machines.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool is_id(std::string_view text) {
  return text.size() == 9 && text.starts_with("10de:") &&
         text.find_first_not_of("0123456789abcdef", 5) == std::string_view::npos;
}

}  // namespace

TEST_CASE("gpus: models of each kind are known") {
  struct Row {
    const char* id;
    const char* name;
    const char* segment;
    const char* architecture;
    std::optional<std::uint32_t> vram_mib;
  };
  for (const Row& row : std::vector<Row>{
           {"10de:1380", "NVIDIA GeForce GTX 750 Ti", "GeForce", "Maxwell", {}},
           {"10de:1b06", "NVIDIA GeForce GTX 1080 Ti", "GeForce", "Pascal", {}},
           {"10de:1d01", "NVIDIA GeForce GT 1030", "GeForce", "Pascal", {}},
           {"10de:1db6", "Tesla V100-PCIE-32GB", "data centre", "Volta", 32768},
           {"10de:1e04", "NVIDIA GeForce RTX 2080 Ti", "GeForce", "Turing", {}},
           {"10de:1e30", "Quadro RTX 6000 or Quadro RTX 8000", "professional", "Turing", {}},
           {"10de:1eb8", "Tesla T4", "data centre", "Turing", 16384},
           {"10de:1f82", "NVIDIA GeForce GTX 1650", "GeForce", "Turing", {}},
           {"10de:2184", "NVIDIA GeForce GTX 1660", "GeForce", "Turing", {}},
           {"10de:20b0", "NVIDIA A100-SXM4-40GB", "data centre", "Ampere", 40960},
           {"10de:20b2", "NVIDIA A100-SXM4-80GB", "data centre", "Ampere", 81920},
           {"10de:20b5", "NVIDIA A100 80GB PCIe", "data centre", "Ampere", 81920},
           {"10de:20b7", "NVIDIA A30", "data centre", "Ampere", 24576},
           {"10de:20f1", "NVIDIA A100-PCIE-40GB", "data centre", "Ampere", 40960},
           {"10de:2235", "NVIDIA A40", "data centre", "Ampere", 49152},
           {"10de:2236", "NVIDIA A10", "data centre", "Ampere", 24576},
           {"10de:2503", "NVIDIA GeForce RTX 3060", "GeForce", "Ampere", {}},  // sells as 8 and 12 GB
           {"10de:25b6", "NVIDIA A16 or A2", "data centre", "Ampere", 16384},
           {"10de:2330", "NVIDIA H100 80GB HBM3", "data centre", "Hopper", 81920},
           {"10de:2331", "NVIDIA H100 PCIe", "data centre", "Hopper", 81920},
           {"10de:2335", "NVIDIA H200", "data centre", "Hopper", 144384},
           {"10de:2342", "NVIDIA GH200 120GB or GH200 480GB", "data centre", "Hopper", 98304},  // sizes of the CPU
           {"10de:2684", "NVIDIA GeForce RTX 4090", "GeForce", "Ada", 24576},
           {"10de:26b1", "NVIDIA RTX 6000 Ada Generation", "professional", "Ada", 49152},
           {"10de:26b5", "NVIDIA L40", "data centre", "Ada", 49152},
           {"10de:26b9", "NVIDIA L40S", "data centre", "Ada", 49152},
           {"10de:27b8", "NVIDIA L4", "data centre", "Ada", 24576},
           {"10de:28e0", "NVIDIA GeForce RTX 4060 Laptop GPU", "GeForce", "Ada", {}},
           {"10de:2901", "NVIDIA B200", "data centre", "Blackwell", 184320},
           {"10de:2b85", "NVIDIA GeForce RTX 5090", "GeForce", "Blackwell", 32768},
           {"10de:2bb1", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "professional", "Blackwell", 98304},
           {"10de:2bb5", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "professional", "Blackwell", 98304},
       }) {
    CAPTURE(row.id);
    const auto model = std::ranges::find(gpu_models(), row.id, &GpuModel::id);
    REQUIRE(model != gpu_models().end());
    CHECK(model->name == row.name);
    CHECK(model->segment == row.segment);
    CHECK(model->architecture == row.architecture);
    CHECK(model->vram_mib == row.vram_mib);
  }
}

TEST_CASE("gpus: every row is sound") {
  CHECK(gpu_models().size() > 400);
  CHECK(std::ranges::adjacent_find(gpu_models(), std::greater_equal(), &GpuModel::id) == gpu_models().end());
  for (const GpuModel& model : gpu_models()) {
    CAPTURE(model.id, model.name);
    CHECK(is_id(model.id));
    const bool geforce = contains(model.name, "GeForce") || contains(model.name, "NVIDIA TITAN") ||
                         contains(model.name, "CMP") || contains(model.name, "NVIDIA P10");
    CHECK((model.segment == "GeForce") == geforce);
    const bool data_centre = model.name.starts_with("Tesla ") || contains(model.name, "HBM");
    CHECK((!data_centre || model.segment == "data centre"));
    CHECK((!contains(model.name, "Ada Generation") || model.architecture == "Ada"));
    CHECK((!contains(model.name, "Blackwell") || model.architecture == "Blackwell"));
  }
}

TEST_CASE("gpus: GeForce cards older than Ampere are told from others") {
  const auto old = [](std::string_view id) {
    return is_old_geforce(*std::ranges::find(gpu_models(), id, &GpuModel::id));
  };
  for (const char* id : {"10de:1380", "10de:1b06", "10de:1d01", "10de:1d81", "10de:1e04", "10de:2184"}) CHECK(old(id));
  for (const char* id : {"10de:1db6", "10de:1e30", "10de:1eb8", "10de:2204", "10de:2330", "10de:2684", "10de:2b85"})
    CHECK_FALSE(old(id));
}

TEST_CASE("gpus: an id that is not listed is of its chip's architecture") {
  const auto listed = model_of("10de:2684");
  REQUIRE(listed);
  CHECK(listed->name == "NVIDIA GeForce RTX 4090");
  const auto other = model_of("10de:26ff");  // a block of AD102
  REQUIRE(other);
  CHECK(other->name == "NVIDIA 10de:26ff");
  CHECK(other->architecture == "Ada");
  CHECK(other->segment.empty());
  CHECK(may_be_geforce(other));
  CHECK_FALSE(is_old_geforce(*other));
  CHECK_FALSE(model_of("10de:ffff"));
  CHECK_FALSE(model_of("1002:2684"));
}

TEST_CASE("gpus: a plan leaves GPUs out by address, model or UUID") {
  for (const char* word : {"0000:65:00.0", "65:00.0", "10de:1d01", "GPU-8f6a1c52-0000-0000-0000-000000000001"})
    CHECK(is_gpu_name(word));
  for (const char* word : {"", "0", "65:00", "0000:65:00.8", "1002:1d01", "GPU-1", "all", "65:00.0 "})
    CHECK_FALSE(is_gpu_name(word));
  const ChangedRecord machine("rtx4090-x2-healthy");
  RecordedRunner runner(machine.root());
  Host host(machine.root(), runner);
  const auto left = [&](const std::vector<std::string>& names) {
    host.leave_out_gpus(names);
    return nvidia_gpus(pci_devices(host).value());
  };
  const std::vector<std::string> all = left({});
  REQUIRE(all.size() == 2);
  CHECK(left({all[0]}) == std::vector{all[1]});
  CHECK(left({all[1].substr(5)}) == std::vector{all[0]});
  CHECK(left({"10de:2684"}).empty());
  CHECK(left({"0000:ff:00.0"}) == all);
  const std::string uuid = "GPU-8f6a1c52-0000-0000-0000-000000000001";
  CHECK(left({uuid}) == all);  // no driver reports UUIDs
  machine.file("proc/driver/nvidia/gpus/" + all[0] + "/information", "Model: \t\t NVIDIA\nGPU UUID: \t " + uuid + "\n");
  CHECK(left({uuid}) == std::vector{all[1]});
  CHECK(told_of_gpu(host, all[0], "Model") == "NVIDIA");
  CHECK(told_of_gpu(host, all[0], "UUID").empty());
}
