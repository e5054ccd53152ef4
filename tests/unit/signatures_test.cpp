// SPDX-License-Identifier: MIT
#include "base/signatures.hpp"

#include <fstream>
#include <iterator>

#include "base/line_pattern.hpp"
#include "catch.hpp"
#include "machines.hpp"

using namespace p2pd;

TEST_CASE("a table of signatures that is not sound is refused") {
  const std::string row = R"("log": "kernel", "means": "note", "patterns": ["abc"], "cause": "c", "source": "s")";
  const auto parse = [](const std::string& rows) {
    return parse_signatures(R"({"schema": "p2pd.signatures/1", "signatures": [)" + rows + "]}");
  };
  CHECK(parse("{\"id\": \"x\", " + row + "}"));
  for (
      const std::string& wrong : std::vector<std::string>{
          "", "1", "{" + row + "}", "{\"id\": \"x\", " + row + "},{\"id\": \"x\", " + row + "}",
          R"({"id": "x", "log": "kernel", "means": "failure", "patterns": ["abc"], "cause": "c", "source": "s"})",
          R"({"id": "x", "log": "kernel", "means": "note", "patterns": ["a|bcd"], "cause": "c", "source": "s"})",
          R"({"id": "x", "log": "kernel", "means": "note", "patterns": [], "cause": "c", "source": "s"})",
          R"({"id": "x", "log": "kernel", "means": "note", "patterns": ["abc"], "cured_by": ["a|bcd"], "cause": "c", "source": "s"})",
          R"({"id": "x", "log": "dmesg", "means": "note", "patterns": ["abc"], "cause": "c", "source": "s"})"})
    CHECK_FALSE(parse(wrong));
  CHECK_FALSE(parse_signatures("{}"));
}

TEST_CASE("a row of the kernel's log matches from the start of a record, others anywhere in a line") {
  const auto row = [](const char* log) {
    return parse_signatures(
               std::string(R"({"schema": "p2pd.signatures/1", "signatures": [{"id": "x", "means": "note", "log": ")") +
               log + R"(", "patterns": ["abc.*d"], "cured_by": ["efg"], "cause": "c", "source": "s"}]})")
        .value()
        .front();
  };
  CHECK(row("kernel").matches("abc d"));
  CHECK_FALSE(row("kernel").matches("x abc d"));
  CHECK(row("kernel").cured_by("efgh"));
  CHECK_FALSE(row("kernel").cured_by("x efg"));
  CHECK(row("build").matches("x abc d"));
  CHECK(row("program").matches("x abc d"));
}

TEST_CASE("each row of programs is found in what one prints") {
  // in the programs themselves: driver_peers_test.cpp, bench_judge_test.cpp, cli/bench_test.py
  const auto id = [](const char* output) { return program_failure(output) ? program_failure(output)->id : "none"; };
  CHECK(id("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.86") ==
        "nvml-mismatch");
  CHECK(id("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH") == "nvml-mismatch");
  CHECK(id("CUDA_ERROR_MAP_FAILED") == "map-buffer-failed");
  // as NCCL, nccl-tests and nvbandwidth print them on cards that they are too old for, or that have no peers
  CHECK(id("NCCL INFO ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856") == "nccl-too-old");
  CHECK(id("Test CUDA failure common.cu:253 'no kernel image is available for execution on the device'") ==
        "nccl-too-old");
  CHECK(id("NCCL WARN Cuda failure 'named symbol not found'") == "nccl-too-old");
  CHECK(id("Device 1: NVIDIA GeForce RTX 2080 Ti\n\nWaiving device_to_device_memcpy_write_ce.\n") == "peers-waived");
  CHECK(id("Device 1: NVIDIA GeForce RTX 4090 (00000000:02:00)\n\nWaived: \nWaived: \n") == "peers-waived");
  CHECK(id("No devices were found") == "none");
  std::size_t rows = 0;
  const std::vector<Signature> table = signatures().value();
  for (const Signature& row : table) rows += row.log == "program" ? 1 : 0;
  CHECK(rows == 4);
}

TEST_CASE("line patterns") {
  const auto found = [](std::string_view pattern, std::string_view line) {
    return LinePattern::parse(pattern).value().found_in(line);
  };
  CHECK(found("abc", "xxabcxx"));
  CHECK_FALSE(found("abc", "ab"));
  CHECK(found("abc.*de+f", "abc de abc deeef"));
  CHECK_FALSE(found("abc.*de+f", "def abc df"));
  CHECK(found("abc[0-9]*x?:", "abc:"));
  CHECK(found("abc[0-9]*x?:", "abc123x:"));
  CHECK_FALSE(found("abc[0-9]*x?:", "abc123xx:"));
  CHECK(found("abc[^)]*\\)", "abc(1)"));
  CHECK(found("abc[]-]", "abc]"));
  const auto starts = [](std::string_view pattern, std::string_view line) {
    return LinePattern::parse(pattern).value().starts(line);
  };
  CHECK(starts("abc", "abcxx"));
  CHECK_FALSE(starts("abc", "xabc"));
  CHECK_FALSE(starts("aab", "aaab"));
  CHECK(starts("x?abc.*d", "abc d"));
  CHECK(found("aab", "aaab"));  // a match that starts inside a failed one
  CHECK(found("\xc3\xa9t\xc3\xa9", "l'\xc3\xa9t\xc3\xa9"));
  for (const char* wrong : {"", "ab", "a.b.c", "abc(d)", "abc|abd", "abc{2}", "^abc", "abc$", "abc[d", "abc\\",
                            "abc\\d", "*abc", "abc**", "abc+?"})
    CHECK_FALSE(LinePattern::parse(wrong));
  CHECK(LinePattern::parse(std::string(63, 'a')));
  CHECK(found(std::string(63, 'a'), std::string(63, 'a')));
  CHECK_FALSE(LinePattern::parse(std::string(64, 'a')));
}

TEST_CASE("build log: the kernel logs of machine records are none of builds") {
  const std::vector<Signature> table = signatures().value();
  std::size_t seen = 0;
  for (const std::string& machine : test::machine_names()) {
    for (const char* path : {"var/log/kern.log", "dev/kmsg"}) {
      std::ifstream file(test::machine_path(machine) / path, std::ios::binary);
      if (!file) continue;
      const std::string log{std::istreambuf_iterator<char>(file), {}};
      CAPTURE(machine);
      for (const Signature& signature : table) {
        if (signature.log == "build") CHECK_FALSE(signature.matches(log));
      }
      ++seen;
    }
  }
  CHECK(seen > 20);
}
