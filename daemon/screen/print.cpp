// SPDX-License-Identifier: MIT
#include "screen/print.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "base/command.hpp"
#include "base/terminal.hpp"
#include "base/wrap.hpp"

namespace p2pd::ctl {
namespace {

bool colours() {
  static const bool on = has_colours(STDOUT_FILENO);
  return on;
}

std::size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 10'000;  // not a terminal: the reader wraps lines
}

constexpr std::string_view kCodes[] = {"0", "1", "2", "31", "32", "33", "34"};  ///< codes of Colour

/// Number of bytes at the start of `text` that act on a terminal: a control character, or one that changes the writing
/// direction.
std::size_t acting(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  if ((first < 0x20 && first != '\n' && first != '\t') || first == 0x7f) return 1;
  if (first == 0xc2 && text.size() > 1 && static_cast<unsigned char>(text[1]) < 0xa0) return 2;  // U+0080 to U+009F
  for (const std::string_view mark : {"\u200e", "\u200f", "\u061c", "\u202a", "\u202b", "\u202c", "\u202d", "\u202e",
                                      "\u2066", "\u2067", "\u2068", "\u2069"})
    if (text.starts_with(mark)) return mark.size();
  return 0;
}

/// Part of a text that is shown as a whole: a colour of paint(), or a character of UTF-8.
struct Glyph {
  std::string_view bytes;
  bool acts = false;        ///< on a terminal, and is no colour of ours
  std::size_t columns = 1;  ///< 0: a colour
};

std::vector<Glyph> glyphs(std::string_view text) {
  std::vector<Glyph> found;
  for (; !text.empty(); text.remove_prefix(found.back().bytes.size())) {
    const auto colour = std::ranges::find_if(kCodes, [&](std::string_view code) {
      return text.front() == '\x1b' && text.starts_with(fmt::format("\x1b[{}m", code));
    });
    if (colour != std::end(kCodes)) {
      found.push_back({text.substr(0, colour->size() + 3), false, 0});
    } else if (const std::size_t acts = acting(text); acts > 0) {
      found.push_back({text.substr(0, acts), true});
    } else {
      std::size_t size = 1;
      while (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) ++size;
      found.push_back({text.substr(0, size)});
    }
  }
  return found;
}

std::size_t columns(std::string_view text) {
  std::size_t count = 0;
  for (const Glyph& glyph : glyphs(text)) count += glyph.columns;
  return count;
}

/// `text` cut at column `width`; its colours stay.
std::string cut(const std::string& text, std::size_t width) {
  std::string out;
  std::size_t at = 0;
  for (const Glyph& glyph : glyphs(text))
    if ((at += glyph.columns) <= width || glyph.columns == 0) out += glyph.bytes;
  return out;
}

std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  return wrap(text, indent, width, columns);
}

constexpr std::size_t kRoomy = 100;     ///< columns of a terminal on which texts are whole; a pipe has more
constexpr std::size_t kNarrowest = 30;  ///< columns of the last column, however narrow the terminal is

std::vector<std::size_t> widths_of(const Rows& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  }
  return widths;
}

/// Column at which the last text of `row` begins.
std::size_t indent_of(const std::vector<std::string>& row, const std::vector<std::size_t>& widths) {
  std::size_t at = 1;
  for (std::size_t i = 0; i + 1 < row.size(); ++i) at += widths[i] + 2;
  return at;
}

std::string laid_out(const std::vector<std::string>& row, const std::vector<std::size_t>& widths) {
  std::string line = " ";
  for (std::size_t i = 0; i + 1 < row.size(); ++i) line += row[i] + std::string(widths[i] - columns(row[i]) + 2, ' ');
  const std::size_t indent = indent_of(row, widths);
  return line + (row.empty() ? "" : wrapped(row.back(), indent, std::max(terminal_width(), indent + kNarrowest)));
}

constexpr std::size_t kLongest = 52;  ///< for a word: a kernel argument lists ports

std::string without_parentheses(const std::string& text) {
  std::string out;
  int depth = 0;
  for (const char c : text) {
    if (c == '(' && depth++ == 0 && out.ends_with(' ')) out.pop_back();
    if (depth == 0) out += c;
    if (c == ')' && depth > 0) --depth;
  }
  return out;
}

/// Position at which to cut `word`: after the last list item that fits, and never within a UTF-8 character.
std::size_t end_of(const std::string& word) {
  if (const std::size_t item = word.find_last_of(";,", kLongest); item != std::string::npos) return item + 1;
  std::size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(word[end]) & 0xc0) == 0x80) --end;
  return end;
}

std::string shortened_words(const std::string& text) {
  std::istringstream words(text);
  std::string out;
  for (std::string word; words >> word; out += (out.empty() ? "" : " ") + word)
    if (word.size() > kLongest) word = word.substr(0, end_of(word)) + "…";
  return out;
}

}  // namespace

