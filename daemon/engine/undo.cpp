// SPDX-License-Identifier: MIT
#include "engine/undo.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/enum_names.hpp"
#include "base/json_members.hpp"
#include "base/sha256.hpp"
#include "machine/boot/grub.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/hardware/nccl.hpp"

namespace p2pd {
namespace {

using nlohmann::json;

std::string from_hex(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
  return bytes;
}

json attributes(const FileState& state) {
  json xattrs = json::object();
  for (const auto& [name, value] : state.xattrs) xattrs[name] = hex_of(value);
  return {{"kind", to_string(state.kind)},
          {"mode", state.mode},
          {"uid", state.uid},
          {"gid", state.gid},
          {"xattrs", std::move(xattrs)}};
}

/// SHA-256 of everything at a path.
std::string digest(const FileState& state) { return sha256_of(attributes(state).dump() + state.content); }

constexpr std::string_view kRestore[] = {"bytes", "generated", "attribute", "discarded", "by_action"};

std::optional<Restore> restore_named(std::string_view name) { return value_called<Restore>(kRestore, name); }

/// True if the existing content is saved and restored on undo.
bool is_kept(Restore restore) { return restore != Restore::discarded && restore != Restore::by_action; }

std::string parent_of(const std::string& path) { return path.substr(0, std::max<std::size_t>(path.rfind('/'), 1)); }

FileState::Kind kind_named(std::string_view name) {
  for (const auto kind : {FileState::Kind::regular, FileState::Kind::symlink, FileState::Kind::directory}) {
    if (to_string(kind) == name) return kind;
  }
  return FileState::Kind::absent;
}

/// True if every present member of an undo record has its type.
bool is_sound(const json& record) {
  const auto all = [&](auto is, std::initializer_list<const char*> keys) {
    return std::all_of(keys.begin(), keys.end(),
                       [&](const char* key) { return !record.contains(key) || (record[key].*is)(); });
  };
  if (!record.is_object() || !record.contains("path")) return false;
  if (!all(&json::is_string, {"path", "result", "step", "check", "fix", "kind", "restore", "sha256", "made_by"}))
    return false;
  for (const char* key : {"mode", "uid", "gid"})
    if (record.contains(key) && !json_number<unsigned>(record[key])) return false;
  if (record.contains("run") && !json_number<std::int64_t>(record["run"])) return false;
  if (!restore_named(record.value("restore", "bytes"))) return false;
  if (!all(&json::is_object, {"with", "xattrs"})) return false;
  const json xattrs = record.value("xattrs", json::object());
  return std::all_of(xattrs.begin(), xattrs.end(), [](const json& value) {
    return value.is_string() &&
           value.get_ref<const std::string&>().find_first_not_of("0123456789abcdef") == std::string::npos;
  });
}

Result<json> read_record(const Root& state, const std::string& name) {
  const std::string base = state.directory().string() + "/undo/" + name;
  const Result<std::string> text = state.read("/undo/" + name + ".json");
  json record = parse_json(text.value_or(""));
  if (is_sound(record)) return record;
  return fail(ErrorCode::invalid,
              text ? fmt::format("undo record {}.json is damaged", base)
                   : fmt::format("undo record {}.json cannot be read: {}", base, text.error().message),
              fmt::format("restore that file by hand from {0}.bytes, then \"sudo rm {0}.*\"", base));
}

/// The part of others and the block of p2pd in a file that they share. Nothing: another file, or a block without end.
std::optional<GrubCustom> parts_of(std::string_view path, const std::string& text) {
  std::optional<GrubCustom> parts;
  if (path == kNcclConf) parts = {parse_nccl_conf(text).foreign, parse_nccl_conf(text).block};
  if (path == kGrubCustom) parts = split_grub_custom(text).value_or(GrubCustom{text, {}});
  return parts && parts->user.find("# BEGIN p2pd") != std::string::npos ? std::nullopt : parts;
}

/// A shared file as it is now, with the block that `old` has, or none: what others changed since stays, also its mode.
/// Absent if nothing is left of a file that p2pd made. Nothing: it has no such parts.
std::optional<FileState> with_block_of(const std::string& path, const FileState& old, FileState now) {
  const auto before = parts_of(path, old.content), after = parts_of(path, now.content);
  const bool made = old.kind == FileState::Kind::absent;
  if (!before || !after || now.kind != FileState::Kind::regular || (!made && old.kind != now.kind)) return std::nullopt;
  now.content = after->user;
  if (!before->trial.empty() && !now.content.empty() && !now.content.ends_with('\n')) now.content += '\n';
  now.content += before->trial;
  return made && now.content.empty() ? FileState{} : now;
}

}  // namespace

Result<UndoStore> UndoStore::open(Root state, Root host) {
  UndoStore store(std::move(state), std::move(host));
  if (!store.state_.exists("/undo")) return store;
  for (const std::string& file : TRY(store.state_.list("/undo"))) {
    const std::string name = file.substr(0, file.find('.'));
    if (file != name + ".json" || name.find_first_not_of("0123456789") != std::string::npos) continue;
    Entry& entry = store.entries_.emplace_back();
    entry.name = name;
    const Result<json> read = read_record(store.state_, entry.name);
    if (!read) {
      entry.damage = read.error();
      continue;
    }
    const json& record = *read;
    entry.path = record.value("path", "");
    entry.restore = *restore_named(record.value("restore", "bytes"));
    entry.result = record.value("result", "");
    entry.owner = {json_number<std::int64_t>(record, "run"),
                   record.value("step", ""),
                   record.value("check", ""),
                   record.value("fix", ""),
                   record.value("with", json::object()),
                   record.value("made_by", "")};
  }
  return store;
}

Result<void> UndoStore::save(const Entry& entry, const FileState* before) {
  const std::string base = "/undo/" + entry.name;
  json record = before == nullptr ? TRY(read_record(state_, entry.name)) : attributes(*before);
  record["path"] = entry.path;
  record["run"] = entry.owner.run;
  record["step"] = entry.owner.step;
  record["check"] = entry.owner.check;
  record["fix"] = entry.owner.fix;
  record["with"] = entry.owner.with.is_null() ? json::object() : entry.owner.with;
  record["restore"] = kRestore[static_cast<std::size_t>(entry.restore)];
  record["result"] = entry.result;
  if (before != nullptr) record["made_by"] = P2PD_VERSION, record["sha256"] = sha256_of(before->content);
  FileState file{FileState::Kind::regular, "", 0600, ::geteuid(), ::getegid(), {}};
  if (before != nullptr) {
    file.content = before->content;
    TRY(state_.put(base + ".bytes", file));
  }
  file.content = record.dump(1) + "\n";
  return state_.put(base + ".json", file);  // last: without its .bytes a record would be invalid
}

Result<void> UndoStore::before_change(std::string_view path, Restore restore) {
  changed_ = true;
  if (owner_.run == 0) return {};
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& e) { return e.path == path; });
  const bool again = found != entries_.rend() && found->owner == owner_;
  if (again && found->result.empty()) return {};
  const bool reads = restore == Restore::attribute || (is_kept(restore) && !again);
  const FileState now = reads ? TRY_IN("cannot save the data for undo", host_.capture(path)) : FileState{};
  if (again) {
    // an attribute that a reboot reset: undo restores the value of this boot
    const bool reset = restore == Restore::attribute && digest(now) != found->result;
    // the content is about to change: no change counts as foreign until the new content is recorded
    found->result.clear();
    return save(*found, reset ? &now : nullptr);
  }
  const int last = entries_.empty() ? 0 : std::stoi(entries_.back().name);
  const Entry entry{fmt::format("{:06}", last + 1), owner_, std::string(path), restore, ""};
  TRY_IN("cannot save the data for undo", save(entry, &now));
  entries_.push_back(entry);
  return {};
}

