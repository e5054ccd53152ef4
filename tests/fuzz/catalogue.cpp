// SPDX-License-Identifier: MIT
// Any text as a catalogue of its own, as a drop-in of the shipped one, and as the table of kernels: usable entries are
// pinned and known, and the solver ends with an entry or a reason. The text is the release and the compiler of a
// kernel, too.
#include "machine/catalogue/catalogue.hpp"

#include <algorithm>

#include "base/yaml.hpp"
#include "fuzz.hpp"
#include "machine/driver/solver.hpp"

namespace p2pd::fuzz {
namespace {

Machine machine_of(std::string_view text) {
  Machine machine;
  const GpuModel model{"10de:2684", "NVIDIA GeForce RTX 4090", "GeForce", "Ada", 24576, "AD102"};
  for (const char* address : {"0000:01:00.0", "0000:02:00.0"})
    machine.gpus.push_back({{address, model.id, model}, std::nullopt, 32ULL << 30, std::nullopt});
  const std::string release(text.substr(0, text.find('\n')));
  machine.kernels.push_back({{release, true, parse_compiler(text), "/proc/version", true}, {{"x", true}}});
  machine.distribution = {"debian", "Debian", "12", PackageManager::apt};
  machine.driver_version = "570.148.08";
  return machine;
}

bool is_hash(std::string_view text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

void require_sound(const CatalogueEntry& entry) {
  require(std::ranges::count(entry.id, '/') == 1, "an id that is not FORK/BRANCH");
  require(parse_version(entry.base_version).has_value(), "a release without a version");
  require(entry.base_commit.empty() || is_hash(entry.base_commit, 40), "a release at what is no commit");
  require(!entry.is_graft() || entry.id.ends_with("-on-" + entry.base_version), "a graft of another name");
  if (!entry.usable()) return;
  require(is_hash(entry.commit, entry.patch_file.empty() ? 40 : 64), "a patch that is not pinned may be used");
  require(entry.patch_file.empty() != entry.repository.empty(), "a patch of two places, or of none");
  require(entry.runfile_path.starts_with('/') && is_hash(entry.runfile_sha256, 64),
          "a runfile that is not pinned may be used");
  require(!entry.architectures.empty(), "a build for no GPU may be used");
  require(entry.known() > Known::single_source || entry.allowed, "what one source has may be used");
  require(!entry.allowed || is_hash(entry.base_commit, 40), "a release that is not pinned is allowed");
}

void solve(const Catalogue& all, std::string_view input) {
  const Choice choice = choose_driver(all, machine_of(input));
  require(choice.entry == nullptr || choice.entry->usable(), "a candidate was chosen");
  require((choice.entry == nullptr) == !choice.cause.empty(), "neither an entry nor a reason");
  require(choice.table.size() == all.entries.size(), "an entry without a verdict");
}

void read_kernel_table(std::string_view json, std::string_view input) {
  const auto table = parse_kernel_table(json);
  for (const auto& [release, trials] : table.value_or(KernelTable())) {
    require(std::ranges::is_sorted(trials, {}, &KernelTrial::version), "kernels out of order");
    const KernelOutlook outlook = kernel_outlook(*table, release, input.substr(0, input.find('\n')));
    require((outlook.kind == KernelOutlook::Kind::builds) == outlook.reason.empty(), "an outlook without a reason");
    (void)fails_from(*table, release);
  }
}

}  // namespace
}  // namespace p2pd::fuzz

FUZZ(catalogue) {
  static const Catalogue shipped = parse_catalogue({shipped_catalogue()}).value();
  const auto file = catalogue_file("input", input);
  if (!file) return require(file.error().message.starts_with("input:"), "an error that does not say where");
  for (const std::vector<CatalogueFile>& files : {std::vector{*file}, {shipped_catalogue(), *file}}) {
    const auto all = parse_catalogue(files);
    require(all || all.error().message.find("input") != std::string::npos, "an error that does not say where");
    if (!all) continue;
    for (const CatalogueEntry& entry : all->entries) require_sound(entry);
    require(files.size() == 1 || all->entries.size() >= shipped.entries.size(), "a drop-in takes away");
    solve(*all, input);
  }
  read_kernel_table(file->tables.dump(), input);
}
