// SPDX-License-Identifier: MIT
// Parsers of grub.cfg, grubenv and the shell files that grub-mkconfig sources.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <utility>

#include "machine/boot/grub_defaults.hpp"
#include "machine/boot/grub_menu.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kNestingLimit = 32;  // depth of nested blocks

bool one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

bool is_name(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; }

/// Words of a shell, of POSIX or of GRUB: quotes, escapes, comments (Shell Command Language, 2.2 and 2.3;
/// grub-core/script/yylex.l).
class ShellLexer {
 public:
  /// `ends`: characters that end a word. `escaped`: those that a backslash escapes between double quotes.
  ShellLexer(std::string_view text, std::string_view ends, std::string_view escaped)
      : text_(text), ends_(ends), escaped_(escaped) {}
  virtual ~ShellLexer() = default;

 protected:
  /// Appends the expansion that begins here; false: it is a plain character.
  virtual Result<bool> expand(std::string& value, bool quoted) = 0;
  /// Error for a quotation mark that is not closed.
  virtual Failure unclosed(std::size_t begin) const = 0;

  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\n'; }

  /// Skips `blanks`, line continuations and comments.
  void skip(std::string_view blanks) {
    while (at_ < text_.size()) {
      if (blanks.find(text_[at_]) != std::string_view::npos)
        ++at_;
      else if (text_.substr(at_, 2) == "\\\n")
        at_ += 2;
      else if (text_[at_] == '#' && (at_ == 0 || !is_name(text_[at_ - 1])))
        at_ = std::min(text_.find('\n', at_), text_.size());
      else
        return;
    }
  }

  /// Reads a word without its quotes and escapes.
  Result<std::string> word() {
    std::string value;
    while (at_ < text_.size() && ends_.find(text_[at_]) == std::string_view::npos) {
      const char c = text_[at_];
      if (c == '\'' || c == '"')
        TRY(quoted(c, value));
      else
        TRY(piece(value, ""));
    }
    return value;
  }

  /// Reads an escape, an expansion or a character. `escaped`: characters that a backslash escapes; empty: all.
  Result<void> piece(std::string& value, std::string_view escaped) {
    if ((peek() == '$' || peek() == '`') && TRY(expand(value, !escaped.empty()))) return {};
    const bool escapes = peek() == '\\' && at_ + 1 < text_.size() &&
                         (escaped.empty() || escaped.find(peek(1)) != std::string_view::npos);
    if (escapes) ++at_;
    if (!escapes || peek() != '\n') value += peek();
    ++at_;
    return {};
  }

  std::string_view text_, ends_, escaped_;
  std::size_t at_ = 0;

 private:
  Result<void> quoted(char quote, std::string& value) {
    const std::size_t begin = at_++;
    while (at_ < text_.size() && peek() != quote) {
      if (quote == '"')
        TRY(piece(value, escaped_));
      else
        value += text_[at_++];
    }
    if (at_ == text_.size()) return unclosed(begin);
    ++at_;
    return {};
  }
};

/// A piece of a grub.cfg: a word, or a separator of commands and blocks.
struct MenuToken {
  enum class Kind { word, separator, open, close, end };
  Kind kind = Kind::end;
  std::string value;  ///< text of a word: without quotes and escapes, variables as written
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Splits GRUB's shell language into tokens.
class GrubLexer : public ShellLexer {
 public:
  explicit GrubLexer(std::string_view text) : ShellLexer(text, " \t\r\n;|&{}", "$\"\\\n") {}

  Result<MenuToken> next() {
    skip(" \t\r");
    MenuToken token;
    token.begin = at_;
    if (at_ == text_.size()) return token;
    switch (peek()) {
      case '\n':
      case ';':
      case '|':
      case '&': token.kind = MenuToken::Kind::separator; break;
      case '{': token.kind = MenuToken::Kind::open; break;
      case '}': token.kind = MenuToken::Kind::close; break;
      default: token.kind = MenuToken::Kind::word;
    }
    if (token.kind == MenuToken::Kind::word)
      token.value = TRY(word());
    else
      ++at_;
    token.end = at_;
    return token;
  }

