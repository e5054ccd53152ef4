// SPDX-License-Identifier: MIT
// Plans, the configuration, requests, events of a run, and machine records with what they leave out.
#include <iterator>

#include "actions/registry.hpp"
#include "base/parameters.hpp"
#include "base/yaml.hpp"
#include "engine/transitions.hpp"
#include "fuzz.hpp"
#include "plan/config.hpp"
#include "plan/plan.hpp"
#include "probes/registry.hpp"
#include "record/record_file.hpp"
#include "redaction.hpp"

/// Any text as a plan: it is refused with its file and line, or its written form reads as the same plan.
FUZZ(plan) {
  const Registry registry{probes(), actions()};
  const auto plan = parse_plan(input, "input", registry);
  if (!plan)
    return require(plan.error().message.starts_with("input:"), "an error without its file: " + plan.error().message);
  const auto again = parse_plan(to_json(*plan).dump(), "again", registry);
  require(again.has_value(), "a resolved plan that cannot be read");
  require(to_json(*again) == to_json(*plan), "a resolved plan that reads as another");
}

namespace {

p2pd::Result<nlohmann::json> json_of(std::string_view yaml) {
  const p2pd::yaml::Node root = TRY(p2pd::yaml::parse(yaml, "input"));
  return root.json();
}

}  // namespace

/// Any text as p2pd.yaml, and from YAML to JSON.
FUZZ(config) {
  const auto config = parse_config(input, "input");
  if (config) require(!config->plan.empty() && !config->log_level.empty(), "a setting without a value");
  const auto table = json_of(input);
  if (table) require(parse_json(table->dump()) == *table, "YAML that is no JSON");
}

/// Any sequence of events: names go both ways, revert is always allowed, a step being undone is not continued.
FUZZ(transitions) {
  constexpr unsigned kEvents = static_cast<unsigned>(Event::given_back) + 1;
  RunState state = RunState::idle;
  for (const char byte : input) {
    const auto event = static_cast<Event>(static_cast<unsigned char>(byte) % kEvents);
    require(!to_string(event).empty() && run_state(to_string(state)) == state, "a name that is not its own");
    require(next_state(state, Event::revert) == RunState::reverting, "a state that cannot be reverted");
    const auto next = next_state(state, event);
    if (!next) continue;
    require(state != RunState::reverting || *next != RunState::walking, "walked on while undoing");
    require(is_open(state) || event == Event::apply || event == Event::retry || event == Event::revert,
            "an ended run that moves unasked");
    state = *next;
  }
  (void)run_state(input);
}

/// Any text as a machine record in one file: it is refused with its place, or is written back unchanged, and unpacked
/// where it belongs.
FUZZ(record) {
  namespace fs = std::filesystem;
  const auto record = parse_record(std::string(input));
  if (!record) {
    require(record.error().code == ErrorCode::invalid && !record.error().next.empty(), "an error without a next step");
    return;
  }
  const std::string text = to_text(*record);
  const auto again = parse_record(text);
  require(again.has_value() && again->files == record->files && to_text(*again) == text,
          "a record that reads as another");
  const Tree tree;
  tree.write("outside", "kept");
  if (!unpack(*record, tree.directory / "record")) return;  // a name that is too long
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(tree.directory / "record"))
    files += entry.symlink_status().type() == fs::file_type::directory ? 0 : 1;
  const std::size_t described = record->commands.size() + (record->expected ? 2 : 1);
  require(files == record->files.size() + described, "a file that is missing, or one too many");
  for (const auto& [path, file] : record->files)
    require(fs::is_symlink(tree.directory / ("record/" + path)) == (file.kind == RecordFile::Kind::link),
            "a file of another kind");
  require(std::distance(fs::directory_iterator(tree.directory.path()), {}) == 2, "a file that lies outside");
}

/// Any text around a secret: the secret does not survive, and a second redaction changes nothing.
FUZZ(redaction) {
  if (input.find("Zq") != std::string_view::npos) return;
  const std::size_t middle = input.size() / 2;
  const std::string broken =
      test::broken_redaction(std::string(input.substr(0, middle)), std::string(input.substr(middle)));
  require(broken.empty(), broken);
}
