// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "catch.hpp"
#include "record/record.hpp"

namespace p2pd::test {

/// The directory of a machine record (tests/machines/README.md).
inline std::filesystem::path machine_path(const std::string& name) {
  return std::filesystem::path(P2PD_MACHINES) / name;
}

/// The names of all machine records, sorted.
inline std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(P2PD_MACHINES))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

/// Records `host`, and unpacks the text of the record into `directory`.
inline MachineRecord record_into(const Host& host, const std::filesystem::path& directory) {
  MachineRecord record = parse_record(to_text(record_machine(host, "copy").value())).value();
  REQUIRE(unpack(record, directory));
  return record;
}

}  // namespace p2pd::test
