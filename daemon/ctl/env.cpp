// SPDX-License-Identifier: MIT
// p2pctl env: settings of applications that use P2P, from the proof of this boot, each with its reason.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "ctl/status.hpp"
#include "engine/ready.hpp"
#include "machine/hardware/nccl.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "report/fields.hpp"
#include "report/figures.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

using nlohmann::json;

constexpr int kSearchedRuns = 30;  // newest runs, which are searched for the last full proof

/// Proof of this boot.
struct Proven {
  std::vector<std::string> fit_for;
  json report;  ///< last full report, p2pd.bench/1; null if it is not known
  NcclNeed need;

  bool fit(P2pUse use) const { return std::ranges::count(fit_for, to_string(use)) > 0; }
  std::string why_unfit(P2pUse use) const {
    for (const json& one : list_of(field_of(report, "judgement"), "fit"))
      if (text_of(one, "use") == to_string(use) && !text_of(one, "why").empty()) return text_of(one, "why");
    return fmt::format("P2P is not proven fit for {} on this boot", to_string(use));
  }
};

enum class SettingKind { variable, unset, flag };
std::string_view to_string(SettingKind kind) {
  constexpr std::string_view kNames[] = {"variable", "unset", "flag"};
  return kNames[static_cast<std::size_t>(kind)];
}

constexpr std::string_view kNcclUsers[] = {"nccl", "pytorch", "vllm", "sglang", "exllama"};  // those that use NCCL
constexpr std::string_view kTorch[] = {"pytorch", "vllm", "sglang"};
constexpr std::string_view kVllm[] = {"vllm"};
constexpr std::string_view kSglang[] = {"sglang"};
constexpr std::string_view kCustom[] = {"vllm", "sglang"};
constexpr std::string_view kLlama[] = {"llama.cpp"};

/// A setting, and the reason for it on this machine; without a reason it has no effect here, and is not printed.
struct SettingRow {
  std::span<const std::string_view> applications;
  SettingKind kind;
  std::string_view name;
  std::string_view value;  ///< empty: the level that NCCL needs
  std::string (*reason)(const Proven&);
};

constexpr SettingRow kSettingRows[] = {
    // NCCL stops at PXB by itself on many hosts. Containers do not see /etc/nccl.conf: NCCL, "Environment Variables".
    {kNcclUsers, SettingKind::variable, "NCCL_P2P_LEVEL", "",
     [](const Proven& p) { return p.fit(P2pUse::nccl) && !p.need.by_itself ? p.need.why() : std::string(); }},
    {kNcclUsers, SettingKind::variable, "NCCL_P2P_DISABLE", "1",
     [](const Proven& p) { return p.fit(P2pUse::nccl) ? std::string() : p.why_unfit(P2pUse::nccl); }},
    // expandable_segments:True, CUDA graphs and NCCL over P2P hang together (user reports).
    {kTorch, SettingKind::variable, "NCCL_GRAPH_REGISTER", "0",
     [](const Proven& p) {
       return std::string(p.fit(P2pUse::nccl)
                              ? "CUDA graphs over P2P hang where PYTORCH_CUDA_ALLOC_CONF has expandable_segments:True"
                              : "");
     }},
    // vLLM caches the verdict of its check by the list of devices only; versions that skip the check by default ignore
    // it anyway.
    {kVllm, SettingKind::variable, "VLLM_SKIP_P2P_CHECK", "1",
     [](const Proven& p) {
       return std::string(
           p.fit(P2pUse::custom_all_reduce) ? "proven here; vLLM's cached check outlives driver and BIOS changes" : "");
     }},
    // SGLang has the same check, and does it by default.
    {kSglang, SettingKind::variable, "SGLANG_SKIP_P2P_CHECK", "1",
     [](const Proven& p) {
       return std::string(p.fit(P2pUse::custom_all_reduce)
                              ? "proven here; SGLang's cached check outlives driver and BIOS changes"
                              : "");
     }},
    // Custom all-reduce loads from peers: NaN on some Intel desktops while NCCL is exact (user reports).
    {kCustom, SettingKind::flag, "--disable-custom-all-reduce", "",
     [](const Proven& p) {
       return p.fit(P2pUse::custom_all_reduce) ? std::string() : p.why_unfit(P2pUse::custom_all_reduce);
     }},
    // ggml-cuda.cu tests the variable for presence.
    {kLlama, SettingKind::variable, "GGML_CUDA_P2P", "1",
     [](const Proven& p) {
       return std::string(p.fit(P2pUse::copies)
                              ? "copies are proven; llama.cpp tests for presence, so that 0 turns it on as well"
                              : "");
     }},
    {kLlama, SettingKind::unset, "GGML_CUDA_P2P", "",
     [](const Proven& p) {
       return p.fit(P2pUse::copies) ? std::string()
                                    : p.why_unfit(P2pUse::copies) + "; any value turns it on, 0 as well";
     }},
    // CUDA_DEVICE_ORDER is FASTEST_FIRST by default: CUDA C++ Programming Guide, "CUDA Environment Variables".
    {{},
     SettingKind::variable,
     "CUDA_DEVICE_ORDER",
     "PCI_BUS_ID",
     [](const Proven& p) {
       std::set<std::string> names;
       for (const json& gpu : list_of(p.report, "gpus")) names.insert(text_of(gpu, "name"));
       return names.size() < 2
                  ? std::string()
                  : fmt::format("the cards differ ({}), and CUDA counts the fastest first", fmt::join(names, ", "));
     }},
};

