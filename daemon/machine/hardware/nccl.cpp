// SPDX-License-Identifier: MIT
// NCCL's use of P2P by distance, /etc/nccl.conf, and what the system's environment says of it.
// NCCL uses P2P up to PXB, and to SYS on AMD hosts with two GPUs (ncclTopoCheckP2p in src/graph/paths.cc).
// NCCL_P2P_DISABLE=1 comes before NCCL_P2P_LEVEL; a level is a name, else a digit of the old numbering, else ignored
// (ncclGetLevel, there). Files are read by setEnvFile in src/misc/param.cc: NCCL_CONF_FILE or ~/.nccl.conf first, then
// /etc/nccl.conf. A line is KEY=VALUE without trimming; "#" is a comment at the start of a line only. setenv() does not
// overwrite: the environment wins, then the first assignment. The environment of logins is of pam_env and the shell's
// profile, that of services of systemd (systemd-system.conf(5), environment.d(5)).
#include "machine/hardware/nccl.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include "base/directories.hpp"
#include "base/enum_names.hpp"
#include "base/json_members.hpp"
#include "machine/hardware/driver_answer.hpp"
#include "machine/hardware/p2p_use.hpp"
#include "machine/hardware/pci.hpp"
#include "machine/hardware/peer_groups.hpp"