  Failure error(std::size_t at, std::string_view what) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    return fail(ErrorCode::invalid, fmt::format("line {}: {}", line, what),
                "Correct it where it comes from, run update-grub, then try again.");
  }

 private:
  Result<bool> expand(std::string& value, bool quoted) override {
    const std::size_t end = text_.substr(at_, 2) == "${" && !quoted ? text_.find('}', at_) : std::string_view::npos;
    if (end == std::string_view::npos) return false;
    value += text_.substr(at_, end + 1 - at_);
    at_ = end + 1;
    return true;
  }

  Failure unclosed(std::size_t begin) const override { return error(begin, "a quotation mark that is not closed"); }
};

/// Reads commands and blocks into a menu; ignores everything else of the language.
class GrubReader {
 public:
  GrubReader(std::string_view text, GrubMenu menu) : text_(text), lexer_(text), menu_(std::move(menu)) {}

  Result<GrubMenu> read() {
    blocks_.emplace_back();
    while (true) {
      MenuToken token = TRY(lexer_.next());
      switch (token.kind) {
        case MenuToken::Kind::word: words_.push_back(std::move(token)); break;
        case MenuToken::Kind::separator: command(); break;
        case MenuToken::Kind::open: TRY(open(token)); break;
        case MenuToken::Kind::close: TRY(close(token)); break;
        case MenuToken::Kind::end:
          command();
          if (blocks_.size() > 1) return lexer_.error(blocks_.back().begin, "a block that is not closed");
          return std::move(menu_);
      }
    }
  }

 private:
  struct Block {
    enum class Kind { top, menuentry, submenu, other };
    Kind kind = Kind::top;
    GrubEntry entry;
    std::size_t begin = 0;  ///< position after its brace
    int conditions = 0;     ///< number of open `if` and loops in it
  };

  Result<void> open(const MenuToken& brace) {
    if (blocks_.size() > kNestingLimit) return lexer_.error(brace.begin, "too many blocks in blocks");
    keywords();
    Block block;
    const std::string_view name = words_.empty() ? std::string_view() : std::string_view(words_.front().value);
    block.kind = name == "menuentry" ? Block::Kind::menuentry
                 : name == "submenu" ? Block::Kind::submenu
                                     : Block::Kind::other;
    block.begin = brace.end;
    block.entry = header();
    block.entry.submenu = block.kind == Block::Kind::submenu;
    block.entry.conditional = blocks_.back().conditions > 0;
    words_.clear();
    blocks_.push_back(std::move(block));
    return {};
  }

  Result<void> close(const MenuToken& brace) {
    command();
    if (blocks_.size() == 1) return lexer_.error(brace.begin, "a closing brace without a block");
    Block block = std::move(blocks_.back());
    blocks_.pop_back();
    if (block.kind == Block::Kind::menuentry)
      block.entry.body = text_.substr(block.begin, brace.begin - block.begin);
    else if (block.kind != Block::Kind::submenu)
      return {};
    if (blocks_.back().kind == Block::Kind::top) menu_.entries.push_back(std::move(block.entry));
    if (blocks_.back().kind == Block::Kind::submenu) blocks_.back().entry.children.push_back(std::move(block.entry));
    return {};
  }

