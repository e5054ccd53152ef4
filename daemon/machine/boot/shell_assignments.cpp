// SPDX-License-Identifier: MIT
#include "machine/boot/shell_assignments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace p2pd {
namespace {

using Value = std::optional<std::string>;

bool is_name(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; }

void append(Value& value, const Value& more) {
  if (value && more)
    *value += *more;
  else
    value.reset();
}

/// Reads assignments of the POSIX shell language (Shell Command Language, 2.2, 2.6 and 2.9.1).
class AssignmentReader {
 public:
  AssignmentReader(std::string_view text, ShellVariables& variables, std::map<std::string, int>& read_only)
      : text_(text), variables_(variables), read_only_(read_only) {}

  Result<void> read() {
    for (skip_space(true); at_ < text_.size(); skip_space(true)) {
      begin_ = at_;
      std::string name = word_of_name();
      const bool declares = name == "export" || name == "readonly";
      if (!declares) {
        if (peek() != '=') return unclear();
        TRY(assign(name));
        continue;
      }
      for (skip_space(false); is_name(peek()); skip_space(false)) {
        const std::string declared = word_of_name();
        if (peek() == '=') TRY(assign(declared));
        if (name == "readonly") read_only_[declared] = line();
      }
    }
    return {};
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\n'; }

  int line() const {
    return static_cast<int>(1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(begin_), '\n'));
  }

  Failure unclear() const {
    return fail(ErrorCode::state, fmt::format("line {} cannot be evaluated without running it", line()));
  }

  /// Skips blanks and, between commands, newlines, semicolons and comments.
  void skip_space(bool between) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ' ' || c == '\t' || (between && (c == '\n' || c == ';')))
        ++at_;
      else if (c == '\\' && peek(1) == '\n' && at_ + 1 < text_.size())
        at_ += 2;
      else if (c == '#' && between && (at_ == 0 || !is_name(text_[at_ - 1])))
        at_ = std::min(text_.find('\n', at_), text_.size());
      else
        return;
    }
  }

  std::string word_of_name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  /// Reads "=WORD" after a name.
  Result<void> assign(const std::string& name) {
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return unclear();
    if (read_only_.contains(name))
      return fail(ErrorCode::denied, fmt::format("line {} sets {}, which is read-only", line(), name));
    ++at_;
    if (peek() == '~') return unclear();
    variables_[name] = TRY(word());
    return {};
  }

  /// Reads a word, up to a blank or the end of its command.
  Result<Value> word() {
    Value value = "";
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (std::string_view(" \t\n;").find(c) != std::string_view::npos) break;
      if (std::string_view("&|<>()").find(c) != std::string_view::npos) return unclear();
      if (c == '\'')
        append(value, TRY(single_quoted()));
      else if (c == '"')
        append(value, TRY(double_quoted()));
      else
        append(value, TRY(piece("")));
    }
    return value;
  }

  Result<Value> single_quoted() {
    const std::size_t end = text_.find('\'', at_ + 1);
    if (end == std::string_view::npos) return unclear();
    Value value(std::string(text_.substr(at_ + 1, end - at_ - 1)));
    at_ = end + 1;
    return value;
  }

  Result<Value> double_quoted() {
    Value value = "";
    for (++at_; at_ < text_.size() && text_[at_] != '"';) append(value, TRY(piece("$`\"\\\n")));
    if (at_ == text_.size()) return unclear();
    ++at_;
    return value;
  }

  /// Reads an escape, an expansion or a character. `escaped`: characters that a backslash escapes; empty: all.
  Result<Value> piece(std::string_view escaped) {
    const char c = text_[at_];
    if (c == '$') return expansion();
    if (c == '`') return substitution();
    if (c == '\\' && at_ + 1 < text_.size() &&
        (escaped.empty() || escaped.find(text_[at_ + 1]) != std::string_view::npos)) {
      at_ += 2;
      return text_[at_ - 1] == '\n' ? Value("") : Value(std::string(1, text_[at_ - 1]));
    }
    ++at_;
    return Value(std::string(1, c));
  }

  /// Reads a command between backticks; its value is not known.
  Result<Value> substitution() {
    for (++at_; at_ < text_.size() && text_[at_] != '`'; ++at_)
      if (text_[at_] == '\\') ++at_;
    if (at_ >= text_.size()) return unclear();
    ++at_;
    return Value();
  }

  Value known(const std::string& name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? Value() : found->second;
  }

  Result<Value> expansion() {
    ++at_;
    if (is_name(peek()) && std::isdigit(static_cast<unsigned char>(peek())) == 0) return known(word_of_name());
    if (peek() != '{') return unclear_piece();
    ++at_;
    const std::string name = word_of_name();
    const Value value = known(name);
    if (name.empty()) return unclear_piece();
    if (peek() == '}') return ++at_, value;
    const char kind = peek(1);
    if (peek() != ':' || (kind != '+' && kind != '-')) return unclear_piece();
    at_ += 2;
    Value other = "";
    while (at_ < text_.size() && text_[at_] != '}') {
      if (text_[at_] == '"' || text_[at_] == '\'') return unclear_piece();
      append(other, TRY(piece("$`\"\\\n}")));
    }
    if (at_ == text_.size()) return unclear();
    ++at_;
    if (!value) return Value();
    if (kind == '+') return value->empty() ? Value("") : other;
    return value->empty() ? other : value;
  }

  /// Reads "$(...)", whose value is not known; an Error for other expansions, and if its end is not clear.
  Result<Value> unclear_piece() {
    if (peek() != '(') return unclear();
    int depth = 0;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\'') at_ = std::min(text_.find('\'', at_ + 1), text_.size() - 1);
      if (c == '"' || c == '`' || c == '#' || c == '\\') return unclear();
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
      if (depth == 0) return ++at_, Value();
    }
    return unclear();
  }

  std::string_view text_;
  ShellVariables& variables_;
  std::map<std::string, int>& read_only_;
  std::size_t at_ = 0;
  std::size_t begin_ = 0;  ///< start of the command
};

}  // namespace

Result<void> read_shell_assignments(std::string_view text, ShellVariables& variables,
                                    std::map<std::string, int>& read_only) {
  return AssignmentReader(text, variables, read_only).read();
}

}  // namespace p2pd
