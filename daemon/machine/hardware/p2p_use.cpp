// SPDX-License-Identifier: MIT
#include "machine/hardware/p2p_use.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>

#include "base/enum_names.hpp"
#include "machine/hardware/nccl.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kUseNames[] = {"copies",  "nccl",           "custom-all-reduce",
                                          "atomics", "managed-memory", "compressible-memory"};
static_assert(std::size(kUseNames) == std::size(kP2pUses));

constexpr std::string_view kNcclUsers[] = {"nccl", "pytorch", "vllm", "sglang", "exllama"};  // those that use NCCL
constexpr std::string_view kTorch[] = {"pytorch", "vllm", "sglang"};
constexpr std::string_view kVllm[] = {"vllm"};
constexpr std::string_view kSglang[] = {"sglang"};
constexpr std::string_view kCustom[] = {"vllm", "sglang"};
constexpr std::string_view kLlama[] = {"llama.cpp"};

/// A setting that has an effect if P2P is proven `fit` for a use, or if it is not.
struct SettingRow {
  P2pUse use;
  bool fit;
  std::span<const std::string_view> applications;
  Setting::Kind kind;
  std::string_view name;
  std::string_view value;
  std::string_view reason;  ///< if P2P is not fit, behind the reason for that
};

constexpr SettingRow kSettingRows[] = {
    {P2pUse::nccl, false, kNcclUsers, Setting::Kind::variable, "NCCL_P2P_DISABLE", "1", ""},
    // expandable_segments:True, CUDA graphs and NCCL over P2P hang together (user reports).
    {P2pUse::nccl, true, kTorch, Setting::Kind::variable, "NCCL_GRAPH_REGISTER", "0",
     "CUDA graphs over P2P hang where PYTORCH_CUDA_ALLOC_CONF has expandable_segments:True"},
    // vLLM caches the verdict of its check by the list of devices only; versions that skip the check by default ignore
    // it anyway.
    {P2pUse::custom_all_reduce, true, kVllm, Setting::Kind::variable, "VLLM_SKIP_P2P_CHECK", "1",
     "proven here; vLLM's cached check outlives driver and BIOS changes"},
    // SGLang has the same check, and does it by default.
    {P2pUse::custom_all_reduce, true, kSglang, Setting::Kind::variable, "SGLANG_SKIP_P2P_CHECK", "1",
     "proven here; SGLang's cached check outlives driver and BIOS changes"},
    // Custom all-reduce loads from peers: NaN on some Intel desktops while NCCL is exact (user reports).
    {P2pUse::custom_all_reduce, false, kCustom, Setting::Kind::flag, "--disable-custom-all-reduce", "", ""},
    // ggml-cuda.cu tests the variable for presence.
    {P2pUse::copies, true, kLlama, Setting::Kind::variable, "GGML_CUDA_P2P", "1",
     "copies are proven; llama.cpp tests for presence, so that 0 turns it on as well"},
    {P2pUse::copies, false, kLlama, Setting::Kind::unset, "GGML_CUDA_P2P", "", "; any value turns it on, 0 as well"},
};

std::string why_unfit(const bench::BenchReport& report, P2pUse use) {
  for (const bench::Fitness& one : report.judgement.fit)
    if (one.use == to_string(use) && !one.why.empty()) return one.why;
  return fmt::format("P2P is not proven fit for {} on this boot", to_string(use));
}

/// `text` on one line, without control characters: it may end in a shell's input.
std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

}  // namespace

std::string_view to_string(P2pUse use) { return kUseNames[static_cast<std::size_t>(use)]; }

std::string known_uses() { return fmt::format("{}", fmt::join(kUseNames, ", ")); }

std::vector<P2pUse> usual_uses() { return {P2pUse::nccl, P2pUse::custom_all_reduce}; }

Result<std::vector<P2pUse>> uses_from(const std::vector<std::string>& names) {
  std::vector<P2pUse> uses;
  for (const std::string& name : names) {
    const auto use = value_called<P2pUse>(kUseNames, name);
    if (!use) return fail(ErrorCode::invalid, fmt::format("\"{}\" is not a use of P2P; known: {}", name, known_uses()));
    if (std::ranges::find(uses, *use) == uses.end()) uses.push_back(*use);
  }
  if (uses.empty()) return fail(ErrorCode::invalid, "no use of P2P is given");
  return uses;
}

std::string_view to_string(Setting::Kind kind) {
  constexpr std::string_view kNames[] = {"variable", "unset", "flag"};
  return kNames[static_cast<std::size_t>(kind)];
}

Result<std::vector<Setting>> settings_of(const Host& host, const std::vector<std::string>& fit_for,
                                         const bench::BenchReport& report, std::string_view application) {
  const NcclNeed need = TRY(nccl_need(host, report));
  const auto is_fit = [&](P2pUse use) { return std::ranges::count(fit_for, to_string(use)) > 0; };
  std::vector<Setting> settings;
  const auto add = [&](std::span<const std::string_view> applications, Setting::Kind kind, std::string_view name,
                       std::string_view value, std::string reason) {
    if (application.empty() || std::ranges::count(applications, application) > 0)
      settings.push_back({{applications.begin(), applications.end()}, kind, name, value, one_line(std::move(reason))});
  };
  // NCCL stops at PXB by itself on many hosts. Containers do not see /etc/nccl.conf: NCCL, "Environment Variables".
  if (is_fit(P2pUse::nccl) && !need.by_itself)
    add(kNcclUsers, Setting::Kind::variable, "NCCL_P2P_LEVEL", to_string(need.level), need.why());
  for (const SettingRow& row : kSettingRows)
    if (is_fit(row.use) == row.fit)
      add(row.applications, row.kind, row.name, row.value,
          fmt::format("{}{}", row.fit ? "" : why_unfit(report, row.use), row.reason));
  // CUDA_DEVICE_ORDER is FASTEST_FIRST by default: CUDA C++ Programming Guide, "CUDA Environment Variables".
  std::set<std::string> models;
  for (const bench::Gpu& gpu : report.measurement.gpus) models.insert(gpu.name);
  if (models.size() > 1)
    add(kApplications, Setting::Kind::variable, "CUDA_DEVICE_ORDER", "PCI_BUS_ID",
        fmt::format("the cards differ ({}), and CUDA counts the fastest first", fmt::join(models, ", ")));
  return settings;
}

}  // namespace p2pd
