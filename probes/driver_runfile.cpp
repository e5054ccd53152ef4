// SPDX-License-Identifier: MIT
// driver-runfile: NVIDIA's installer of the entry's version is in the cache and has the catalogue's SHA-256.
// The patched modules only work with userspace of exactly their version, which the runfile contains. It is fetched and
// checked before any part of the old driver is removed, and a file with another sum is never run.
// Reads /var/cache/p2pd/runfiles and the catalogue.
// Reference: SHA-256 sums as NVIDIA publishes them beside each runfile (.run.sha256sum).
#include "base/probe.hpp"
#include "machine/catalogue/staging.hpp"

namespace p2pd {
namespace {

constexpr Parameter kParameters[] = {
    kEntryParameter,
    kUserspaceParameter,
    {"mirrors", Parameter::Type::strings, false, "file, http or https URLs that the fix tries first"},
};

Result<Finding> check(const Host& host, const Parameters& parameters) {
  if (const auto finding = no_runfile_needed(parameters)) return *finding;
  const CatalogueEntry entry = TRY(staged_userspace(TRY(catalogue(host)), parameters));
  const std::string file = runfile_of(entry);
  const auto sum = sha256_of_file(host, file);
  if (!sum && sum.error().code != ErrorCode::not_found) return Failure(sum.error());
  Finding finding;
  finding.facts = {{"entry", entry.id}};
  finding.saw(file, sum ? "SHA-256 " + *sum : "not there");
  if (!sum)
    finding.set(Verdict::fail, "the runfile of " + entry.base_version + " is not fetched yet");
  else if (*sum == entry.runfile_sha256)
    finding.set(Verdict::pass, "the runfile of " + entry.base_version + " is in the cache, with the right SHA-256");
  else
    finding.set(Verdict::fail, file + " is damaged or not NVIDIA's: its SHA-256 differs from the catalogue's");
  return finding;
}

}  // namespace

extern const Probe kDriverRunfile = {
    .id = "driver-runfile",
    .asserts = "NVIDIA's runfile of the entry's version is in the cache, with the right SHA-256",
    .parameters = kParameters,
    .validate = validate_staging,
    .check = check,
};

}  // namespace p2pd
