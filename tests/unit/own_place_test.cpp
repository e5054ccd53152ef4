// SPDX-License-Identifier: MIT
#include "machine/modules/own_place.hpp"

#include <cstdlib>

#include "catch.hpp"
#include "machine/driver/loaded_driver.hpp"
#include "machine/modules/modprobe_d.hpp"
#include "made_tree.hpp"

using namespace p2pd;
using namespace p2pd::test;

namespace {

struct Debian : MadeTree {
  Debian() {  // nvidia-open-kernel-support 550.163.01-2
    put("etc/modprobe.d/nvidia.conf",
        "install nvidia modprobe -i nvidia-current-open $CMDLINE_OPTS\n"
        "install nvidia-uvm modprobe nvidia ; modprobe -i nvidia-current-open-uvm $CMDLINE_OPTS\n");
  }
};

}  // namespace

TEST_CASE("own place: modules have the names that modprobe loads here") {
  const MadeTree plain;
  CHECK(name_here(plain.host, "nvidia-uvm").value() == "nvidia-uvm");
  const Debian debian;
  CHECK(name_here(debian.host, "nvidia").value() == "nvidia-current-open");
  CHECK(name_here(debian.host, "nvidia-uvm").value() == "nvidia-current-open-uvm");
  CHECK(own_place_files(debian.host)
            .value()
            .front()
            .content.find("\noverride nvidia-current-open-uvm * updates/p2pd\n") != std::string::npos);
  const MadeTree other;
  other.put("etc/modprobe.d/x.conf", "install nvidia /opt/load-it\n");
  CHECK_FALSE(name_here(other.host, "nvidia"));
}

TEST_CASE("own place: an override of somebody else that depmod reads after ours is named") {
  const Debian machine;
  const auto overruling = [&] { return overruling_override(machine.host, "nvidia-current-open").value(); };
  CHECK(overruling().empty());
  machine.put("etc/depmod.d/a.conf", "override nvidia-current-open * kernel/x\n");  // read before ours
  machine.put("etc/depmod.d/zz-p2pd.conf", own_place_files(machine.host).value().front().content);
  CHECK(overruling().empty());
  machine.put("etc/depmod.d/zzz.alias", "override nvidia_current_open * kernel/x\n");  // depmod(8): *.conf only
  CHECK(overruling().empty());
  machine.put("usr/lib/depmod.d/zzz.conf", "search updates\noverride nvidia_current_open * kernel/x\n");
  CHECK(overruling() == "/usr/lib/depmod.d/zzz.conf:2");
  machine.put("etc/depmod.d/zzz.conf", "");  // masks it
  CHECK(overruling().empty());
}

TEST_CASE("own place: the hooks are sound shell") {
  const MadeTree machine;
  CHECK(missing_place_file(machine.host).value() == kDepmodDropIn);
  const std::vector<PlaceFile> files = own_place_files(machine.host).value();
  for (const PlaceFile& file : files) {
    machine.put(file.path.substr(1), file.content);
    if (file.mode == 0755)
      CHECK(std::system(("sh -n " + (machine.directory / file.path.substr(1)).string()).c_str()) == 0);
  }
  CHECK(missing_place_file(machine.host).value().empty());
  machine.put(std::string(kRemovalHook).substr(1), "#!/bin/sh\n");
  CHECK(missing_place_file(machine.host).value() == kRemovalHook);
}

TEST_CASE(
    "own place: while the modules are on trial p2pd loads the file itself, with the options of its install line") {
  const Debian machine;
  machine.put("etc/modprobe.d/zz-p2pd.conf",
              "options nvidia NVreg_EnableResizableBar=1 NVreg_RegistryDwords=\"a=1;b=2\" NVreg_X=\"a b\"\n");
  CHECK(load_command(machine.host, "nvidia").text() == "modprobe nvidia");
  machine.put(std::string(kTrialBan).substr(1), "install nvidia /bin/false\n");
  CHECK(load_command(machine.host, "nvidia").text() ==
        "modprobe --ignore-install nvidia-current-open NVreg_EnableResizableBar=1 'NVreg_RegistryDwords=a=1;b=2' "
        "'NVreg_X=\"a b\"'");
  CHECK(load_command(machine.host, "nvidia-uvm").text() == "modprobe --ignore-install nvidia-current-open-uvm");
  const MadeTree plain;
  plain.put(std::string(kTrialBan).substr(1), "install nvidia /bin/false\n");
  CHECK(load_command(plain.host, "nvidia").text() == "modprobe --ignore-install nvidia");
}