namespace p2pd {
namespace {

using namespace bench;
using nlohmann::json;

constexpr double kClearlySlower = 0.95;  // relative to a copy through host memory; less is noise
constexpr std::size_t kReportLimit = 16U << 20;
constexpr std::string_view kLevel = "NCCL_P2P_LEVEL";
constexpr std::string_view kDisable = "NCCL_P2P_DISABLE";
constexpr std::string_view kBegin = "# BEGIN p2pd";
constexpr std::string_view kEnd = "# END p2pd";
constexpr std::string_view kReaches[] = {"", "NVL", "PIX", "PXB", "PHB", "SYS"};
static_assert(std::size(kReaches) == static_cast<std::size_t>(NcclReach::sys) + 1);

/// Names that NCCL knows, with the farthest of our distances that each includes.
constexpr std::pair<std::string_view, NcclReach> kLevels[] = {
    {"LOC", NcclReach::unknown}, {"NVL", NcclReach::nvl}, {"NVB", NcclReach::nvl}, {"C2C", NcclReach::nvl},
    {"PIX", NcclReach::pix},     {"PXB", NcclReach::pxb}, {"P2C", NcclReach::pxb}, {"PXN", NcclReach::pxb},
    {"PHB", NcclReach::phb},     {"SYS", NcclReach::sys}};
constexpr NcclReach kOldLevels[] = {NcclReach::unknown, NcclReach::pix, NcclReach::pxb, NcclReach::phb, NcclReach::sys};

/// Files of the environment, or directories below `roots` with the ending of their files.
struct EnvironmentFiles {
  std::span<const std::string_view> roots;
  std::string_view place;
  std::string_view ending = {};
};
constexpr std::string_view kEtc[] = {"/etc"};
constexpr std::string_view kSystemd[] = {"/etc", "/run", "/usr/local/lib",
                                         "/usr/lib"};  // a file masks those further on
constexpr EnvironmentFiles kEnvironmentFiles[] = {
    {kEtc, "environment"},
    {kEtc, "security/pam_env.conf"},
    {kEtc, "profile"},
    {kEtc, "bash.bashrc"},
    {kEtc, "profile.d", ".sh"},
    {kSystemd, "environment.d", ".conf"},
    {kEtc, "systemd/system.conf"},
    {kEtc, "systemd/user.conf"},
    {kSystemd, "systemd/system.conf.d", ".conf"},
    {kSystemd, "systemd/user.conf.d", ".conf"},
};

/// Farthest distance that a value of NCCL_P2P_LEVEL allows; nullopt: NCCL ignores it.
std::optional<NcclReach> allowed_by(const std::string& value) {
  const auto* named = std::ranges::find(kLevels, value, [](const auto& level) { return level.first; });
  if (named != std::end(kLevels)) return named->second;
  if (value.empty() || value.front() < '0' || value.front() > '9') return std::nullopt;
  const auto old = std::strtoul(value.c_str(), nullptr, 0);
  return kOldLevels[std::min<std::size_t>(old, std::size(kOldLevels) - 1)];
}

/// True if a report is of exactly these GPUs, in this order.
bool is_of(const BenchReport& report, const std::vector<std::string>& addresses) {
  return std::ranges::equal(report.measurement.gpus, addresses, {}, &Gpu::address);
}

/// True if the driver reports NVLink between two GPUs.
bool has_nvlink(const json& answer, const std::string& from, const std::string& to) {
  return std::ranges::any_of(field_of(answer, "pairs"), [&](const json& pair) {
    return field_of(pair, "from") == from && field_of(pair, "to") == to && field_of(pair, "nvlink") == "OK";
  });
}

/// True if an assignment keeps NCCL from P2P that it needs.
bool contradicts(const NcclVariable& variable, const NcclNeed& need) {
  if (variable.name == kDisable) return std::strtol(variable.value.c_str(), nullptr, 0) == 1;
  const NcclReach own_choice = need.by_itself ? NcclReach::sys : NcclReach::pxb;
  return allowed_by(variable.value).value_or(own_choice) < need.level;
}

/// Value that `text` begins with, as a shell, pam_env and systemd read it.
std::string value_at(std::string_view text) {
  const bool quoted = text.starts_with('"') || text.starts_with('\'');
  const std::string_view ends = quoted ? text.substr(0, 1) : " \t\r;&|\"'";
  if (quoted) text.remove_prefix(1);
  return std::string(text.substr(0, text.find_first_of(ends)));
}

/// Paths of the files of the environment that are there.
std::vector<std::string> environment_files(const Host& host) {
  std::vector<std::string> paths;
  for (const auto& [roots, place, ending] : kEnvironmentFiles) {
    std::set<std::string> seen;
    for (const std::string_view root : roots) {
      const std::string path = fmt::format("{}/{}", root, place);
      if (ending.empty()) paths.push_back(path);
      for (const std::string& name : ending.empty() ? std::vector<std::string>() : host.names(path))
        if (name.ends_with(ending) && seen.insert(name).second) paths.push_back(path + "/" + name);
    }
  }
  std::erase_if(paths, [&](const std::string& path) {
    const auto info = host.files().stat(path);
    return !info || !S_ISREG(info->st_mode);
  });
  return paths;
}

/// Assignments in the files from which logins and services get their environment, the last of each name in a file.
Result<std::vector<NcclVariable>> nccl_environment(const Host& host) {
  std::vector<NcclVariable> found;
  for (const std::string& path : environment_files(host)) {
    auto text = host.files().read(path);
    if (!text && text.error().code == ErrorCode::denied) continue;  // readable by root only: doctor may run without it
    std::istringstream lines(TRY(std::move(text)));
    std::map<std::string, NcclVariable> last;
    int number = 1;
    for (std::string line; std::getline(lines, line); ++number)
      for (NcclVariable& variable : nccl_assignments(line)) {
        variable.source = fmt::format("{} line {}", path, number);
        last.insert_or_assign(variable.name, variable);
      }
    for (auto& [name, variable] : last) found.push_back(std::move(variable));
  }
  return found;
}

/// True if a report of a proof says that P2P is not fit for NCCL.
bool is_unfit(const BenchReport& report) {
  return std::ranges::any_of(report.judgement.fit, [](const Fitness& one) {
    return one.use == to_string(P2pUse::nccl) && one.kind != Fitness::Kind::fit;
  });
}

}  // namespace

std::string_view to_string(NcclReach reach) { return kReaches[static_cast<std::size_t>(reach)]; }

NcclReach nccl_reach(const Path& path) {
  if (path.kind == PathKind::nvlink) return NcclReach::nvl;
  return value_called<NcclReach>(kReaches, path.topology == "NODE" ? "PHB" : path.topology)
      .value_or(NcclReach::unknown);
}

std::string NcclNeed::why() const {
  const bool far = sys > 0;
  if (slower > 0)
    return fmt::format("across NUMA nodes P2P is slower than copies through host memory on {} of {} pair{} ({})",
                       slower, sys, sys == 1 ? "" : "s", slower_example);
  return fmt::format("recent NCCL uses P2P up to PXB only, and {} of {} pair{} are farther ({} {})", phb + sys, pairs,
                     pairs == 1 ? "" : "s", example, far ? "crosses NUMA nodes" : "passes the CPU");
}

NcclNeed nccl_need(const std::vector<NcclPair>& pairs, std::size_t gpus) {
  NcclNeed need;
  need.pairs = pairs.size();
  bool intel = false;
  for (const NcclPair& pair : pairs) {
    const bool far = pair.reach == NcclReach::sys;
    if (!far) need.level = std::max(need.level, pair.reach);
    if (pair.reach < NcclReach::phb) continue;
    intel |= pair.intel_root;
    const bool farthest = far ? need.sys++ == 0 : need.phb++ == 0 && need.sys == 0;
    if (farthest) need.example = pair.name;
    if (!far || pair.copy_gb_s <= 0 || pair.copy_gb_s >= kClearlySlower * pair.staged_gb_s) continue;
    if (need.slower++ == 0)
      need.slower_example = fmt::format("{}: {:.1f} against {:.1f} GB/s", pair.name, pair.copy_gb_s, pair.staged_gb_s);
  }
  if (need.sys > 0 && need.slower == 0) need.level = NcclReach::sys;
  need.by_itself = need.level < NcclReach::phb || (gpus <= 2 && !intel);
  return need;
}

NcclNeed nccl_need(const Measurement& run, const std::vector<std::vector<Path>>& paths) {
  std::vector<NcclPair> pairs;
  for (const Pair& pair : run.pairs) {
    if (!may_be_peers(run, pair.from, pair.to)) continue;
    const auto from = static_cast<std::size_t>(pair.from), to = static_cast<std::size_t>(pair.to);
    const bool known = from < paths.size() && to < paths[from].size();
    const double nvlink = nvlink_gb_s(run, pair);
    const Path path = nvlink > 0 ? nvlink_path(nvlink) : known ? paths[from][to] : Path();
    pairs.push_back({fmt::format("GPU {} -> GPU {}", from, to), nccl_reach(path), path.intel_root,
                     median_of(pair.copy_gb_s).value_or(0), median_of(pair.staged_gb_s).value_or(0)});
  }
  const auto groups = groups_of(run);
  return nccl_need(pairs, groups.empty() ? 0 : groups.front().size());
}

Result<NcclNeed> nccl_need(const Host& host, const BenchReport& report) {
  const std::vector<PciDevice> devices = TRY(pci_devices(host));
  const std::vector<std::string> addresses = nvidia_gpus(devices);
  const std::vector<PeerGroup> groups = peer_groups(devices);
  const auto paths = paths_between(host, devices, addresses);
  if (is_of(report, addresses)) {
    Measurement run = report.measurement;
    for (Gpu& gpu : run.gpus) gpu.group = std::ranges::find(devices, gpu.address, &PciDevice::address)->group;
    return nccl_need(run, paths);
  }
  const json answer = driver_answer(host).value_or(json());  // no driver: PCIe alone is known
  std::vector<NcclPair> pairs;
  for (std::size_t from = 0; from < addresses.size(); ++from) {
    for (std::size_t to = 0; to < addresses.size(); ++to) {
      if (from == to || !may_be_peers(devices, addresses[from], addresses[to])) continue;
      const Path& path = paths[from][to];
      pairs.push_back({fmt::format("GPU {} -> GPU {}", from, to), nccl_reach(path), path.intel_root});
      if (has_nvlink(answer, addresses[from], addresses[to])) pairs.back().reach = NcclReach::nvl;
    }
  }
  return nccl_need(pairs, groups.empty() ? addresses.size() : groups.front().gpus.size());
}

Result<BenchReport> proof_report(const Host& host) {
  auto text = host.files().read(proof_report_file(), kReportLimit);
  if (!text && text.error().code == ErrorCode::not_found) return BenchReport();
  return bench_report_from(parse_json(TRY(std::move(text))));
}

NcclConf parse_nccl_conf(std::string_view text) {
  NcclConf conf;
  conf.text = text;
  bool ours = false;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const std::string_view whole = text.substr(0, end == std::string_view::npos ? end : end + 1);
    text.remove_prefix(whole.size());
    ours |= line == kBegin && text.find(kEnd) != std::string_view::npos;
    (ours ? conf.block : conf.foreign) += whole;
    const std::size_t equals = line.find('=');
    const std::string_view key = line.substr(0, equals);
    auto* const setting = key == kLevel ? &conf.level : key == kDisable ? &conf.disabled : nullptr;
    if (equals != std::string_view::npos && setting != nullptr && !*setting)
      *setting = NcclVariable{std::string(key), std::string(line.substr(equals + 1)),
                              fmt::format("{} line {}", kNcclConf, number), ours};
    ours &= line != kEnd;
  }
  return conf;
}

