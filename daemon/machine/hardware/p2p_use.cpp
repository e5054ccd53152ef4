// SPDX-License-Identifier: MIT
#include "machine/hardware/p2p_use.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>

#include "base/json_members.hpp"
#include "machine/hardware/nccl.hpp"

namespace p2pd {
namespace {

using nlohmann::json;

/// Proof of this boot.
struct Proven {
  const std::vector<std::string>& fit_for;
  const json& report;  ///< of the last full proof, p2pd.bench/1; null if it is not known
  const NcclNeed& need;

  bool fit(P2pUse use) const { return std::ranges::count(fit_for, to_string(use)) > 0; }
  std::string why_unfit(P2pUse use) const {
    for (const json& one : field_of(field_of(report, "judgement"), "fit"))
      if (const json& why = field_of(one, "why");
          field_of(one, "use") == to_string(use) && why.is_string() && why != "")
        return why;
    return fmt::format("P2P is not proven fit for {} on this boot", to_string(use));
  }
};

constexpr std::string_view kNcclUsers[] = {"nccl", "pytorch", "vllm", "sglang", "exllama"};  // those that use NCCL
constexpr std::string_view kTorch[] = {"pytorch", "vllm", "sglang"};
constexpr std::string_view kVllm[] = {"vllm"};
constexpr std::string_view kSglang[] = {"sglang"};
constexpr std::string_view kCustom[] = {"vllm", "sglang"};
constexpr std::string_view kLlama[] = {"llama.cpp"};

/// A setting, and the reason for it on this machine; without a reason it has no effect here, and is not printed.
struct SettingRow {
  std::span<const std::string_view> applications;
  Setting::Kind kind;
  std::string_view name;
  std::string_view value;  ///< empty: the level that NCCL needs
  std::string (*reason)(const Proven&);
};

constexpr SettingRow kSettingRows[] = {
    // NCCL stops at PXB by itself on many hosts. Containers do not see /etc/nccl.conf: NCCL, "Environment Variables".
    {kNcclUsers, Setting::Kind::variable, "NCCL_P2P_LEVEL", "",
     [](const Proven& p) { return p.fit(P2pUse::nccl) && !p.need.by_itself ? p.need.why() : std::string(); }},
    {kNcclUsers, Setting::Kind::variable, "NCCL_P2P_DISABLE", "1",
     [](const Proven& p) { return p.fit(P2pUse::nccl) ? std::string() : p.why_unfit(P2pUse::nccl); }},
    // expandable_segments:True, CUDA graphs and NCCL over P2P hang together (user reports).
    {kTorch, Setting::Kind::variable, "NCCL_GRAPH_REGISTER", "0",
     [](const Proven& p) {
       return std::string(p.fit(P2pUse::nccl)
                              ? "CUDA graphs over P2P hang where PYTORCH_CUDA_ALLOC_CONF has expandable_segments:True"
                              : "");
     }},
    // vLLM caches the verdict of its check by the list of devices only; versions that skip the check by default ignore
    // it anyway.
    {kVllm, Setting::Kind::variable, "VLLM_SKIP_P2P_CHECK", "1",
     [](const Proven& p) {
       return std::string(
           p.fit(P2pUse::custom_all_reduce) ? "proven here; vLLM's cached check outlives driver and BIOS changes" : "");
     }},
    // SGLang has the same check, and does it by default.
    {kSglang, Setting::Kind::variable, "SGLANG_SKIP_P2P_CHECK", "1",
     [](const Proven& p) {
       return std::string(p.fit(P2pUse::custom_all_reduce)
                              ? "proven here; SGLang's cached check outlives driver and BIOS changes"
                              : "");
     }},
    // Custom all-reduce loads from peers: NaN on some Intel desktops while NCCL is exact (user reports).
    {kCustom, Setting::Kind::flag, "--disable-custom-all-reduce", "",
     [](const Proven& p) {
       return p.fit(P2pUse::custom_all_reduce) ? std::string() : p.why_unfit(P2pUse::custom_all_reduce);
     }},
    // ggml-cuda.cu tests the variable for presence.
    {kLlama, Setting::Kind::variable, "GGML_CUDA_P2P", "1",
     [](const Proven& p) {
       return std::string(p.fit(P2pUse::copies)
                              ? "copies are proven; llama.cpp tests for presence, so that 0 turns it on as well"
                              : "");
     }},
    {kLlama, Setting::Kind::unset, "GGML_CUDA_P2P", "",
     [](const Proven& p) {
       return p.fit(P2pUse::copies) ? std::string()
                                    : p.why_unfit(P2pUse::copies) + "; any value turns it on, 0 as well";
     }},
    // CUDA_DEVICE_ORDER is FASTEST_FIRST by default: CUDA C++ Programming Guide, "CUDA Environment Variables".
    {{},
     Setting::Kind::variable,
     "CUDA_DEVICE_ORDER",
     "PCI_BUS_ID",
     [](const Proven& p) {
       std::set<std::string> names;
       for (const json& gpu : field_of(p.report, "gpus"))
         if (const json& name = field_of(gpu, "name"); name.is_string()) names.insert(name);
       return names.size() < 2
                  ? std::string()
                  : fmt::format("the cards differ ({}), and CUDA counts the fastest first", fmt::join(names, ", "));
     }},
};

/// `text` on one line, without control characters: it may end in a shell's input.
std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

}  // namespace

std::string_view to_string(P2pUse use) {
  constexpr std::string_view kNames[] = {"copies",  "nccl",           "custom-all-reduce",
                                         "atomics", "managed-memory", "compressible-memory"};
  static_assert(std::size(kNames) == std::size(kP2pUses));
  return kNames[static_cast<std::size_t>(use)];
}

std::string known_uses() {
  std::string known;
  for (const P2pUse use : kP2pUses) known += fmt::format("{}{}", known.empty() ? "" : ", ", to_string(use));
  return known;
}

std::vector<P2pUse> usual_uses() { return {P2pUse::nccl, P2pUse::custom_all_reduce}; }

Result<std::vector<P2pUse>> uses_from(const std::vector<std::string>& names) {
  std::vector<P2pUse> uses;
  for (const std::string& name : names) {
    const auto* use = std::ranges::find_if(kP2pUses, [&](P2pUse known) { return to_string(known) == name; });
    if (use == std::end(kP2pUses))
      return fail(ErrorCode::invalid, fmt::format("\"{}\" is not a use of P2P; known: {}", name, known_uses()));
    if (std::ranges::find(uses, *use) == uses.end()) uses.push_back(*use);
  }
  if (uses.empty()) return fail(ErrorCode::invalid, "no use of P2P is given");
  return uses;
}

std::string_view to_string(Setting::Kind kind) {
  constexpr std::string_view kNames[] = {"variable", "unset", "flag"};
  return kNames[static_cast<std::size_t>(kind)];
}

Result<std::vector<Setting>> settings_of(const Host& host, const std::vector<std::string>& fit_for, const json& report,
                                         std::string_view application) {
  const NcclNeed need = TRY(nccl_need(host, report));
  const Proven proven{fit_for, report, need};
  std::vector<Setting> settings;
  for (const SettingRow& row : kSettingRows) {
    const auto applications =
        row.applications.empty() ? std::span<const std::string_view>(kApplications) : row.applications;
    if (!application.empty() && std::ranges::count(applications, application) == 0) continue;
    const std::string reason = one_line(row.reason(proven));
    if (reason.empty()) continue;
    const bool level = row.kind == Setting::Kind::variable && row.value.empty();
    settings.push_back({{applications.begin(), applications.end()},
                        row.kind,
                        row.name,
                        level ? to_string(proven.need.level) : row.value,
                        reason});
  }
  return settings;
}

}  // namespace p2pd
