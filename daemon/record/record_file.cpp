// SPDX-License-Identifier: MIT
#include "record/record_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <vector>

#include "base/inode.hpp"

namespace p2pd {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kSchema[] = "p2pd.machine/2", kDirectorySchema[] = "p2pd.machine/1";
// keys in the order in which people read them
constexpr const char* kMachineKeys[] = {"schema",   "name",  "title",      "source",
                                        "captured", "notes", "free_bytes", "unreadable"};
constexpr const char* kExpectedKeys[] = {"outlook", "root_cause", "blocked_by", "why", "source", "excluding"};
constexpr const char* kOtherKeys[] = {"expected", "commands", "files"};
constexpr std::size_t kTextLimit = 64U << 20;  // bytes
constexpr std::size_t kKeyLimit = 50'000;      // half of them are enough for a machine of 1000 PCI functions
constexpr std::size_t kDirectoryLimit = 50'000;
constexpr int kDepthLimit = 16;

Failure wrong(std::string what) {
  return fail(ErrorCode::invalid, std::move(what), "Ask for the file as \"p2pctl record FILE\" wrote it.");
}

/// Quotes `text`, possibly from a stranger, for a message.
std::string shown(const std::string& text) {
  return fmt::format("{:.100}", Json(text).dump(-1, ' ', true, Json::error_handler_t::replace));
}

/// Parses `text` as JSON. Refuses what the library accepts silently: keys given twice, and depth or number of keys
/// without limit.
Result<Json> strict_json(const std::string& text) {
  using Event = Json::parse_event_t;
  std::vector<std::set<std::string>> objects;  // keys of the open objects
  std::size_t keys = 0;
  std::string mistake;
  const auto look = [&](int depth, Event event, Json& parsed) {
    if (!mistake.empty()) return false;
    if (event == Event::object_start) objects.emplace_back();
    if (event == Event::object_end) objects.pop_back();
    if (depth > kDepthLimit) mistake = fmt::format("nested deeper than {} levels", kDepthLimit);
    if (event != Event::key) return mistake.empty();
    const std::string& key = parsed.get_ref<const std::string&>();
    if (!objects.back().insert(key).second) mistake = shown(key) + " is given twice";
    if (++keys > kKeyLimit) mistake = fmt::format("more than {} keys", kKeyLimit);
    return mistake.empty();
  };
  Json json = Json::parse(text, look, false);
  if (!mistake.empty()) return wrong(mistake);
  if (json.is_discarded()) return wrong("not JSON");
  return json;
}

bool stays_below(const std::string& path) {
  if (path.empty() || path.size() >= PATH_MAX || path.find('\0') != std::string::npos) return false;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = path.find('/', begin);
    const std::string name = path.substr(begin, end == std::string::npos ? end : end - begin);
    if (name.empty() || name == "." || name == "..") return false;
  }
  return true;
}

nlohmann::ordered_json in_order(const Json& json, std::span<const char* const> keys) {
  auto out = nlohmann::ordered_json::object();
  for (const char* key : keys)
    if (const auto found = json.find(key); found != json.end()) out[key] = *found;
  return out;
}

std::string printed(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Lists every file of the record's directory. No file is above another one, so that writing them follows no link.
Result<std::map<std::string, RecordFile>> all_files(const MachineRecord& record) {
  std::map<std::string, RecordFile> all = record.files;
  std::map<std::string, std::string> described = {{"machine.json", printed(record.machine)}};
  if (record.expected) described.emplace("expected.json", printed(*record.expected));
  for (const auto& [name, command] : record.commands)
    described.emplace("commands/" + name + ".json", printed({{"argv", command.argv},
                                                             {"errors", command.result.errors},
                                                             {"output", command.result.output},
                                                             {"status", command.result.status}}));
  for (auto& [path, text] : described)
    if (!all.try_emplace(path, RecordFile{RecordFile::Kind::file, std::move(text)}).second)
      return wrong(fmt::format("files: {} belongs to another key", shown(path)));
  std::set<std::string> directories;
  for (const auto& [path, file] : all) {
    if (!stays_below(path)) return wrong(fmt::format("files: {} is no path below a directory", shown(path)));
    for (std::size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1))
      if (directories.insert(path.substr(0, at)).second && directories.size() > kDirectoryLimit)
        return wrong(fmt::format("files: more than {} directories", kDirectoryLimit));
  }
  for (const auto& [path, file] : all)
    if (directories.contains(path)) return wrong(fmt::format("files: {} is a file and a directory", shown(path)));
  return all;
}

