// SPDX-License-Identifier: MIT
#include "catch.hpp"
#include "machines.hpp"

namespace p2pd {
extern const Probe kVfioGuests;
}

using namespace p2pd;
using namespace p2pd::test;

TEST_CASE("vfio-guests: a card of a guest, another device of one, none") {
  const ChangedRecord machine("rtx4090-x2-healthy");
  CHECK(machine.look(kVfioGuests).summary == "no device is assigned to a guest");
  const nlohmann::json gpus = machine.look(kVfioGuests).facts["gpus"];
  CHECK(gpus.empty());
  std::string other;
  for (const auto& entry : std::filesystem::directory_iterator(machine.path("sys/bus/pci/devices")))
    if (entry.path().filename().string().starts_with("0000:00:")) other = entry.path().filename();
  REQUIRE_FALSE(other.empty());
  machine.link("sys/bus/pci/devices/" + other + "/driver", "../../../bus/pci/drivers/vfio-pci");
  CHECK(machine.look(kVfioGuests).verdict == Verdict::fail);
  CHECK(machine.look(kVfioGuests).facts["others"] == nlohmann::json{other});
  machine.link("sys/bus/pci/devices/0000:01:00.0/driver", "../../../bus/pci/drivers/vfio-pci");
  CHECK(machine.look(kVfioGuests).summary ==
        "0000:01:00.0 is bound to vfio-pci: the card belongs to a guest, not to this system");
}
