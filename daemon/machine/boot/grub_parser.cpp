// SPDX-License-Identifier: MIT
// Parser of grub.cfg and grubenv.
#include <algorithm>
#include <array>
#include <utility>

#include "machine/boot/grub_menu.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kNestingLimit = 32;  // depth of nested blocks

template <std::size_t N>
bool one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// A piece of a grub.cfg: a word, or a separator of commands and blocks.
struct MenuToken {
  enum class Kind { word, separator, open, close, end };
  Kind kind = Kind::end;
  std::string value;  ///< text of a word: without quotes and escapes, variables as written
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Splits GRUB's shell language into tokens (grub-core/script/yylex.l).
class GrubLexer {
 public:
  explicit GrubLexer(std::string_view text) : text_(text) {}

  Result<MenuToken> next() {
    skip_blank();
    MenuToken token;
    token.begin = at_;
    if (at_ == text_.size()) return token;
    switch (text_[at_]) {
      case '\n':
      case ';':
      case '|':
      case '&': token.kind = MenuToken::Kind::separator; break;
      case '{': token.kind = MenuToken::Kind::open; break;
      case '}': token.kind = MenuToken::Kind::close; break;
      default:
        token.kind = MenuToken::Kind::word;
        token.value = TRY(word());
        token.end = at_;
        return token;
    }
    token.end = ++at_;
    return token;
  }

  Failure error(std::size_t at, std::string_view what) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    return fail(ErrorCode::invalid, "line " + std::to_string(line) + ": " + std::string(what),
                "Correct it where it comes from, run update-grub, then try again.");
  }

 private:
  void skip_blank() {
    while (at_ < text_.size()) {
      if (text_.substr(at_, 2) == "\\\n")
        at_ += 2;
      else if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')
        ++at_;
      else if (text_[at_] == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else
        return;
    }
  }

  Result<std::string> word() {
    std::string value;
    while (at_ < text_.size() && std::string_view(" \t\r\n;|&{}").find(text_[at_]) == std::string_view::npos) {
      const char c = text_[at_];
      if (c == '\'' || c == '"')
        TRY(quoted(c, value));
      else if (c == '$')
        variable(value);
      else if (c == '\\')
        escape(value);
      else
        value += text_[at_++];
    }
    return value;
  }

  Result<void> quoted(char quote, std::string& value) {
    const std::size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != quote) {
      const bool escapes = quote == '"' && at_ + 1 < text_.size() && text_[at_] == '\\' &&
                           std::string_view("$\"\\\n").find(text_[at_ + 1]) != std::string_view::npos;
      if (escapes)
        escape(value);
      else
        value += text_[at_++];
    }
    if (at_ == text_.size()) return error(begin, "a quotation mark that is not closed");
    ++at_;
    return {};
  }

  void variable(std::string& value) {
    const std::size_t close = text_.substr(at_, 2) == "${" ? text_.find('}', at_) : std::string_view::npos;
    const std::size_t end = close == std::string_view::npos ? at_ + 1 : close + 1;
    value += text_.substr(at_, end - at_);
    at_ = end;
  }

  void escape(std::string& value) {
    if (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') value += text_[at_ + 1];
    at_ = std::min(at_ + 2, text_.size());
  }

  std::string_view text_;
  std::size_t at_ = 0;
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
    constexpr std::array<std::string_view, 6> kWithValue{"--class",  "--users", "--hotkey",
                                                         "--source", "--id",    "$menuentry_id_option"};
    GrubEntry entry;
    bool titled = false;
    for (std::size_t i = 1; i < words_.size(); ++i) {
      std::string name = words_[i].value;
      if (name == "${menuentry_id_option}") name = kWithValue.back();
      const bool with_value = one_of(name, kWithValue) && i + 1 < words_.size();
      const std::size_t last = with_value ? i + 1 : i;
      if (with_value && (name == "--id" || name == kWithValue.back()))
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
    constexpr std::array<std::string_view, 4> kOpening{"if", "while", "until", "for"};
    constexpr std::array<std::string_view, 2> kClosing{"fi", "done"};
    constexpr std::array<std::string_view, 5> kOther{"then", "else", "elif", "do", "!"};
    int& conditions = blocks_.back().conditions;
    std::size_t taken = 0;
    for (; taken < words_.size(); ++taken) {
      const std::string& word = words_[taken].value;
      if (one_of(word, kOpening))
        ++conditions;
      else if (one_of(word, kClosing))
        conditions = std::max(conditions - 1, 0);
      else if (!one_of(word, kOther))
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
    constexpr std::array<std::string_view, 3> kKernel{"linux", "linuxefi", "linux16"};
    constexpr std::array<std::string_view, 3> kInitrd{"initrd", "initrdefi", "initrd16"};
    if (!one_of(name, kKernel) && !one_of(name, kInitrd)) return;
    GrubEntry::Load load;
    load.kernel = one_of(name, kKernel);
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

}  // namespace p2pd
