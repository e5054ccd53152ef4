// SPDX-License-Identifier: MIT
// The paths between the GPUs of recorded machines; those of made ones are in pcie_path_test.cpp.
#include "linked_machine.hpp"
#include "machines.hpp"

using namespace p2pd;

namespace {

std::vector<std::vector<Path>> recorded(const std::string& name, const std::vector<std::string>& gpus) {
  const Root root = Root::open(test::machine_path(name)).value();
  RecordedRunner runner(root);
  return paths_between(Host(root, runner), gpus).value();
}

/// Two GPUs of a record, and the path between them.
struct Row {
  const char* machine;
  std::vector<std::string> gpus;
  PathKind kind;
  double raw_gb_s;
  double payload_gb_s;
  const char* arithmetic;
};

std::vector<Row> rows() {
  return {
      {"rtx4090-x2-am5",
       {"0000:01:00.0", "0000:03:00.0"},
       PathKind::one_socket,
       15.8,
       14.4,
       "Gen4 x8 15.8 GB/s, MaxPayload 256: 91.4 %"},
      {"rtx4090-x2-rebar-off",
       {"0000:01:00.0", "0000:02:00.0"},
       PathKind::one_socket,
       15.8,
       11.5,
       "Gen4 x8 15.8 GB/s, Intel root ports split to 64 B: 72.7 %"},
      {"rtx5090-x2-genoa",
       {"0000:01:00.0", "0000:81:00.0"},
       PathKind::one_socket,
       63.0,
       57.6,
       "Gen5 x16 63.0 GB/s, MaxPayload 256: 91.4 %"},
      {"rtx3090-x4-epyc",
       {"0000:01:00.0", "0000:41:00.0"},
       PathKind::one_socket,
       31.5,
       28.8,
       "Gen4 x16 31.5 GB/s, MaxPayload 256: 91.4 %"},
      {"rtx3090-x4-epyc",
       {"0000:01:00.0", "0000:c1:00.0"},
       PathKind::cross_socket,
       31.5,
       28.8,
       "Gen4 x16 31.5 GB/s, MaxPayload 256: 91.4 %"},
      {"rtx4090-x8-two-socket",
       {"0000:19:00.0", "0000:1c:00.0"},
       PathKind::pcie_switch,
       31.5,
       28.8,
       "Gen4 x16 31.5 GB/s, MaxPayload 256: 91.4 %"},
      {"rtx4090-x8-two-socket",
       {"0000:19:00.0", "0000:9a:00.0"},
       PathKind::cross_socket,
       31.5,
       22.9,
       "Gen4 x16 31.5 GB/s, Intel root ports split to 64 B: 72.7 %"},
      {"h200-x4-vm",
       {"0000:00:06.0", "0000:00:09.0"},
       PathKind::unknown,
       63.0,
       57.6,
       "Gen5 x16 63.0 GB/s, MaxPayload 256: 91.4 %; only the GPUs' own links are visible"},
  };
}

}  // namespace

TEST_CASE("bench path: machine records") {
  for (const Row& row : rows()) {
    CAPTURE(row.machine, row.gpus[1]);
    const auto paths = recorded(row.machine, row.gpus);
    const Path& path = paths[0][1];
    CHECK(to_string(path.kind) == to_string(row.kind));
    CHECK(path.raw_gb_s == Approx(row.raw_gb_s).epsilon(0.005));
    CHECK(path.payload_gb_s == Approx(row.payload_gb_s).epsilon(0.005));
    CHECK(path.arithmetic == row.arithmetic);
    CHECK(paths[1][0].arithmetic == path.arithmetic);
    CHECK(paths[0][0].links.empty());
  }
}

TEST_CASE("bench path: links and shared ports of the two-socket record") {
  const auto paths =
      recorded("rtx4090-x8-two-socket", {"0000:19:00.0", "0000:1a:00.0", "0000:9a:00.0", "0000:9b:00.0"});
  std::vector<std::string> links;
  for (const Link& link : paths[0][2].links) links.push_back(link.address);
  CHECK(links == std::vector<std::string>{"0000:19:00.0", "0000:17:00.0", "0000:98:00.0", "0000:9a:00.0"});
  CHECK(paths[0][2].links[0].generation == 1);  // idle
  CHECK(paths[0][2].links[0].generation_most == 4);
  CHECK(paths[0][2].shared ==
        std::vector<std::string>{"0000:16:02.0", "0000:18:00.0", "0000:97:02.0", "0000:99:00.0", "node 0", "node 1"});
  CHECK_FALSE(test::share(paths[0][1], paths[2][3]));
  CHECK(test::share(paths[0][2], paths[1][3]));
  // its downstream ports redirect: a path within the switch includes the uplink, too
  CHECK(paths[0][1].shared == std::vector<std::string>{"0000:16:02.0", "0000:18:00.0", "0000:18:04.0", "node 0"});
}
