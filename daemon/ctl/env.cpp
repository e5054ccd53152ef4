// SPDX-License-Identifier: MIT
// p2pctl env: settings of applications that use P2P, from the proof of this boot, each with its reason.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "ctl/service.hpp"
#include "machine/driver/cdi.hpp"
#include "machine/driver/ready.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "report/proof.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr int kSearchedRuns = 30;  // newest runs, which are searched for the last full proof

/// A setting as a line of `format`; a flag, or a setting that an env-file cannot express, is a comment.
std::string line_of(const Setting& s, std::string_view format) {
  if (s.kind == Setting::Kind::flag) return fmt::format("# command line: {}", s.name);
  if (format == "sh")
    return s.kind == Setting::Kind::unset ? fmt::format("unset {}", s.name)
                                          : fmt::format("export {}='{}'", s.name, s.value);
  if (format == "systemd")
    return s.kind == Setting::Kind::unset ? fmt::format("UnsetEnvironment={}", s.name)
                                          : fmt::format("Environment=\"{}={}\"", s.name, s.value);
  return s.kind == Setting::Kind::unset ? fmt::format("# not set: {}", s.name) : fmt::format("{}={}", s.name, s.value);
}

void print_as(const std::vector<Setting>& settings, const Proof& proven, std::string_view format) {
  fmt::print("# P2P is proven on this boot for {}\n", fmt::join(proven.fit_for, ", "));
  const bool divided = is_divided(proven);
  if (settings.empty() && !divided) fmt::print("# nothing to set\n");
  if (format == "systemd" && !settings.empty()) fmt::print("[Service]\n");
  for (const Setting& s : settings)
    fmt::print("# {}: {}\n{}\n", fmt::join(s.applications, ", "), s.reason, line_of(s, format));
  if (!divided) return;
  fmt::print("# P2P works within each of these groups of GPUs; one of:\n");
  for (const ProvenGroup& group : proven.groups)
    fmt::print("# {}: CUDA_VISIBLE_DEVICES={}\n", group.name,
               fmt::join(group.uuids.empty() ? group.gpus : group.uuids, ","));
}

void print_settings(const std::vector<Setting>& settings, const Proof& proven) {
  json list = json::array(), groups = json::object();
  for (const ProvenGroup& group : proven.groups) groups[group.name] = group.uuids;
  for (const Setting& s : settings)
    list.push_back({{"applications", s.applications},
                    {"kind", to_string(s.kind)},
                    {"name", s.name},
                    {"value", s.value},
                    {"reason", s.reason}});
  print_json("p2pd.env/1", {{"fit_for", proven.fit_for}, {"groups", std::move(groups)}, {"settings", std::move(list)}});
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Directories of vLLM's cache: the caller's, and for root those in /home. Reference: vLLM, VLLM_CACHE_ROOT of envs.py.
std::vector<std::string> vllm_directories(const Host& host) {
  if (std::string named = variable("VLLM_CACHE_ROOT"); !named.empty()) return {std::move(named)};
  const std::string cache = variable("XDG_CACHE_HOME");
  std::vector<std::string> directories = {(cache.empty() ? variable("HOME") + "/.cache" : cache) + "/vllm"};
  if (::geteuid() == 0)
    for (const std::string& user : host.names("/home")) directories.push_back("/home/" + user + "/.cache/vllm");
  return directories;
}

/// Files of vLLM's own check of P2P that are older than the proof: vLLM does not check again if one exists.
std::vector<std::string> older_caches(const Host& host) {
  const auto proven = host.files().stat(host.files().exists(ready_file()) ? ready_file() : limited_file());
  std::vector<std::string> older;
  for (const std::string& directory : vllm_directories(host)) {
    for (const std::string& name : host.names(directory)) {
      const auto file = host.files().stat(directory + "/" + name);
      if (!name.starts_with("gpu_p2p_access_cache_for_") || !file || !proven) continue;
      const auto time = [](const struct stat& of) { return std::tuple(of.st_mtim.tv_sec, of.st_mtim.tv_nsec); };
      if (time(*file) < time(*proven)) older.push_back(directory + "/" + name);
    }
  }
  return older;
}

/// The proof as vLLM caches its check, for all GPUs: {"0->1": true}. Reference: gpu_p2p_access_check() of vLLM's
/// all_reduce_utils.py.
json vllm_cache(const bench::Measurement& run) {
  json cache = json::object();
  const auto entry = [&](int from, int to) -> json& { return cache[fmt::format("{}->{}", from, to)]; };
  for (const bench::Gpu& from : run.gpus)
    for (const bench::Gpu& to : run.gpus) entry(from.index, to.index) = from.index == to.index;
  for (const bench::Pair& pair : run.pairs) entry(pair.from, pair.to) = pair.access && !pair.verified_bytes.empty();
  for (const bench::Wrong& wrong : run.wrong)
    if (wrong.from >= 0) entry(wrong.from, wrong.to) = false;
  return cache;
}

}  // namespace

Result<int> env(const Context& context) {
  const Options& options = context.options;
  const auto host = TRY(context.host_of_plan());
  const Result<Proof> proof = require_proof(*host);
  if (!proof) return print_error(context, proof.error(), kNotReady);
  const std::vector<Measured> proofs = proofs_in(TRY(known_history(context, kSearchedRuns)));
  const bench::BenchReport report = proofs.empty() ? bench::BenchReport() : fullest(proofs)->report;
  if (options.format == "vllm-cache") {
    if (proofs.empty())
      return fail(ErrorCode::not_found, "the report of the proof is not known", "\"sudo p2pctl apply\" proves again.");
    fmt::print("{}\n", vllm_cache(report.measurement).dump(4));
    return kDone;
  }
  const std::vector<Setting> settings = TRY(settings_of(*host, proof->fit_for, report, options.application));
  if (options.json || options.format == "json")
    print_settings(settings, *proof);
  else
    print_as(settings, *proof, options.format);
  if (!options.json && options.format != "json" && (options.application.empty() || options.application == "vllm"))
    for (const std::string& file : older_caches(*host))  // as JSON: the name of a file may be anything
      fmt::print("# vllm: {} is older than the proof: remove it, or write --format vllm-cache into it\n",
                 json(file).dump(-1, ' ', true, json::error_handler_t::replace));
  if (options.format == "docker" && !options.json && host->files().exists(kOwnCdi))
    fmt::print("# for a container that should start only on a ready machine, in place of this file: --device {}\n",
               kReadyDevice);
  return kDone;
}

}  // namespace p2pd::ctl
