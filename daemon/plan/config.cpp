// SPDX-License-Identifier: MIT
#include "plan/config.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/parameters.hpp"
#include "base/root.hpp"
#include "base/yaml.hpp"
#include "machine/hardware/peer_groups.hpp"

namespace p2pd {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 4;  // limit of plans that are based on each other

/// Directories that hold p2pd.yaml and plans/, the first wins: /etc/p2pd, then the shipped one beside the program
/// (PREFIX/lib/p2pd for PREFIX/bin/p2pctl).
std::vector<fs::path> config_directories() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path prefix = program.parent_path().parent_path();
  // PREFIX/libexec/p2pd/p2pd-worker is one directory deeper than PREFIX/bin/p2pctl
  const fs::path shipped = prefix.filename() == "libexec" ? prefix.parent_path() : prefix;
  return {"/etc/p2pd", shipped / "lib/p2pd"};
}

Result<MirrorPlace> read_mirror(const yaml::Node& root) {
  Parameters found = Parameters::object();
  if (root.has("mirror")) found["mirror"] = TRY(TRY(root.at("mirror")).text());
  if (root.has("trusted_keys")) found["trusted_keys"] = TRY(TRY(root.at("trusted_keys")).texts());
  MirrorPlace mirror = mirror_of(found);
  if (const auto sound = check_mirror(mirror); !sound) return Failure(root.error(sound.error().message));
  return mirror;
}

/// Names the mirror to each fix that takes one, and to those that only ask mirrors for what the catalogue pins.
void add_mirror(Step& step, const MirrorPlace& mirror, const Registry& registry) {
  const Action* const fix = registry.action(step.fix);
  const auto takes = [&](std::string_view name) {
    return fix != nullptr && std::ranges::find(fix->parameters, name, &Parameter::name) != fix->parameters.end();
  };
  if (takes("mirror") && step.with.emplace("mirror", mirror.url).second)
    step.with["trusted_keys"] = mirror.trusted_keys;
  else if (takes("mirrors") && !takes("mirror"))
    step.with["mirrors"].push_back(mirror.url);  // after the plan's own
}

Result<Plan> load_plan(const std::string& name, const Registry& registry, int depth) {
  if (depth > kDeepest)
    return fail(ErrorCode::invalid, fmt::format("more than {} plans are based on each other", kDeepest));
  const Root root = TRY(Root::open("/"));
  std::vector<fs::path> files;
  if (is_plan_file(name)) {
    files.push_back(fs::absolute(name));
  } else {
    for (const fs::path& directory : config_directories()) files.push_back(directory / "plans" / (name + ".yaml"));
  }
  for (const fs::path& file : files) {
    if (!root.exists(file.string())) continue;
    return parse_plan(TRY_IN(file.string(), root.read(file.string())), file.string(), registry,
                      [&](const std::string& base) { return load_plan(base, registry, depth + 1); });
  }
  std::string looked;
  for (const fs::path& file : files) looked += (looked.empty() ? "" : ", ") + file.string();
  return fail(ErrorCode::not_found, fmt::format("no plan \"{}\"; looked for {}", name, looked),
              is_plan_file(name) ? "a plan of p2pd's directories is named without a directory and without \".yaml\""
                                 : "a file is named with a \"/\" in it, or with its \".yaml\"");
}

}  // namespace

Result<Config> parse_config(std::string_view text, std::string_view file) {
  static constexpr std::string_view kKeys[] = {"plan", "log_level", "apply_on_boot", "reboot_delay_s",
                                               "nccl", "gpus",      "mirror",        "trusted_keys"};
  static constexpr std::string_view kBooleans[] = {"false", "true"};
  static constexpr std::string_view kLevels[] = {"trace", "debug", "info", "warning", "error"};
  const yaml::Node root = TRY(yaml::parse(text, file));
  TRY(root.keys(kKeys));
  Config config;
  if (root.has("plan")) {
    config.plan = TRY(TRY(root.at("plan")).text());
    if (!is_name(config.plan) &&
        !config.plan.starts_with('/'))  // a relative path would depend on the reader's directory
      return Failure(TRY(root.at("plan")).error("expected the name of a plan, or an absolute path"));
  }
  if (root.has("log_level")) config.log_level = kLevels[TRY(TRY(root.at("log_level")).choice(kLevels))];
  if (root.has("apply_on_boot")) config.apply_on_boot = TRY(TRY(root.at("apply_on_boot")).choice(kBooleans)) == 1;
  if (root.has("reboot_delay_s"))
    config.reboot_delay_s = static_cast<int>(TRY(TRY(root.at("reboot_delay_s")).integer(0, 86'400)));
  if (root.has("nccl")) {
    config.nccl = TRY(TRY(root.at("nccl")).text());
    if (!config.nccl.starts_with('/')) return Failure(TRY(root.at("nccl")).error("expected an absolute path"));
  }
  config.mirror = TRY(read_mirror(root));
  config.gpus = TRY(read_wanted_gpus(root));
  if (config.gpus.alone) return Failure(TRY(root.at("gpus")).error("alone is in the plan of a run only"));
  return config;
}

Result<Config> load_config() {
  const Root root = TRY(Root::open("/"));
  for (const fs::path& directory : config_directories()) {
    const std::string file = directory / "p2pd.yaml";
    if (root.exists(file)) return parse_config(TRY(root.read(file)), file);
  }
  return Config{};
}

bool is_plan_file(std::string_view word) { return word.find('/') != word.npos || word.ends_with(".yaml"); }

Result<Plan> load_plan(const Config& config, const std::string& name, const Registry& registry) {
  Plan plan = TRY(load_plan(name.empty() ? config.plan : name, registry, 1));
  for (const std::string& gpu : config.gpus.left_out)
    if (std::ranges::find(plan.gpus.left_out, gpu) == plan.gpus.left_out.end()) plan.gpus.left_out.push_back(gpu);
  plan.gpus.all |= config.gpus.all;
  for (Step& step : plan.steps)
    if (step.kind == StepKind::goal && !config.nccl.empty()) step.with.emplace("nccl", config.nccl);
  for (Step& step : plan.steps)
    if (config.mirror) add_mirror(step, config.mirror, registry);
  return plan;
}

Result<WantedGpus> read_wanted_gpus(const yaml::Node& root) {
  static constexpr std::string_view kKeys[] = {"exclude", "require", "alone"};
  static constexpr std::string_view kRequired[] = {"groups", "all"};
  WantedGpus wanted;
  if (!root.has("gpus")) return wanted;
  const yaml::Node node = TRY(root.at("gpus"));
  TRY(node.keys(kKeys));
  if (node.has("require")) wanted.all = TRY(TRY(node.at("require")).choice(kRequired)) == 1;
  if (node.has("exclude")) wanted.left_out = TRY(TRY(node.at("exclude")).texts());
  if (node.has("alone")) {
    const yaml::Node alone = TRY(node.at("alone"));
    wanted.alone.emplace();
    for (const std::string& address : TRY(alone.names())) (*wanted.alone)[address] = TRY(TRY(alone.at(address)).text());
  }
  for (const std::string& word : wanted.left_out)
    if (!is_gpu_name(word))
      return Failure(
          TRY(node.at("exclude"))
              .error(fmt::format(
                  "\"{}\" names no GPU: expected a PCI address (0000:65:00.0), a model (10de:1d01) or a UUID (GPU-...)",
                  word)));
  return wanted;
}

}  // namespace p2pd
