// SPDX-License-Identifier: MIT
// p2pctl env: settings of applications that use P2P, from the proof of this boot, each with its reason.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "ctl/status.hpp"
#include "machine/driver/cdi.hpp"
#include "machine/driver/ready.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "report/fields.hpp"
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

void print_lines(const std::vector<Setting>& settings, const Proof& proven, std::string_view format) {
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

/// Last report of a full proof in the history; else of a quick one, which has fewer figures.
json last_report(const json& history) {
  json found;
  for (const json& run : list_of(history, "runs")) {
    for (const json& step : list_of(run, "steps")) {
      const json &facts = field_of(field_of(step, "finding"), "facts"), &judgement = field_of(facts, "judgement");
      if (!is_bench_report(facts) || !(flag_of(judgement, "proven") || flag_of(judgement, "limited"))) continue;
      if (text_of(facts, "mode") != "quick") return facts;
      if (found.is_null()) found = facts;
    }
  }
  return found;
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
json vllm_cache(const json& report) {
  json cache = json::object();
  const std::size_t gpus = list_of(report, "gpus").size();
  for (std::size_t i = 0; i < gpus; ++i)
    for (std::size_t j = 0; j < gpus; ++j) cache[fmt::format("{}->{}", i, j)] = i == j;
  const auto name_of = [](const json& of) {
    return fmt::format("{:g}->{:g}", number_of(of, "from").value_or(-1), number_of(of, "to").value_or(-1));
  };
  for (const json& pair : list_of(report, "pairs"))
    cache[name_of(pair)] = flag_of(pair, "access") && !field_of(pair, "verified_bytes").empty();
  for (const json& wrong : list_of(report, "wrong")) cache[name_of(wrong)] = false;
  cache.erase("-1->-1");
  return cache;
}

}  // namespace

Result<int> env(const Context& context) {
  const Options& options = context.options;
  const auto runner = TRY(context.runner());
  const auto host = TRY(context.host_of_plan(*runner)).snapshot();
  const Result<Proof> proof = require_proof(*host);
  if (!proof) return print_error(context, proof.error(), kNotReady);
  const json report = last_report(TRY(known_history(context, kSearchedRuns)));
  if (options.format == "vllm-cache") {
    if (report.is_null())
      return fail(ErrorCode::not_found, "the report of the proof is not known", "\"p2pctl apply\" proves again.");
    fmt::print("{}\n", vllm_cache(report).dump(4));
    return kDone;
  }
  const std::vector<Setting> settings = TRY(settings_of(*host, proof->fit_for, report, options.application));
  if (options.json || options.format == "json")
    print_settings(settings, *proof);
  else
    print_lines(settings, *proof, options.format);
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
