// SPDX-License-Identifier: MIT
#include "record/record_target.hpp"

#include <algorithm>

#include "base/utf8.hpp"

namespace p2pd {

using Kind = RecordFile::Kind;

void RecordTarget::file(std::string_view path, std::string_view content) {
  const bool text = content.find('\0') == std::string_view::npos;
  put(path, {Kind::file, text ? without_private_words(std::string(content), identity_) : std::string(content)});
}

void RecordTarget::stand_in(std::string_view path, bool executable) {
  put(path, {executable ? Kind::program : Kind::file, ""});
}

void RecordTarget::link(std::string_view path, const std::string& target) {
  put(path, {Kind::link, without_private_words(target, identity_)});
}

void RecordTarget::command(RecordedCommand command) {
  std::string name;
  for (const std::string& word : command.argv)
    name += (name.empty() ? "" : "-") + word.substr(std::min(word.find_first_not_of('-'), word.size()));
  std::ranges::replace(name, '/', '_');
  for (std::string* text : {&command.result.output, &command.result.errors})
    *text = without_private_words(std::move(*text), identity_);
  record_.commands.insert_or_assign(name, std::move(command));
}

void RecordTarget::leave_out(const std::string& path, const Error& error) {
  if (error.code != ErrorCode::not_found) unreadable_.push_back(without_private_words(path, identity_));
}

MachineRecord RecordTarget::record(nlohmann::ordered_json machine) && {
  record_.machine = std::move(machine);
  return std::move(record_);
}

const std::string* RecordTarget::text(std::string_view path) const {
  const auto found = record_.files.find(place(path));
  return found == record_.files.end() || found->second.kind == Kind::link ? nullptr : &found->second.content;
}

/// Place of `path` in the record; the names of programs are those that checks ask for.
std::string RecordTarget::place(std::string_view path) const {
  const std::string name = std::filesystem::path(path).lexically_normal().relative_path();
  return name.find("bin/") == std::string::npos ? without_private_words(name, identity_) : name;
}

void RecordTarget::put(std::string_view path, RecordFile file) {
  if (is_utf8(path) && (file.kind != Kind::link || is_utf8(file.content)))
    record_.files.insert_or_assign(place(path), std::move(file));
  else
    unreadable_.push_back(without_private_words(std::string(path), identity_));
}

}  // namespace p2pd
