// SPDX-License-Identifier: MIT
// p2pd: answers the bus, as a user of its own without rights. p2pd-worker changes the machine.

#include <algorithm>
#include <exception>

#include "base/directories.hpp"
#include "base/log.hpp"
#include "bus/broker.hpp"
#include "machine/hardware/gpus.hpp"
#include "machine/hardware/pci.hpp"
#include "plan/config.hpp"

namespace {

/// GPUs of this machine, each with the name of its model.
p2pd::Result<p2pd::Manager::Gpus> gpus_here() {
  p2pd::ProcessRunner runner;
  const p2pd::Host host(TRY(p2pd::Root::open("/")), runner);
  p2pd::Manager::Gpus gpus;
  for (const p2pd::PciDevice& device : TRY(p2pd::pci_devices(host))) {
    if (!device.is_nvidia_gpu()) continue;
    const auto model = p2pd::model_of(device.id());
    gpus.emplace_back(device.address, model ? model->name : device.id());
  }
  return gpus;
}

}  // namespace

int main() {
  try {
    const p2pd::Result<p2pd::Config> config = p2pd::load_config();
    p2pd::log::start("p2pd", config ? p2pd::log::level_called(config->log_level) : p2pd::log::Level::info);
    if (!config) p2pd::log::error("{}", config.error().message);
    const p2pd::Result<p2pd::Manager::Gpus> gpus = gpus_here();
    if (!gpus) p2pd::log::warning("{}", gpus.error().message);
    return p2pd::answer_the_bus(p2pd::state_directory(), gpus.value_or(p2pd::Manager::Gpus()));
  } catch (const std::exception& error) {
    p2pd::log::error("unexpected: {}", error.what());
    return 1;
  }
}
