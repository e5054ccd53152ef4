// SPDX-License-Identifier: MIT
#include "machine/hardware/pci_address.hpp"

#include "catch.hpp"

using namespace p2pd;

TEST_CASE("PCI addresses: each form in which logs write them, and nothing else") {
  const auto parsed = [](std::string_view text) { return parse_pci_address(text).value(); };
  CHECK(parsed("0000:01:00.0").domain == 0u);
  CHECK(parsed("10000:E1:1f.7").domain == 0x10000u);
  CHECK(parsed("10000:E1:1f.7").bus == 0xe1);
  CHECK(parsed("00000000:C1:00.0").bus == 0xc1);
  CHECK_FALSE(parsed("01:00.0").domain);
  CHECK(parsed("0x01:0x1c.3").device == 0x1c);
  CHECK(parsed("0x01:0x1c.3").function == 3u);
  CHECK_FALSE(parsed("000f:01:00").function);
  for (const char* none : {"", "01", "01:00", "10:11:12", "1:00.0", "0000:1:00.0", "01:00.8", "01:20.0", "01:00.00",
                           "001:00.0", "0000:01:00.0x", " 01:00.0", "01:00.0 ", "-1:00.0", "123456789:01:00.0"}) {
    CAPTURE(none);
    CHECK_FALSE(parse_pci_address(none));
  }
}

TEST_CASE("PCI addresses: the device that a message blames") {
  const auto blamed = [](std::string_view message) -> std::string {
    const auto device = blamed_device(message);
    if (!device) return "none";
    std::string text = device->domain ? std::to_string(*device->domain) + ":" : "";
    text += std::to_string(device->bus) + ":" + std::to_string(device->device);
    return text + (device->function ? "." + std::to_string(*device->function) : "");
  };
  CHECK(blamed("NVRM: Xid (PCI:0000:0a:00): 31, pid=1, name=02:00.0, Ch 8") == "0:10:0");
  CHECK(blamed("NVRM: GPU 0001:01:00.0: RmInitAdapter failed! (0x62:0x40:2192)") == "1:1:0.0");
  CHECK(blamed("NVRM: RmInitAdapter failed! (0x22:0x56:884)") == "none");
  CHECK(blamed("DMAR: [DMA Write NO_PASID] Request device [0x01:0x00.0] fault addr 0xf3000000") == "1:0.0");
  CHECK(blamed("AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:21:00.0 domain=0x0015 address=0x10") == "0:33:0.0");
  CHECK(blamed("pcieport 0000:00:01.1: AER: Uncorrected (Fatal) error received: 0000:01:00.0") == "0:1:0.0");
  CHECK(blamed("pcieport 0000:00:01.1: AER: Multiple Uncorrectable (Fatal) error message received from 0000:02:00.0") ==
        "0:2:0.0");
  CHECK(blamed("pcieport 0000:00:01.1: AER: Uncorrected (Fatal) error received: id=0008") == "0:0:1.1");
  CHECK(blamed("at 10:11:12.5 of 2021-03-02") == "none");
  CHECK(blamed("") == "none");
}