Result<NcclConf> nccl_conf(const Host& host) {
  auto text = host.files().read(kNcclConf);
  if (!text && text.error().code == ErrorCode::not_found) return NcclConf{};
  return parse_nccl_conf(TRY(std::move(text)));
}

std::string NcclVariable::text() const { return fmt::format("{}: {}={}", source, name, value); }

std::vector<NcclVariable> nccl_assignments(std::string_view line) {
  constexpr std::string_view kBefore = " \t;&|(\"'=";  // a name starts behind one of these
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  if (line.starts_with('#') || line.starts_with(';')) return {};
  line = line.substr(0, std::min(line.find(" #"), line.find("\t#")));
  std::vector<NcclVariable> found;
  for (const std::string_view name : {kDisable, kLevel}) {
    for (std::size_t at = line.find(name); at != line.npos; at = line.find(name, at + 1)) {
      if (at > 0 && kBefore.find(line[at - 1]) == kBefore.npos) continue;
      std::string_view rest = line.substr(at + name.size());
      if (!rest.starts_with('=')) {  // pam_env.conf: NAME DEFAULT=VALUE
        rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
        if (!rest.starts_with("DEFAULT=") && !rest.starts_with("OVERRIDE=")) continue;
        rest.remove_prefix(rest.find('='));
      }
      found.push_back({std::string(name), value_at(rest.substr(1))});
    }
  }
  return found;
}

