// SPDX-License-Identifier: MIT
#include "machine/driver/driver_update.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/probe.hpp"
#include "catch.hpp"
#include "fake_runner.hpp"
#include "machines.hpp"

namespace p2pd {
extern const Probe kDriverUpdate;
}

using namespace p2pd;
using namespace p2pd::test;

namespace {

/// Two RTX 4090, Ubuntu 24.04 with its driver 580.95.05, and what apt has.
struct Noble {
  FakeRunner runner;
  Host host{Root::open(machine_path("ubuntu24-6.14-rtx4090-x2")).value(), runner};

  /// apt's candidate of every package of the driver; those that a newer driver brings have other names.
  void candidate(const std::string& version) {
    std::string output, argv = "apt-cache -oDir::Etc::PreferencesParts=/dev/null policy";
    for (const char* name : {"libnvidia-compute-580", "libnvidia-gl-580", "nvidia-compute-utils-580",
                             "nvidia-dkms-580-open", "nvidia-driver-580-open", "nvidia-firmware-580-580.95.05",
                             "nvidia-kernel-common-580", "nvidia-kernel-source-580-open", "nvidia-utils-580"}) {
      const bool firmware = std::string_view(name).starts_with("nvidia-firmware");
      argv += fmt::format(" {}:amd64", name);
      output += fmt::format(
          "{}:\n  Installed: 580.95.05-0ubuntu0.24.04.1\n  Candidate: {}-0ubuntu0.24.04.1\n  Version table:\n", name,
          firmware ? "580.95.05" : version);
    }
    runner.on(argv, output);
  }
  DriverUpdate update() const { return driver_update(host).value(); }
  Finding look(const Parameters& parameters = Parameters::object()) const {
    return kDriverUpdate.check(host, parameters).value();
  }
};

}  // namespace

TEST_CASE("driver update: a newer driver with a build in the catalogue") {
  Noble machine;
  machine.candidate("580.178.04");
  CHECK(machine.update().installed == "580.95.05");
  CHECK(machine.update().offered == "580.178.04");
  CHECK(machine.update().build == "guru1987/580.105.08-p2p-on-580.178.04");
  const std::string packages = fmt::format("{}", fmt::join(machine.update().packages, " "));
  CHECK(packages.find("libnvidia-compute-580=580.178.04-0ubuntu0.24.04.1") != std::string::npos);
  CHECK(packages.find("nvidia-firmware-580-580.95.05") == std::string::npos);
  CHECK(machine.look().verdict == Verdict::pass);  // a note: the machine is as it should be
  CHECK(machine.look().next == "Update with \"sudo p2pctl apply driver-update\".");
  CHECK(machine.look({{"required", true}}).verdict == Verdict::fail);
}

TEST_CASE("driver update: empty packages that bring those of another branch, as Ubuntu's 570.211.01-0ubuntu1 do") {
  Noble machine;
  machine.candidate("580.999.01");
  Command simulation = upgrade_command(machine.update().packages);
  simulation.argv.insert(simulation.argv.begin() + 1, "--simulate");
  machine.runner.on(
      simulation.text(),
      "Inst libnvidia-compute-580 [580.95.05-0ubuntu0.24.04.1] (580.999.01-0ubuntu0.24.04.1 Ubuntu:24.04/noble-updates "
      "[amd64])\n"
      "Inst libnvidia-compute-590 (590.48.01-0ubuntu0.24.04.1 Ubuntu:24.04/noble-updates [amd64])\n");
  CHECK(machine.update().offered == "590.48.01");
  CHECK(machine.update().build == "aikitoria/590.48.01-p2p");
  CHECK(machine.update().packages.front().ends_with("=580.999.01-0ubuntu0.24.04.1"));  // what apt is asked for
}

TEST_CASE("driver update: without a build the packages stay") {
  Noble machine;
  machine.candidate("580.999.01");
  CHECK(machine.update().build.empty());
  const Finding finding = machine.look({{"required", true}});
  CHECK(finding.verdict == Verdict::pass);
  CHECK(finding.summary == "driver 580.999.01 is offered, and the catalogue has no modules for it: 580.95.05 stays");
}

TEST_CASE("driver update: nothing newer, and an archive that has an older one") {
  for (const char* version : {"580.95.05", "570.211.01"}) {
    Noble machine;
    machine.candidate(version);
    CHECK(machine.update().offered.empty());
    CHECK(machine.look().next.empty());
  }
}

TEST_CASE("driver update: what apt does not tell is not known") {
  Noble machine;
  CHECK_FALSE(driver_update(machine.host));
  CHECK(machine.look().verdict == Verdict::not_applicable);  // of a record
}
