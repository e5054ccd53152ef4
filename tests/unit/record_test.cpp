// SPDX-License-Identifier: MIT
#include "record/record.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/recorded.hpp"
#include "catch.hpp"
#include "machine/hardware/pci.hpp"
#include "machines.hpp"
#include "record/record_files.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using test::record_into;
using test::TemporaryDirectory;

namespace {

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, std::string_view content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

struct Machine {
  explicit Machine(const fs::path& directory) : root(Root::open(directory).value()), runner(root), host(root, runner) {}
  Root root;
  RecordedRunner runner;
  Host host;
};

}  // namespace

TEST_CASE("record: the record of a record says the same") {
  const TemporaryDirectory directory;
  const Machine first(test::machine_path("rtx4090-x2-am5"));
  CHECK(record_into(first.host, directory / "copy").machine["unreadable"].empty());
  const Machine second(directory / "copy");
  const auto before = pci_devices(first.host, PciDepth::everything);
  const auto after = pci_devices(second.host, PciDepth::everything);
  REQUIRE(before);
  REQUIRE(after);
  REQUIRE(before->size() == after->size());
  for (std::size_t i = 0; i < before->size(); ++i) CHECK((*before)[i].config == (*after)[i].config);
  for (const char* path : {"/proc/cmdline", "/sys/bus/pci/devices/0000:01:00.0/resource"}) {
    CHECK(first.root.read(path).value() == second.root.read(path).value());
  }
  CHECK(second.root.read_link("/sys/bus/pci/devices/0000:01:00.0/driver").value() ==
        "../../../../bus/pci/drivers/nvidia");
  const auto machine = nlohmann::json::parse(second.root.read("/machine.json").value());
  CHECK(machine["schema"] == "p2pd.machine/1");
  CHECK(machine["name"] == "copy");
}

TEST_CASE("record: serial numbers, UUIDs and private arguments stay behind") {
  const TemporaryDirectory host;
  std::string dump = "0000:01:00.0 VGA\n";
  const std::string zeros = " 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n";
  dump += "00: de 10 84 26 00 00 00 00 a1 00 00 03 00 00 00 00\n";
  for (const char* row : {"10", "20", "30", "40", "50", "60", "70", "80", "90", "a0", "b0", "c0", "d0", "e0", "f0"}) {
    dump += row + (":" + zeros);
  }
  dump += "100: 03 00 01 00 48 b0 2d fb d9 01 e3 da 77 00 00 00\n\n";
  write(host / "lspci-xxxx.txt", dump);
  write(host / "proc/cmdline", "ro ip=10.0.0.7::10.0.0.1 quiet rip=1 systemd.hostname=box7 iommu=pt\n");
  write(host / "proc/driver/nvidia/version", "NVRM version: x  570.1  Release Build  (root@box7)  today\n");
  write(host / "proc/driver/nvidia/gpus/0000:01:00.0/information",
        "Model: \t NVIDIA H200\nGPU UUID: \t GPU-5b694366-fbc1-9c4e-3eaf-2f5dc4468404\n");
  const TemporaryDirectory target;
  record_into(Machine(host.path()).host, target / "record");
  CHECK(text_of(target / "record/lspci-xxxx.txt").find("100: 03 00 01 00 00 00 00 00 00 00 00 00 77") !=
        std::string::npos);
  CHECK(text_of(target / "record/proc/cmdline") ==
        "ro ip=removed quiet rip=removed systemd.hostname=removed iommu=pt\n");
  CHECK(text_of(target / "record/proc/driver/nvidia/version") ==
        "NVRM version: x  570.1  Release Build  (root@host)  today\n");
  CHECK(text_of(target / "record/proc/driver/nvidia/gpus/0000:01:00.0/information") ==
        "Model: \t NVIDIA H200\nGPU UUID: \t GPU-00000000-0000-0000-0000-000000000000\n");
}

TEST_CASE("record: of the output of nvidia-smi what checks read stays") {
  CHECK(nvidia_smi_excerpt("GPU 00000000:01:00.0\n  Product Name : NVIDIA H200\n  Serial Number      : 1653724064193\n"
                           "  FB Memory Usage\n    Total : 24564 MiB\n    Name : /home/jo/train.py\nx\n") ==
        "GPU 00000000:01:00.0\n  Product Name : NVIDIA H200\n  Serial Number      : removed\n"
        "  FB Memory Usage\n    Total : 24564 MiB\n    Name : removed\nremoved\n");
}

TEST_CASE("recorded: known commands are answered, others are not found") {
  const TemporaryDirectory directory;
  write(directory / "commands/topo.json",
        R"({"argv": ["nvidia-smi", "topo", "-m"], "status": 3, "output": "a\nb", "errors": "e"})");
  const Machine machine(directory.path());
  RecordedRunner runner(machine.root);
  Command command;
  command.argv = {"nvidia-smi", "topo", "-m"};
  std::string lines;
  command.on_line = [&](std::string_view line) { lines += std::string(line) + ";"; };
  const auto result = runner.run(command);
  REQUIRE(result);
  CHECK(result->status == 3);
  CHECK(result->output == "a\nb");
  CHECK(result->errors == "e");
  CHECK(lines == "a;b;");
  CHECK(runner.run({.argv = {"true"}, .outside = true})->status == 0);
  command.argv = {"nvidia-smi"};
  const auto absent = runner.run(command);
  REQUIRE_FALSE(absent);
  CHECK(absent.error().code == ErrorCode::not_found);
  CHECK(absent.error().message == "not part of this machine record: nvidia-smi");
  write(directory / "commands/a.json", R"({"argv": ["x", 1], "status": 0, "output": "", "errors": ""})");
  CHECK(runner.run(command).error().code == ErrorCode::invalid);
  CHECK_FALSE(RecordedRunner::is_record(machine.root));
}

TEST_CASE("record: of the boot parameters, nothing but the framebuffer's kind and place") {
  std::string data(4096, 'x');
  const std::string kept = framebuffer_excerpt(data);
  CHECK(kept == std::string(15, '\0') + "x" + std::string(8, '\0') + "xxxxxxxx" + std::string(22, '\0') + "xxxxxxxx" +
                    std::string(2, '\0'));
  CHECK(framebuffer_excerpt(kept) == kept);
  CHECK(framebuffer_excerpt("short").empty());
}
