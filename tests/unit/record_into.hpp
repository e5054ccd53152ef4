// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

#include "catch.hpp"
#include "record/record.hpp"

namespace p2pd::test {

/// Records `host`, and unpacks the text of the record into `directory`.
inline MachineRecord record_into(const Host& host, const std::filesystem::path& directory) {
  MachineRecord record = parse_record(to_text(record_machine(host, "copy").value())).value();
  REQUIRE(unpack(record, directory));
  return record;
}

}  // namespace p2pd::test