std::string paint(Colour colour, std::string_view text) {
  if (!colours() || colour == Colour::plain) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<std::size_t>(colour)], text);
}

std::string harmless(std::string_view text) {
  std::string out;
  for (std::size_t line = 0; !text.empty(); text.remove_prefix(line)) {  // of a patch, there may be MiBs
    line = std::min(text.find('\n'), text.size() - 1) + 1;
    for (const Glyph& glyph : glyphs(text.substr(0, line))) out += glyph.acts ? "?" : glyph.bytes;
  }
  return out;
}

std::size_t text_width() { return std::min(kScreen, terminal_width() - 2); }

namespace {

std::string cut_to(const std::string& text, std::size_t limit) {
  std::string out = shortened_words(text);
  if (out.size() > limit) out = without_parentheses(out);
  if (out.size() <= limit) return out;
  std::size_t end = out.rfind("; ", limit - 2);
  if (end == out.npos) end = out.rfind(": ", limit - 2);
  if (end == out.npos || end < limit / 2) end = out.rfind(' ', limit - 2);
  return out.substr(0, end) + " …";
}

}  // namespace

std::string shortened(const std::string& text, std::size_t limit) {
  return terminal_width() < kRoomy ? cut_to(text, limit) : text;
}

void print_line(const std::string& text) { fmt::print("{}\n", harmless(wrapped(text, 0, terminal_width()))); }

void print_table(const Rows& rows) {
  const std::vector<std::size_t> widths = widths_of(rows);
  for (const auto& row : rows) fmt::print("{}\n", harmless(laid_out(row, widths)));
}

void fit(const std::vector<Rows*>& tables, std::size_t lines) {
  if (::isatty(STDOUT_FILENO) != 1) return;
  struct Text {
    std::string* text;
    std::string whole;
    std::size_t lines;  ///< that it takes
    std::size_t room;   ///< columns
  };
  std::vector<Text> texts;
  std::size_t total = 0;
  for (Rows* rows : tables) {
    const std::vector<std::size_t> widths = widths_of(*rows);
    for (auto& row : *rows) {
      const std::string shown = laid_out(row, widths);
      texts.push_back({&row.back(), row.back(), 1 + static_cast<std::size_t>(std::ranges::count(shown, '\n')),
                       std::max(terminal_width(), indent_of(row, widths) + kNarrowest) - indent_of(row, widths)});
      total += texts.back().lines;
    }
  }
  for (; total > lines; --total) {
    Text& longest = *std::ranges::max_element(texts, {}, &Text::lines);  // the first of them
    if (longest.lines <= 1) return;
    const std::size_t wanted = --longest.lines;
    for (std::size_t limit = wanted * longest.room; limit > kNarrowest / 2; --limit) {
      *longest.text = cut_to(longest.whole, limit);
      if (static_cast<std::size_t>(std::ranges::count(wrapped(*longest.text, 0, longest.room), '\n')) < wanted) break;
    }
  }
}

void print_json(std::string_view schema, nlohmann::json body) {
  body["schema"] = schema;
  fmt::print("{}\n", body.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string mark(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass: return paint(Colour::green, "✓");
    case Verdict::fail: return paint(Colour::red, "✗");
    case Verdict::not_applicable: return paint(Colour::dim, "–");
    case Verdict::limited: return paint(Colour::yellow, "~");
    case Verdict::unknown: break;
  }
  return paint(Colour::yellow, "?");
}

std::string mark_of_planned() { return paint(Colour::yellow, "->"); }

std::size_t print_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) fmt::print("{}\n", harmless(cut(line, terminal_width())));
  return lines.size();
}

void clear_lines(std::size_t count) {
  if (count > 0) fmt::print("\x1b[{}A\r\x1b[J", count);
}

std::string unified_diff(std::string_view path, const std::string& before, const std::string& after) {
  char name[] = "/tmp/p2pctl-diff-XXXXXX";
  const int fd = ::mkstemp(name);
  if (fd < 0) return "";
  const bool written = ::write(fd, before.data(), before.size()) == static_cast<ssize_t>(before.size());
  Command command;
  command.argv = {"diff", "-u", "--label", fmt::format("{} (now)", path), "--label", fmt::format("{} (new)", path),
                  name,   "-"};
  command.input = after;
  const auto result = ProcessRunner().run(command);
  ::close(fd);
  ::unlink(name);
  if (!written || !result) return "";
  std::string out;
  std::istringstream lines(result->output);
  for (std::string line; std::getline(lines, line);) {
    const Colour colour = line.starts_with('+') ? Colour::green : line.starts_with('-') ? Colour::red : Colour::dim;
    out += "      " + paint(colour, harmless(line)) + "\n";
  }
  return out;
}

}  // namespace p2pd::ctl