Result<void> write_file(const fs::path& place, const RecordFile& file) {
  std::error_code error;
  fs::create_directories(place.parent_path(), error);
  if (!error && file.kind == RecordFile::Kind::link) fs::create_symlink(file.content, place, error);
  if (error) return fail_errno("cannot be written", error.value());
  if (file.kind == RecordFile::Kind::link) return {};
  errno = 0;
  std::ofstream out(place, std::ios::binary | std::ios::trunc);
  out.write(file.content.data(), static_cast<std::streamsize>(file.content.size()));
  out.close();
  if (!out) return fail_errno("cannot be written", errno != 0 ? errno : EIO);
  if (file.kind == RecordFile::Kind::program) fs::permissions(place, fs::perms(0755), error);
  return error ? fail_errno("cannot be made executable", error.value()) : Result<void>();
}

}  // namespace

std::string to_text(const MachineRecord& record) {
  Json commands = Json::object(), files = Json::object();
  for (const auto& [name, command] : record.commands) commands[name] = to_json(command);
  for (const auto& [path, file] : record.files) files[path] = to_json(file);
  nlohmann::ordered_json out = record.machine;
  out["schema"] = kSchema;
  if (record.expected) out["expected"] = *record.expected;
  out["commands"] = commands;
  out["files"] = files;
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<MachineRecord> parse_record(const std::string& text) {
  Json json = TRY(strict_json(text));
  if (!json.is_object() || json.value("schema", Json()) != kSchema)
    return wrong(fmt::format("schema: \"{}\" wanted", kSchema));
  for (const auto& [key, value] : json.items())
    if (std::ranges::find(kMachineKeys, key) == std::end(kMachineKeys) &&
        std::ranges::find(kOtherKeys, key) == std::end(kOtherKeys))
      return wrong(shown(key) + " is not a key of a record");
  for (const char* key : kOtherKeys)
    if (json.contains(key) && !json[key].is_object()) return wrong(fmt::format("{}: an object wanted", key));
  MachineRecord record;
  record.machine = in_order(json, kMachineKeys);
  record.machine["schema"] = kDirectorySchema;
  if (json.contains("expected")) record.expected = in_order(json["expected"], kExpectedKeys);
  for (const auto& [name, content] : json["commands"].items()) {
    auto command = recorded_command_from(content);
    if (!command) return wrong(fmt::format("commands: {} is not argv, status, output and errors", shown(name)));
    record.commands.emplace(name, *std::move(command));
  }
  for (const auto& [path, content] : json["files"].items()) {
    auto file = record_file_from(content);
    if (!file) return wrong(fmt::format("files: {} is neither text nor base64, program or link", shown(path)));
    record.files.emplace(path, *std::move(file));
  }
  TRY(all_files(record));
  return record;
}

Result<MachineRecord> read_record(const fs::path& file) {
  const Descriptor handle(::open(file.c_str(), O_PATH | O_CLOEXEC));
  if (!handle) return fail_errno(file.string());
  return TRY_IN(file.string(), parse_record(TRY(read_regular(handle, file.string(), kTextLimit))));
}

Result<void> unpack(const MachineRecord& record, const fs::path& directory) {
  std::map<std::string, RecordFile> files = TRY(all_files(record));
  std::error_code error;
  fs::create_directories(directory, error);
  const bool empty = !error && fs::is_empty(directory, error);
  if (error) return fail_errno(directory.string(), error.value());
  if (!empty)
    return fail(ErrorCode::state, directory.string() + " is not empty", "Name a new directory for the record.");
  const auto machine = files.extract("machine.json");
  for (const auto& [path, file] : files) TRY_IN(shown(path), write_file(directory / path, file));
  TRY_IN(shown(machine.key()), write_file(directory / machine.key(), machine.mapped()));
  return {};
}

bool NamedRoot::is_file(const fs::path& root) {
  std::error_code error;
  return fs::is_regular_file(root, error);
}

Result<NamedRoot> NamedRoot::open(const fs::path& root) {
  NamedRoot named;
  named.directory_ = root;
  if (!is_file(root)) return named;
  const MachineRecord record = TRY(read_record(root));
  named.unpacked_ = TRY(ScratchDirectory::make("record"));
  named.directory_ = named.unpacked_->path();
  TRY_IN(root.string(), unpack(record, named.directory_));
  return named;
}

}  // namespace p2pd
