// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include "catch.hpp"
#include "report/document.hpp"
#include "report/page.hpp"

namespace p2pd::test {

using namespace ctl;
using nlohmann::json;

inline constexpr const char* kUuid = "GPU-5b694366-fbc1-9c4e-3eaf-2f5dc446840";

inline json two_gpus() {
  std::ifstream file(P2PD_SOURCE_DIR "/tests/sim/two-gpus.report.json");
  return json::parse(file);
}

inline json figure(double median) {
  return {{"median", median}, {"low", median}, {"high", median}, {"repetitions", 3}};
}

/// A real report, its pairs copied for so many GPUs: four to a switch, two switches on two sockets.
inline json bench_of(std::size_t gpus) {
  json bench = two_gpus();
  const json gpu = bench["gpus"][0], pair = bench["pairs"][0], path = bench["paths"][0][1];
  for (const char* key : {"gpus", "pairs", "paths"}) bench[key] = json::array();
  bench["judgement"]["grades"] = json(gpus, json(gpus, "pass"));
  bench["advice"] = {"NCCL_P2P_LEVEL=SYS: recent NCCL uses P2P up to PXB only",
                     "Tensor parallelism (NCCL rings), not NVSHMEM (DeepEP): atomics are NS on every pair"};
  for (std::size_t from = 0; from < gpus; ++from) {
    bench["gpus"].push_back(gpu);
    bench["gpus"].back().update({{"index", from},
                                 {"uuid", kUuid + std::to_string(from)},
                                 {"address", fmt::format("0000:{:02x}:00.0", from + 1)}});
    bench["paths"].push_back(json::array());
    for (std::size_t to = 0; to < gpus; ++to) {
      const bool far = from / 4 != to / 4;
      bench["paths"].back().push_back(path);
      bench["paths"].back().back().update({{"kind", far ? "cross_socket" : "pcie_switch"},
                                           {"payload_gb_s", 28.8},
                                           {"raw_gb_s", 31.5},
                                           {"arithmetic", "Gen4 x16 31.5 GB/s, MaxPayload 256: 91.4 %"}});
      if (from == to) continue;
      bench["pairs"].push_back(pair);
      bench["pairs"].back().update({{"from", from},
                                    {"to", to},
                                    {"copy_gb_s", figure(far ? 21.4 : 26.1)},
                                    {"chase_ns", figure(far ? 2100 : 1180)},
                                    {"busy_gb_s", figure(far ? 6.2 : 13.9)}});
      if (far && from == 1) bench["judgement"]["grades"][from][to] = "warn";
    }
  }
  return bench;
}

/// The same machine before it was fixed: no P2P.
inline json before_of(json bench) {
  for (json& pair : bench["pairs"])
    for (const char* key : {"copy_gb_s", "copy_both_gb_s", "chase_ns", "store_gb_s", "load_gb_s", "busy_gb_s"})
      pair[key] = nullptr;
  return bench;
}

inline json event(const char* time, const char* boot, const char* type, const char* step = "", const char* text = "") {
  return {{"time", time}, {"boot_id", boot}, {"run", 1}, {"type", type}, {"step", step}, {"text", text}};
}

inline Plan plan() {
  Plan plan;
  for (const char* id : {"acs", "p2p-proven"}) plan.steps.emplace_back().id = id;
  plan.steps[0].title = "No port where two GPUs' ways part redirects their traffic";
  plan.steps[0].why = "Half the bandwidth, or no P2P at all.";
  plan.steps[1].title = "Every pair of GPUs moved correct bytes on this boot";
  plan.steps[1].why = "Only data that was looked at proves P2P.";
  return plan;
}

inline json finding(const char* verdict, const std::string& summary, json facts = json::object()) {
  return {{"verdict", verdict},
          {"summary", summary},
          {"facts", std::move(facts)},
          {"next", ""},
          {"evidence", {{{"source", "/sys/x"}, {"value", summary}}}}};
}

/// Sources of a report on a run of two steps, with this state and result.
inline Sources run_of(const char* state, const char* result, const json& acs, const json& proof) {
  Sources sources;
  sources.made = "2026-11-22T12:00:00Z";
  sources.plans = {plan()};
  sources.status = {{"run", 1},
                    {"plan", "geforce-p2p"},
                    {"state", state},
                    {"result", result},
                    {"reason", "as told"},
                    {"next", "\"p2pctl history\" shows every step of it"},
                    {"steps", json::array()}};
  json steps = json::array();
  for (const auto& [id, one] : {std::pair("acs", &acs), std::pair("p2p-proven", &proof)}) {
    sources.status["steps"].push_back({{"id", id},
                                       {"title", ""},
                                       {"kind", "gate"},
                                       {"status", "holds"},
                                       {"verdict", (*one)["verdict"]},
                                       {"summary", (*one)["summary"]},
                                       {"next", ""}});
    steps.push_back({{"step", id}, {"status", std::string("acs") == id ? "fixed" : "holds"}, {"finding", *one}});
  }
  sources.history = {
      {"runs",
       {{{"id", 1},
         {"plan", "geforce-p2p"},
         {"state", state},
         {"result", result},
         {"reason", "as told"},
         {"reboots", 1},
         {"started", "2026-11-22T11:00:00Z"},
         {"ended", "2026-11-22T11:09:00Z"},
         {"steps", steps}}}},
      {"events",
       {event("2026-11-22T11:00:00Z", "b-1", "begun", "", "GeForce P2P"),
        event("2026-11-22T11:00:01Z", "b-1", "boot", "", "5b694366-fbc1-9c4e-3eaf-2f5dc4468404"),
        event("2026-11-22T11:01:00Z", "b-1", "fixing", "acs"), event("2026-11-22T11:01:05Z", "b-1", "fixed", "acs"),
        event("2026-11-22T11:02:00Z", "b-1", "reboot-due", "", "takes effect with a reboot: acs"),
        event("2026-11-22T11:06:00Z", "b-2", "boot"),
        event("2026-11-22T11:08:00Z", "b-2", "proof", "p2p-proven", "12 pairs"),
        event("2026-11-22T11:09:00Z", "b-2", "proven", "", "as told")}}};
  return sources;
}

inline Sources ready_run(std::size_t gpus) {
  Sources sources =
      run_of("ready", "ready", finding("pass", "no port redirects"), finding("pass", "proven", bench_of(gpus)));
  sources.baseline = before_of(bench_of(gpus));
  return sources;
}

inline json machine_of(std::size_t gpus) {
  json machine = {{"environment", {{{"name", "Kernel"}, {"value", "6.8.0-60-generic"}}}},
                  {"gpus", json::array()},
                  {"topology", json::array()},
                  {"pairs", json::array()}};
  for (std::size_t i = 0; i < gpus; ++i) {
    const std::size_t half = i / 4;
    const std::string cpu = fmt::format("cpu {}", half), bridge = fmt::format("0000:a{}:00.0", half),
                      address = fmt::format("0000:{:02x}:00.0", i + 1);
    if (i % 4 == 0) {
      machine["topology"].push_back({{"id", cpu},
                                     {"above", ""},
                                     {"kind", "cpu"},
                                     {"title", "CPU"},
                                     {"detail", fmt::format("NUMA node {}", half)}});
      machine["topology"].push_back(
          {{"id", bridge},
           {"above", cpu},
           {"kind", "switch"},
           {"title", "Switch"},
           {"detail", bridge},
           {"port", "0000:16:02.0"},
           {"redirects", true},
           {"link", {{"generation", 4}, {"width", 16}, {"generation_most", 4}, {"width_most", 16}}}});
    }
    machine["topology"].push_back(
        {{"id", address},
         {"above", bridge},
         {"kind", "gpu"},
         {"title", fmt::format("GPU {}", i)},
         {"detail", address},
         {"port", "0000:18:00.0"},
         {"redirects", false},
         {"link", {{"generation", 1}, {"width", i == 2 ? 8 : 16}, {"generation_most", 4}, {"width_most", 16}}}});
    machine["gpus"].push_back({{"address", address},
                               {"name", "NVIDIA GeForce RTX 4090"},
                               {"uuid", kUuid + std::to_string(i)},
                               {"driver", "nvidia"},
                               {"vram_mib", 24576},
                               {"bar1_mib", 32768}});
    machine["pairs"].push_back(json::array());
    for (std::size_t to = 0; to < gpus; ++to)
      machine["pairs"].back().push_back(i == to ? json()
                                                : json{{"kind", "pcie_switch"},
                                                       {"topology", half == to / 4 ? "PIX" : "SYS"},
                                                       {"limit_gb_s", 28.8},
                                                       {"arithmetic", "Gen4 x16"}});
  }
  return machine;
}

/// The page of `sources`, as it is without its script; checks that it has no other script and loads nothing.
inline std::string page_of(const Sources& sources,
                           const Identity& identity = {"box7", "0123456789abcdef0123456789abcdef"}) {
  json document = report_document(sources);
  redact(document, identity);
  const std::string page = report_page(document);
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.ends_with("</html>\n"));
  const auto count = [&](const char* pattern) {
    const std::regex searched(pattern);
    return std::distance(std::sregex_iterator(page.begin(), page.end(), searched), std::sregex_iterator());
  };
  CHECK(count("<script") == 2);
  for (const char* outside : {"<img", " src=", "url\\(", "@import", "<link"}) CHECK(count(outside) == 0);
  return page;
}

inline bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace p2pd::test