  /// Title, id and the other options of the menuentry or submenu command in words_.
  GrubEntry header() const {
    constexpr std::string_view kIdOption = "$menuentry_id_option";
    GrubEntry entry;
    bool titled = false;
    for (std::size_t i = 1; i < words_.size(); ++i) {
      std::string name = words_[i].value;
      if (name == "${menuentry_id_option}") name = kIdOption;
      const bool with_value =
          one_of(name, {"--class", "--users", "--hotkey", "--source", "--id", kIdOption}) && i + 1 < words_.size();
      const std::size_t last = with_value ? i + 1 : i;
      if (with_value && (name == "--id" || name == kIdOption))
        entry.id = words_[last].value;
      else if (name.starts_with("--id="))
        entry.id = name.substr(5);
      else if (with_value || name.starts_with("--"))
        entry.options.append(" ").append(text_.substr(words_[i].begin, words_[last].end - words_[i].begin));
      else if (!std::exchange(titled, true))
        entry.title = name;
      i = last;
    }
    return entry;
  }

  /// Removes the words of the control structure from the front of words_, and counts what they open and close.
  void keywords() {
    int& conditions = blocks_.back().conditions;
    std::size_t taken = 0;
    for (; taken < words_.size(); ++taken) {
      const std::string& word = words_[taken].value;
      if (one_of(word, {"if", "while", "until", "for"}))
        ++conditions;
      else if (one_of(word, {"fi", "done"}))
        conditions = std::max(conditions - 1, 0);
      else if (!one_of(word, {"then", "else", "elif", "do", "!"}))
        break;
    }
    words_.erase(words_.begin(), words_.begin() + static_cast<std::ptrdiff_t>(taken));
  }

  void command() {
    keywords();
    if (words_.empty()) return;
    const std::string& name = words_.front().value;
    const bool top = blocks_.back().kind == Block::Kind::top;
    const std::string& first = words_.size() > 1 ? words_[1].value : name;
    if (top && (name == "set" ? first : name).starts_with("default="))
      assign_default((name == "set" ? first : name).substr(std::string_view("default=").size()));
    if (top && (name == "source" || name == ".") && first.ends_with("/custom.cfg")) menu_.reads_custom = true;
    if (blocks_.back().kind == Block::Kind::menuentry) load(name);
    // 10_linux corrects the titles of GRUB 1 after a test that is never true: it lacks an x on its right side
    dead_ = name == "[" && first == "x$default";
    words_.clear();
  }

  void assign_default(const std::string& value) {
    if (dead_) return;
    if (value == "${next_entry}" || value == "$next_entry") {
      menu_.one_time = true;
      return;
    }
    menu_.default_entry = value;
    if (blocks_.back().conditions == 0) menu_.one_time = false;
  }

  void load(const std::string& name) {
    GrubEntry::Load load;
    load.kernel = one_of(name, {"linux", "linuxefi", "linux16"});
    if (!load.kernel && !one_of(name, {"initrd", "initrdefi", "initrd16"})) return;
    for (std::size_t i = 1; i < words_.size(); ++i) load.words.push_back(words_[i].value);
    load.end = words_.back().end - blocks_.back().begin;
    blocks_.back().entry.loads.push_back(std::move(load));
  }

  std::string_view text_;
  GrubLexer lexer_;
  GrubMenu menu_;
  std::vector<Block> blocks_;
  std::vector<MenuToken> words_;
  bool dead_ = false;
};

/// Stands in a value for what is known only by running the shell.
constexpr char kUnknown = '\0';

/// Reads assignments of the POSIX shell language (Shell Command Language, 2.6 and 2.9.1).
class AssignmentReader : public ShellLexer {
 public:
  AssignmentReader(std::string_view text, ShellVariables& variables, std::set<std::string>& read_only)
      : ShellLexer(text, " \t\n;&|<>()", "$`\"\\\n"), variables_(variables), read_only_(read_only) {}

  Result<void> read() {
    if (text_.find(kUnknown) != std::string_view::npos) return unclear();
    for (skip(" \t\n;"); at_ < text_.size(); skip(" \t\n;")) {
      const std::string name = name_here();
      if (name != "export" && name != "readonly") {
        if (peek() != '=') return unclear();
        TRY(assign(name));
        continue;
      }
      for (skip(" \t"); is_name(peek()); skip(" \t")) {
        const std::string declared = name_here();
        if (peek() == '=') TRY(assign(declared));
        if (name == "readonly") read_only_.insert(declared);
      }
    }
    return {};
  }