/// Setting that has an effect here.
struct Setting {
  std::vector<std::string_view> applications;
  SettingKind kind;
  std::string_view name;
  std::string_view value;
  std::string reason;  ///< one line
};

/// `text` on one line, without control characters: it may end in a shell's input.
std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

std::vector<Setting> settings_of(const Proven& proven, const std::string& application) {
  std::vector<Setting> settings;
  for (const SettingRow& row : kSettingRows) {
    const auto applications =
        row.applications.empty() ? std::span<const std::string_view>(kEnvApplications) : row.applications;
    if (!application.empty() && std::ranges::count(applications, application) == 0) continue;
    const std::string reason = one_line(row.reason(proven));
    if (reason.empty()) continue;
    const bool level = row.kind == SettingKind::variable && row.value.empty();
    settings.push_back({{applications.begin(), applications.end()},
                        row.kind,
                        row.name,
                        level ? to_string(proven.need.level) : row.value,
                        reason});
  }
  return settings;
}

/// A setting as a line of `format`; a flag, and what an env-file cannot say, is a comment.
std::string line_of(const Setting& s, std::string_view format) {
  if (s.kind == SettingKind::flag) return fmt::format("# command line: {}", s.name);
  if (format == "sh")
    return s.kind == SettingKind::unset ? fmt::format("unset {}", s.name)
                                        : fmt::format("export {}='{}'", s.name, s.value);
  if (format == "systemd")
    return s.kind == SettingKind::unset ? fmt::format("UnsetEnvironment={}", s.name)
                                        : fmt::format("Environment=\"{}={}\"", s.name, s.value);
  return s.kind == SettingKind::unset ? fmt::format("# not set: {}", s.name) : fmt::format("{}={}", s.name, s.value);
}

void print_lines(const std::vector<Setting>& settings, const Proven& proven, std::string_view format) {
  fmt::print("# P2P is proven on this boot for {}\n", fmt::join(proven.fit_for, ", "));
  if (settings.empty()) fmt::print("# nothing to set\n");
  if (format == "systemd" && !settings.empty()) fmt::print("[Service]\n");
  for (const Setting& s : settings)
    fmt::print("# {}: {}\n{}\n", fmt::join(s.applications, ", "), s.reason, line_of(s, format));
}

void print_settings(const std::vector<Setting>& settings, const Proven& proven) {
  json list = json::array();
  for (const Setting& s : settings)
    list.push_back({{"applications", s.applications},
                    {"kind", to_string(s.kind)},
                    {"name", s.name},
                    {"value", s.value},
                    {"reason", s.reason}});
  print_json("p2pd.env/1", {{"fit_for", proven.fit_for}, {"settings", std::move(list)}});
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

}  // namespace

Result<int> env(const Context& context) {
  const Options& options = context.options;
  const auto runner = TRY(context.runner());
  const auto host = TRY(context.host_of_plan(*runner)).snapshot();
  const Result<Proof> proof = require_proof(*host);
  if (!proof) return print_error(context, proof.error(), kNotReady);
  Proven proven{proof->fit_for, last_report(TRY(known_history(context, kSearchedRuns))), {}};
  proven.need = TRY(nccl_need(*host, proven.report));
  const std::vector<Setting> settings = settings_of(proven, options.application);
  if (options.json || options.format == "json")
    print_settings(settings, proven);
  else
    print_lines(settings, proven, options.format);
  return kDone;
}

}  // namespace p2pd::ctl