std::string UndoStore::change() const {
  const Owner& owner = owner_.run == 0 ? undone_ : owner_;
  return fmt::format("{}-{}", owner.run, owner.step);
}

bool UndoStore::is_as_left(std::string_view path) const {
  const Entry* entry = newest_of(path);
  const auto now = host_.capture(path);
  return entry != nullptr && !entry->result.empty() && now && digest(*now) == entry->result;
}

Result<void> UndoStore::note_result() {
  for (Entry& entry : entries_) {
    if (!(entry.owner == owner_) || newest_of(entry.path) != &entry || !is_kept(entry.restore)) continue;
    if (entry.restore == Restore::attribute && !entry.result.empty())
      continue;  // not written since: it may be of another boot
    const std::string now = digest(TRY(host_.capture(entry.path)));
    if (now == entry.result) continue;
    entry.result = now;
    TRY(save(entry, nullptr));
  }
  return {};
}

const UndoStore::Entry* UndoStore::newest_of(std::string_view path) const {
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& e) { return e.path == path; });
  return found == entries_.rend() ? nullptr : &*found;
}

std::optional<UndoStore::Owner> UndoStore::newest() const {
  return entries_.empty() ? std::nullopt : std::optional<Owner>(entries_.back().owner);
}

std::optional<UndoStore::Owner> UndoStore::newest_for(std::string_view step) const {
  const auto found =
      std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& e) { return e.owner.step == step; });
  return found == entries_.rend() ? std::nullopt : std::optional<Owner>(found->owner);
}

