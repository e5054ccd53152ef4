// SPDX-License-Identifier: MIT
// Any text as a catalogue or a drop-in: what is taken is pinned where it is enabled, and the solver ends with an entry
// or a reason. The rest of the input is the compiler's text of a kernel.
#include "base/driver/catalogue.hpp"

#include "base/driver/solver.hpp"
#include "fuzz.hpp"

namespace p2pd::fuzz {
namespace {

Machine machine_of(std::string_view text) {
  Machine machine;
  const GpuModel model{"10de:2684", "NVIDIA GeForce RTX 4090", "GeForce", "Ada", 24576, 4};
  for (const char* address : {"0000:01:00.0", "0000:02:00.0"})
    machine.gpus.push_back({{address, model.id, model}, std::nullopt, 32ULL << 30, std::nullopt});
  const std::string release(text.substr(0, text.find('\n')));
  machine.kernels.push_back({{release, true, parse_compiler(text), "/proc/version", true}, {{"x", true}}});
  machine.distribution = {"debian", "12", true};
  return machine;
}

}  // namespace
}  // namespace p2pd::fuzz

void p2pd::fuzz::run(std::string_view input) {
  static const Tree tree;
  static const Catalogue shipped = catalogue(tree.host).value();
  for (const Catalogue& before : {Catalogue(), shipped}) {
    const auto all = parse_catalogue(input, "input", before);
    if (!all) {
      require(all.error().message.starts_with("input: "), "an error that does not say where");
      continue;
    }
    for (const CatalogueEntry& entry : all->entries) {
      const bool pinned = entry.commit.size() == 40 && entry.commit_status == "verified_in_git" &&
                          entry.runfile_sha256.size() == 64 && !entry.runfile_path.empty();
      require(!entry.enabled || pinned, "an enabled entry that is not pinned");
    }
    const Choice choice = choose_driver(*all, machine_of(input));
    require(choice.entry == nullptr || choice.entry->enabled, "a candidate was chosen");
    require((choice.entry == nullptr) == !choice.cause.empty(), "neither an entry nor a reason");
    require(choice.table.size() == all->entries.size(), "an entry without a verdict");
  }
  (void)choose_driver(shipped, machine_of(input));
}
