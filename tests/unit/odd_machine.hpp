// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "base/recorded.hpp"
#include "catch.hpp"
#include "machines.hpp"
#include "probes/registry.hpp"
#include "temporary.hpp"

namespace p2pd::test {

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The finding; of driver-build only verdict and summary, since the name of a build depends on every byte of the
/// headers, and a record has an excerpt of those.
inline nlohmann::json look(const Probe& probe, const std::filesystem::path& directory) {
  static const auto kParameters = nlohmann::json::parse(text_of(P2PD_SOURCE_DIR "/tests/golden/parameters.json"));
  const Root root = Root::open(directory).value();
  RecordedRunner runner(root);
  const Host host(root, runner);
  const auto found = probe.check(host, kParameters.value(std::string(probe.id), nlohmann::json::object()));
  nlohmann::json finding = to_json(found ? *found : unknown(found.error()));
  if (probe.id == "driver-build") finding = {{"verdict", finding["verdict"]}, {"summary", finding["summary"]}};
  return finding;
}

inline MachineRecord record(const std::filesystem::path& from, const std::filesystem::path& to) {
  const Root root = Root::open(from).value();
  RecordedRunner runner(root);
  return record_into(Host(root, runner), to);
}

/// rtx4090-x2-healthy with oddities that the other made machines lack.
struct OddMachine {
  OddMachine() {
    std::filesystem::copy(machine_path("rtx4090-x2-healthy"), at,
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    file("etc/hostname", "gpu-box\n");
  }
  void file(const std::string& path, const std::string& content) const {
    std::filesystem::create_directories((at / path).parent_path());
    std::filesystem::remove(at / path);
    std::ofstream(at / path, std::ios::binary) << content;
  }
  void link(const std::string& path, const std::string& target) const {
    std::filesystem::create_directories((at / path).parent_path());
    std::filesystem::remove(at / path);
    std::filesystem::create_symlink(target, at / path);
  }
  std::string text(const std::string& path) const { return text_of(at / path); }
  nlohmann::json verdict(const char* id) const {
    const auto all = probes();
    return look(*std::ranges::find(all, id, &Probe::id), at);
  }
  /// Checks that every finding on a fresh record equals that on this machine.
  void same() const {
    const TemporaryDirectory elsewhere;
    record(at, elsewhere / "copy");
    for (const Probe& probe : probes()) {
      INFO(probe.id);
      CHECK(look(probe, elsewhere / "copy").dump(2) == look(probe, at).dump(2));
    }
  }

  TemporaryDirectory home;
  std::filesystem::path at = home / "odd";
};

}  // namespace p2pd::test