std::vector<UndoStore::Owner> UndoStore::owners() const {
  std::vector<Owner> owners;
  for (const Entry& entry : entries_)
    if (!entry.damage && std::ranges::find(owners, entry.owner) == owners.end()) owners.push_back(entry.owner);
  return owners;
}

std::vector<std::string> UndoStore::paths(const Owner& owner) const {
  std::vector<std::string> paths;
  for (const Entry& entry : entries_)
    if (entry.owner == owner && std::ranges::find(paths, entry.path) == paths.end()) paths.push_back(entry.path);
  return paths;
}

std::size_t UndoStore::newest_stretch() const {
  std::size_t first = entries_.size();
  while (first > 0 && entries_[first - 1].owner == entries_.back().owner) --first;
  return first;
}

Result<FileState> UndoStore::before(const Entry& entry) const {
  const json record = TRY(read_record(state_, entry.name));
  FileState state;
  state.kind = kind_named(record.value("kind", ""));
  state.mode = json_number<unsigned>(record, "mode");
  state.uid = json_number<unsigned>(record, "uid");
  state.gid = json_number<unsigned>(record, "gid");
  const json xattrs = record.value("xattrs", json::object());
  for (const auto& [name, value] : xattrs.items()) state.xattrs[name] = from_hex(value.get<std::string>());
  if (state.kind != FileState::Kind::regular && state.kind != FileState::Kind::symlink) return state;  // no content
  const std::string saved = fmt::format("{}/undo/{}", state_.directory().string(), entry.name);
  Result<std::string> content = state_.read("/undo/" + entry.name + ".bytes");
  const bool damaged = content && record.contains("sha256") && record["sha256"] != sha256_of(*content);
  if (!content || damaged)
    return fail(content ? ErrorCode::invalid : content.error().code,
                damaged ? fmt::format("the old content of {} is damaged: {}.bytes", entry.path, saved)
                        : fmt::format("the old content of {} is lost: {}{}", entry.path, state_.directory().string(),
                                      content.error().message),
                fmt::format("restore {} by hand, from a backup or its package; then \"sudo rm {}.*\", and undo "
                            "goes on without it",
                            entry.path, saved));
  state.content = std::move(*content);
  return state;
}

/// Checks that put_back() can restore one path.
Result<void> UndoStore::check(const Entry& entry) const {
  if (entry.damage) return Failure(*entry.damage);
  if (!is_kept(entry.restore)) return {};
  const FileState old = TRY(before(entry));
  const std::string parent = parent_of(entry.path);
  if (entry.restore == Restore::attribute || old.content.empty() || !host_.exists(parent)) return {};
  if (TRY(host_.capture(entry.path)) == old || TRY(host_.free_bytes(parent)) > old.content.size()) return {};
  return fail(ErrorCode::io,
              fmt::format("{} has no room for {} bytes, the old {}", parent, old.content.size(), entry.path),
              "Make room there");
}

