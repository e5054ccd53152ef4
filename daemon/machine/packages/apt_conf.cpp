// SPDX-License-Identifier: MIT
#include "machine/packages/apt_conf.hpp"

#include <algorithm>

namespace p2pd {
namespace {

constexpr std::string_view kClear = "#clear";
constexpr std::size_t kDeepest = 32;       // depth of nested blocks
constexpr std::size_t kLongestName = 512;  // limit in bytes; every item of a block has the block's name

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

/// A word, a text in quotes, or one of "{};"; kind '\0' at the end.
struct Token {
  char kind = '\0';  ///< 'w', '"', '{', '}', ';'
  std::string_view text;
};

void skip(std::string_view& text, std::string_view end) {
  const std::size_t at = text.find(end);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + end.size());
}

Token take(std::string_view& text) {
  while (!text.empty()) {
    const char c = text.front();
    const bool directive = text.starts_with(kClear);
    if (c == ' ' || (c >= '\t' && c <= '\r'))
      text.remove_prefix(1);
    else if (text.starts_with("//") || (c == '#' && !directive))
      skip(text, "\n");
    else if (text.starts_with("/*"))
      skip(text, "*/");
    else
      break;
  }
  if (text.empty()) return {};
  const char c = text.front();
  if (c == '"') {
    text.remove_prefix(1);
    const std::size_t end = text.find('"');
    const Token token{end == std::string_view::npos ? '\0' : '"', text.substr(0, end)};
    skip(text, "\"");
    return token;
  }
  const bool mark = c == '{' || c == '}' || c == ';';
  const std::size_t size = mark ? 1 : std::min(text.find_first_of(" \t\r\n\f\v\"{};"), text.size());
  const Token token{mark ? c : 'w', text.substr(0, size)};
  text.remove_prefix(size);
  return token;
}

/// Reads statements; `blocks_` has the names of the blocks around the place.
class Reader {
 public:
  Reader(std::string_view text, const std::string& source) : rest_(text), source_(source) {}

  std::vector<AptOption> read() {
    for (Token token = take(rest_); token.kind != '\0' && sound(); token = take(rest_)) step(token);
    return std::move(options_);
  }

 private:
  bool sound() const {
    const std::size_t above = blocks_.empty() ? 0 : blocks_.back().size();
    return blocks_.size() <= kDeepest && above + name_.size() <= kLongestName;
  }

  void step(const Token& token) {
    if (token.kind == '{') {
      const std::string block = full(name_);
      end_statement();  // apt gives `A "1" { ... }` the value, too
      blocks_.push_back(block);
    } else if (token.kind == '}') {
      end_statement();  // apt accepts the last one of a block without its ';', too
      if (!blocks_.empty()) blocks_.pop_back();
    } else if (token.kind == ';') {
      end_statement();
    } else if (name_.empty() && token.kind == 'w') {
      name_ = lower(token.text);
    } else if (name_ == kClear) {
      options_.push_back({std::string(kClear), full(lower(token.text)), source_});
    } else {
      value_ = token.text;
      has_value_ = true;
    }
  }

  void end_statement() {
    if (has_value_) options_.push_back({full(name_.empty() ? "::" : name_), std::move(value_), source_});
    name_.clear();
    value_.clear();
    has_value_ = false;
  }

  std::string full(const std::string& name) const {
    if (blocks_.empty()) return name;
    return blocks_.back() + (name.starts_with("::") ? "" : "::") + name;
  }

  std::string_view rest_;
  std::string source_;
  std::vector<std::string> blocks_;
  std::string name_;
  std::string value_;
  bool has_value_ = false;
  std::vector<AptOption> options_;
};

/// Checks for a name that apt reads: letters, digits, '-', '_' and '.', ".conf" at its end or no '.'.
bool is_read(const std::string& name) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  if (name.find_first_not_of(kPlain) != std::string::npos || name.starts_with('.')) return false;
  return name.ends_with(".conf") || name.find('.') == std::string::npos;
}

}  // namespace

std::vector<AptOption> parse_apt_conf(std::string_view text, const std::string& source) {
  return Reader(text, source).read();
}

Result<std::vector<AptOption>> apt_options(const Host& host) {
  const std::string directory = "/etc/apt/apt.conf.d";
  auto names = host.files().list(directory);
  if (!names && names.error().code != ErrorCode::not_found) return Failure(names.error());
  std::vector<std::string> paths;
  for (const std::string& name : names.value_or(std::vector<std::string>()))
    if (is_read(name)) paths.push_back(directory + "/" + name);
  if (host.files().exists("/etc/apt/apt.conf")) paths.emplace_back("/etc/apt/apt.conf");
  std::vector<AptOption> all;
  for (const std::string& path : paths) {
    for (AptOption& option : parse_apt_conf(TRY(host.files().read(path, 1U << 20)), path)) {
      if (option.name != kClear) {
        all.push_back(std::move(option));
        continue;
      }
      std::erase_if(all, [&](const AptOption& one) {
        return one.name == option.value || one.name.starts_with(option.value + "::");
      });
    }
  }
  return all;
}

std::string apt_value(const std::vector<AptOption>& options, std::string_view name) {
  std::string value;
  for (const AptOption& option : options)
    if (option.name == name) value = option.value;
  return value;
}

std::vector<std::string> apt_list(const std::vector<AptOption>& options, const std::string& name) {
  std::vector<std::string> items;
  for (const AptOption& option : options)
    if (option.name == name + "::") items.push_back(option.value);
  return items;
}

}  // namespace p2pd