std::string NcclPlan::contradiction() const {
  std::vector<std::string> texts;
  for (const NcclVariable& variable : contradicting) texts.push_back(variable.text());
  return fmt::format("{}", fmt::join(texts, " and "));
}

bool NcclPlan::is_in_force() const {
  return conf.block.empty() == block.empty() &&
         (block.empty() || (conf.level && conf.level->value == to_string(need.level)));
}

Result<NcclPlan> nccl_plan(const Host& host) {
  NcclPlan plan;
  const BenchReport report = TRY(proof_report(host));
  plan.need = TRY(nccl_need(host, report));
  plan.conf = TRY(nccl_conf(host));
  plan.environment = TRY(nccl_environment(host));
  plan.unfit = is_of(report, nvidia_gpus(TRY(pci_devices(host)))) && is_unfit(report);
  plan.contradicting = plan.environment;
  for (const auto& setting : {plan.conf.disabled, plan.conf.level})
    if (setting && !setting->ours) plan.contradicting.push_back(*setting);
  std::erase_if(plan.contradicting, [&](const NcclVariable& one) { return !contradicts(one, plan.need); });
  const bool theirs = plan.conf.level && !plan.conf.level->ours;
  if (plan.need.by_itself || plan.unfit || theirs) return plan;
  plan.block =
      fmt::format("{}\n# {}\nNCCL_P2P_LEVEL={}\n{}\n", kBegin, plan.need.why(), to_string(plan.need.level), kEnd);
  return plan;
}

}  // namespace p2pd