Result<void> UndoStore::check(std::int64_t run) const {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (run != 0 && !entry->damage && entry->owner.run != run) break;  // a damaged one may be of any run
    TRY(check(*entry));
  }
  return {};
}

Result<void> UndoStore::clear_unfinished(const Owner& owner) {
  for (const Entry& entry : entries_)
    if (entry.owner == owner && entry.restore == Restore::discarded && is_unfinished(entry.path) &&
        host_.exists(entry.path))
      TRY(host_.remove_tree(entry.path));
  return {};
}

/// Restores one path. Returns a note about a file that was left in place or saved aside, or an empty string.
Result<std::string> UndoStore::put_back(const Entry& entry) {
  if (entry.restore == Restore::by_action) return std::string();
  if (entry.restore == Restore::discarded) {
    changed_ |= host_.exists(entry.path);
    TRY(host_.remove_tree(entry.path));
    return std::string();
  }
  if (entry.restore == Restore::generated && !host_.exists(parent_of(entry.path)))
    return std::string();  // of a kernel that was purged: nothing needs it
  const FileState old = TRY(before(entry));
  const FileState now = TRY(host_.capture(entry.path));
  const bool foreign = !entry.result.empty() && digest(now) != entry.result && !(now == old);
  if (entry.restore == Restore::attribute) {
    if (foreign || now == old || now.kind == FileState::Kind::absent) return std::string();
    changed_ = true;
    TRY(host_.write_attribute(entry.path, attribute_value(old.content)));
    return std::string();
  }
  if (now == old) {  // not written again: a write fails on a full or read-only disk, and there is nothing to undo
    TRY(host_.settle(entry.path));
    return std::string();
  }
  if (old.kind == FileState::Kind::absent && now.kind == FileState::Kind::directory &&
      !TRY(host_.list(entry.path)).empty())
    return entry.path + " stays: it holds files of others";
  if (foreign && entry.restore == Restore::generated) return entry.path + " was regenerated since";
  if (const auto merged = foreign ? with_block_of(entry.path, old, now) : std::nullopt) {
    changed_ = true;
    TRY(host_.put(entry.path, *merged));
    return entry.path + " was changed since by somebody else; those lines stay";
  }
  std::string note;
  if (foreign && now.kind == FileState::Kind::regular) {
    const std::string kept = "/kept/" + entry.name;
    TRY(state_.put(kept, now));
    note = fmt::format("{} was changed since by somebody else; that version is kept as {}{}", entry.path,
                       state_.directory().string(), kept);
  }
  changed_ = true;
  TRY(host_.put(entry.path, old));
  return note;
}

Result<std::vector<std::string>> UndoStore::restore_newest() {
  std::vector<std::string> notes;
  for (std::size_t i = entries_.size(); i-- > newest_stretch();) {
    std::string note = TRY_IN("cannot restore " + entries_[i].path, put_back(entries_[i]));
    if (!note.empty()) notes.push_back(std::move(note));
  }
  return notes;
}

Result<std::vector<UndoStore::Difference>> UndoStore::changed_by_others() const {
  std::vector<Difference> found;
  for (const Entry& entry : entries_) {
    if (entry.damage) return Failure(*entry.damage);
    if (entry.restore != Restore::bytes || entry.result.empty() || newest_of(entry.path) != &entry) continue;
    const FileState now = TRY(host_.capture(entry.path));
    if (digest(now) != entry.result) found.push_back({entry.owner, entry.path, now.kind == FileState::Kind::absent});
  }
  return found;
}

Result<void> UndoStore::forget_newest() {
  for (std::size_t left = entries_.size() - newest_stretch(); left > 0; --left) {
    TRY(state_.remove("/undo/" + entries_.back().name + ".json"));
    TRY(state_.remove("/undo/" + entries_.back().name + ".bytes"));
    entries_.pop_back();
  }
  return {};
}

}  // namespace p2pd
