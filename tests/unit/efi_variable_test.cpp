// SPDX-License-Identifier: MIT
#include "machine/boot/efi_variable.hpp"

#include <fstream>

#include "catch.hpp"
#include "fake_runner.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;
using namespace std::string_literals;

TEST_CASE("EFI variables: attributes are taken off, what is not whole is an error") {
  const test::TemporaryDirectory directory;
  test::FakeRunner runner;
  const Host host(Root::open(directory.path()).value(), runner);
  fs::create_directories(directory / "sys/firmware/efi/efivars");
  const auto put = [&](const std::string& bytes) {
    std::ofstream(directory / efi_variable_path("SecureBoot", kEfiGlobal), std::ios::binary) << bytes;
  };
  CHECK(efi_variable_path("SecureBoot", kEfiGlobal) ==
        "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c");
  CHECK_FALSE(efi_variable(host, "SecureBoot", kEfiGlobal).value());
  CHECK_FALSE(efi_flag(host, "SecureBoot", kEfiGlobal).value());
  put("\x06\0\0\0\x01"s);
  CHECK(efi_variable(host, "SecureBoot", kEfiGlobal).value() == "\x01"s);
  CHECK(efi_flag(host, "SecureBoot", kEfiGlobal).value() == true);
  put("\x06\0\0\0\0"s);
  CHECK(efi_flag(host, "SecureBoot", kEfiGlobal).value() == false);
  for (const std::string& bytes : {""s, "\x06\0\0"s}) {
    put(bytes);
    CHECK_FALSE(efi_variable(host, "SecureBoot", kEfiGlobal));
  }
  for (const std::string& bytes :
       {"\x06\0\0\0"s, "\x06\0\0\0\x02"s, "\x06\0\0\0\x01\x01"s, std::string(2U << 20, 'x')}) {
    put(bytes);
    CHECK_FALSE(efi_flag(host, "SecureBoot", kEfiGlobal));
  }
}

TEST_CASE("EFI text is UTF-16 up to its end") {
  CHECK(efi_text("G\0R\0U\0B\0\0\0x\0"s) == "GRUB");
  CHECK(efi_text("a\0\x1b\0\x3b\x04"s) == "a??");
  CHECK(efi_text("a\0b"s) == "a");
  CHECK(efi_text("").empty());
}