 private:
  static Failure unclear() { return fail(ErrorCode::state, "it cannot be evaluated without running it"); }
  Failure unclosed(std::size_t) const override { return unclear(); }

  std::string name_here() {
    const std::size_t begin = at_;
    while (is_name(peek())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  /// Reads "=WORD" after a name.
  Result<void> assign(const std::string& name) {
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return unclear();
    if (read_only_.contains(name)) return fail(ErrorCode::denied, name + " is read-only");
    ++at_;
    if (peek() == '~') return unclear();
    const std::string value = TRY(word());
    variables_[name] = value.find(kUnknown) == std::string::npos ? std::optional(value) : std::nullopt;
    return {};
  }

  std::string known(const std::string& name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() || !found->second ? std::string(1, kUnknown) : *found->second;
  }

  Result<bool> expand(std::string& value, bool /*quoted*/) override {
    if (peek() == '`') {
      for (++at_; at_ < text_.size() && peek() != '`'; ++at_)
        if (peek() == '\\') ++at_;
      if (at_ >= text_.size()) return unclear();
      ++at_;
      value += kUnknown;
      return true;
    }
    ++at_;
    if (peek() == '(') {
      TRY(skip_substitution());
      value += kUnknown;
    } else if (peek() == '{') {
      value += TRY(in_braces());
    } else if (is_name(peek()) && std::isdigit(static_cast<unsigned char>(peek())) == 0) {
      value += known(name_here());
    } else {
      return unclear();
    }
    return true;
  }

  /// Reads "{NAME}", "{NAME:+WORD}" or "{NAME:-WORD}" behind "$".
  Result<std::string> in_braces() {
    ++at_;
    const std::string name = name_here();
    const std::string value = known(name);
    if (name.empty()) return unclear();
    if (peek() == '}') {
      ++at_;
      return value;
    }
    const char kind = peek(1);
    if (peek() != ':' || (kind != '+' && kind != '-')) return unclear();
    at_ += 2;
    std::string other;
    while (at_ < text_.size() && peek() != '}') {
      if (peek() == '"' || peek() == '\'') return unclear();
      TRY(piece(other, "$`\"\\\n}"));
    }
    if (at_ == text_.size()) return unclear();
    ++at_;
    if (value == std::string(1, kUnknown)) return value;
    if (kind == '+') return value.empty() ? "" : other;
    return value.empty() ? other : value;
  }

  /// Skips "(...)" behind "$"; an Error if its end is not clear.
  Result<void> skip_substitution() {
    for (int depth = 0; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\'') at_ = std::min(text_.find('\'', at_ + 1), text_.size() - 1);
      if (c == '"' || c == '`' || c == '#' || c == '\\') return unclear();
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
      if (depth > 0) continue;
      ++at_;
      return {};
    }
    return unclear();
  }

  ShellVariables& variables_;
  std::set<std::string>& read_only_;
};

}  // namespace

Result<GrubMenu> parse_grub(std::string_view text, GrubMenu before) {
  return GrubReader(text, std::move(before)).read();
}

std::map<std::string, std::string> parse_grub_environment(std::string_view text) {
  std::map<std::string, std::string> out;
  std::string line;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 1 < text.size())
      line += text[++at];
    else if (text[at] != '\n')
      line += text[at];
    else {
      const std::size_t equals = line.find('=');
      if (!line.starts_with('#') && equals != std::string::npos) out[line.substr(0, equals)] = line.substr(equals + 1);
      line.clear();
    }
  }
  return out;
}

Result<void> read_shell_assignments(std::string_view text, ShellVariables& variables,
                                    std::set<std::string>& read_only) {
  return AssignmentReader(text, variables, read_only).read();
}

}  // namespace p2pd
