// SPDX-License-Identifier: MIT
// The report of a run as text: verdict, GPUs, matrices of pairs, remarks, totals, NCCL, tests that did not run, advice.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "base/strings.hpp"
#include "base/wrap.hpp"
#include "probes/bench/report/report.hpp"
#include "probes/bench/report/text.hpp"

namespace p2pd::bench {
namespace {

constexpr std::size_t kLabel = 3;  // characters of "D\D" and of a GPU's number
constexpr std::size_t kGap = 4;    // between two matrices
constexpr std::size_t kMostRemarks = 16;
constexpr std::size_t kMostLog = 6;

struct Cell {
  std::string text = "-";
  Grade grade = Grade::not_judged;
};

/// Matrix of pairs: rows send, columns receive.
struct Matrix {
  std::string title;
  std::vector<std::vector<Cell>> cells;
  std::size_t width = 6;  ///< width of a cell, with the space before it
};

std::string_view code_of(Grade grade) {
  switch (grade) {
    case Grade::pass: return "\x1b[32m";
    case Grade::warn: return "\x1b[33m";
    case Grade::fail: return "\x1b[31m";
    case Grade::not_judged: return "";
  }
  return "";
}

std::string painted(std::string text, std::string_view code, bool colour) {
  if (!colour || code.empty()) return text;
  return fmt::format("{}{}\x1b[0m", code, text);
}

/// Text of a report. All external text passes line(), so that no name can control the terminal.
class Page {
 public:
  explicit Page(bool colour) : colour_(colour) {}

  void line(std::string_view text, Grade grade = Grade::not_judged) {
    text_ += painted(narrow(plain(text)), code_of(grade), colour_) + "\n";
  }
  /// Adds an item of a list, broken between words.
  void wrapped(std::string_view text) { text_ += "- " + wrap(plain(text), 2, kColumns) + "\n"; }
  void heading(std::string_view text) {
    blank();
    line(text);
  }
  void blank() { text_ += "\n"; }

  /// Adds two matrices, side by side if they fit; either may be absent.
  void beside(const std::optional<Matrix>& left, const std::optional<Matrix>& right) {
    const bool fit = left && right && width_of(*left) + kGap + width_of(*right) <= kColumns;
    if (!fit) {
      if (left) put(*left, nullptr);
      if (right) put(*right, nullptr);
    } else {
      put(*left, &*right);
    }
  }

  std::string text() && { return std::move(text_); }

 private:
  static std::size_t body_of(const Matrix& matrix) { return kLabel + matrix.cells.size() * matrix.width; }
  static std::size_t width_of(const Matrix& matrix) { return std::max(matrix.title.size(), body_of(matrix)); }

  void put(const Matrix& left, const Matrix* right) {
    const auto fill = [&](std::size_t used) { return std::string(width_of(left) + kGap - used, ' '); };
    blank();
    text_ += left.title + (right != nullptr ? fill(left.title.size()) + right->title : "") + "\n";
    for (std::size_t i = 0; i <= left.cells.size(); ++i) {
      text_ += row(left, i) + (right != nullptr ? fill(body_of(left)) + row(*right, i) : "") + "\n";
    }
  }

  /// Text of a row; row 0 has the numbers of the columns.
  std::string row(const Matrix& matrix, std::size_t number) const {
    std::string text = number == 0 ? "D\\D" : fmt::format("{:>{}}", number - 1, kLabel);
    for (std::size_t i = 0; i < matrix.cells.size(); ++i) {
      const Cell cell = number == 0 ? Cell{std::to_string(i), Grade::not_judged} : matrix.cells[number - 1][i];
      text += std::string(matrix.width - std::min(matrix.width, cell.text.size()), ' ');
      text += painted(cell.text, number == i + 1 ? "\x1b[2m" : code_of(cell.grade), colour_);
    }
    return text;
  }

  bool colour_;
  std::string text_;
};

std::string capitals(std::string_view text) {
  std::string loud;
  for (const char c : text) loud += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return loud;
}

/// Number in at most five characters.
std::string number_text(double value) {
  return fmt::format("{:.{}f}", value, value < 99.995 ? 2 : value < 999.95 ? 1 : 0);
}

using Tests = std::vector<std::string_view>;

/// Worst remark on an ordered pair among those of `tests`.
Grade grade_of_tests(const Report& report, const Pair& pair, const Tests& tests) {
  const Grade all = grade_of(report.judgement, pair.from, pair.to);
  Grade worst = all == Grade::not_judged ? all : Grade::pass;
  for (const Remark& remark : report.judgement.remarks) {
    if (remark.from != pair.from || remark.to != pair.to || std::ranges::count(tests, remark.test) == 0) continue;
    worst = std::max(worst, remark.grade);
  }
  return worst;
}

/// Matrix of the run's GPUs, filled for every pair of them.
template <class Fill>
Matrix matrix_of(const Report& report, std::string title, Fill fill) {
  const std::size_t size = report.measurement.gpus.size();
  Matrix matrix{std::move(title), std::vector(size, std::vector<Cell>(size))};
  for (const Pair& pair : report.measurement.pairs) {
    const auto from = static_cast<std::size_t>(pair.from);
    const auto to = static_cast<std::size_t>(pair.to);
    if (from < size && to < size && from != to) matrix.cells[from][to] = fill(pair);
  }
  return matrix;
}

/// Matrix of a figure; nothing if no pair has it. Without `tests` it is not graded.
std::optional<Matrix> figures(const Report& report, std::string title, std::string_view id, const Tests& tests = {}) {
  const Quantity& figure = quantity(id);
  bool any = false;
  Matrix matrix = matrix_of(report, std::move(title), [&](const Pair& pair) {
    const std::optional<double> median = median_of(pair.*figure.figure);
    if (!median) return Cell{};
    any = true;
    return Cell{number_text(*median / figure.divisor),
                tests.empty() ? Grade::not_judged : grade_of_tests(report, pair, tests)};
  });
  return any ? std::optional(std::move(matrix)) : std::nullopt;
}

Cell bytes_cell(const Report& report, const Pair& pair) {
  const std::vector<Wrong>& all = report.measurement.wrong;
  const auto is_of = [&](const Wrong& wrong) { return wrong.from == pair.from && wrong.to == pair.to; };
  const auto wrong = std::ranges::find_if(all, is_of);
  if (wrong != all.end()) {
    const bool no_answer = wrong->kind == WrongKind::unsupported_request;
    return {no_answer ? "all-ones" : std::string(to_string(wrong->kind)), Grade::fail};
  }
  if (!pair.access) return {"no-peer", Grade::fail};
  if (!pair.refused.empty()) return {"refused", Grade::fail};
  const bool untested = pair.verified_bytes.empty() || grade_of_tests(report, pair, {"bytes"}) == Grade::fail;
  const bool in_full = report.measurement.tests.empty();
  return untested ? Cell{"untested", in_full ? Grade::fail : Grade::not_judged} : Cell{"ok", Grade::pass};
}

void put_matrices(Page& page, const Report& report) {
  Matrix bytes = matrix_of(report, "Bytes (row sends, column receives)",
                           [&](const Pair& pair) { return bytes_cell(report, pair); });
  for (const auto& row : bytes.cells) {
    for (const Cell& cell : row) bytes.width = std::max(bytes.width, cell.text.size() + 1);
  }
  page.beside(bytes, std::nullopt);
  page.beside(figures(report, "Unidirectional P2P=Enabled Bandwidth (GB/s)", "copy", {"copy", "asymmetry", "staged"}),
              figures(report, "Unidirectional P2P=Disabled Bandwidth (GB/s)", "staged"));
  page.beside(figures(report, "Bidirectional P2P=Enabled Bandwidth (GB/s)", "both", {"both"}),
              figures(report, "P2P=Enabled, all pairs at once (GB/s)", "busy", {"busy"}));
  page.beside(figures(report, "P2P=Enabled SM stores (GB/s)", "store", {"store"}),
              figures(report, "P2P=Enabled SM loads (GB/s)", "load", {"load"}));
  page.beside(figures(report, "P2P=Enabled Latency, row loads (us)", "latency", {"chase"}),
              figures(report, "P2P=Disabled Latency, copy (us)", "staged_latency"));
  page.beside(figures(report, "P2P=Enabled Latency, ping-pong (us)", "ping_pong"), std::nullopt);
}

/// Remarks of one pair, or of the run, that say the same of several tests.
struct Group {
  const Remark* first;
  Tests tests;
};

/// Remarks by pair, in the order of the first of each.
std::vector<Group> grouped(const std::vector<Remark>& remarks) {
  std::vector<Group> groups;
  for (const Remark& remark : remarks) {
    const auto of_pair = [&](const Group& g) {  // graver remarks of other pairs stay before it
      return g.first->grade == remark.grade && g.first->from == remark.from && g.first->to == remark.to;
    };
    const auto same = std::ranges::find_if(
        groups, [&](const Group& group) { return of_pair(group) && group.first->text == remark.text; });
    if (same != groups.end()) {
      if (std::ranges::count(same->tests, remark.test) == 0) same->tests.push_back(remark.test);
      continue;
    }
    const auto last = std::ranges::find_if(groups.rbegin(), groups.rend(), of_pair);
    groups.insert(last == groups.rend() ? groups.end() : last.base(), {&remark, {remark.test}});
  }
  return groups;
}

void put_remarks(Page& page, const Report& report) {
  const std::vector<Group> groups = grouped(report.judgement.remarks);
  if (!groups.empty()) page.blank();
  const std::size_t shown = groups.size() > kMostRemarks ? kMostRemarks - 1 : groups.size();
  for (std::size_t i = 0; i < shown; ++i) {
    const Grade grade = groups[i].first->grade;
    const bool judged = grade != Grade::not_judged;
    page.line(fmt::format("{}  {} ({})", judged ? capitals(to_string(grade)) : "NOTE", groups[i].first->text,
                          fmt::join(groups[i].tests, ", ")),
              grade);
  }
  if (shown < groups.size()) page.line(fmt::format("... and {} more, all in the JSON", groups.size() - shown));
}

/// Adds a row per collective and size, with P2P on and off side by side.
void put_collectives(Page& page, const Collectives& collectives) {
  page.heading(nccl_line(collectives));
  for (const std::string& note : collectives.notes) page.wrapped(note);
  if (collectives.results.empty()) return;
  const std::string level = collectives.p2p_level.empty() ? "" : ", NCCL_P2P_LEVEL=" + collectives.p2p_level;
  page.line(fmt::format("{} over {}{}", collectives.library, transports_name(collectives), level));
  page.line(fmt::format("{:<16}{:>10}{:>12}{:>12}", "bus GB/s", "size", "P2P on", "P2P off"));
  struct Row {
    std::array<std::string, 2> bus{"-", "-"};
    std::uint64_t wrong = 0;
  };
  std::map<std::pair<std::string, std::uint64_t>, Row> rows;
  for (const Collective& result : collectives.results) {
    Row& row = rows[{result.name, result.bytes}];
    row.wrong += result.wrong;
    if (const auto bus = median_of(result.bus_gb_s)) row.bus[result.p2p ? 0 : 1] = number_text(*bus);
  }
  for (const auto& [what, row] : rows) {
    const std::string wrong = row.wrong == 0 ? "" : fmt::format("  {} WRONG ELEMENTS", row.wrong);
    page.line(
        fmt::format("{:<16}{:>10}{:>12}{:>12}{}", what.first, size_name(what.second), row.bus[0], row.bus[1], wrong),
        row.wrong == 0 ? Grade::not_judged : Grade::fail);
  }
}

void put_totals(Page& page, const Measurement& run) {
  const std::optional<double> together = median_of(run.all_to_all_gb_s);
  const std::string atomics = run.gpus.size() < 2 ? "" : atomics_line(run);
  const std::string reduces = all_reduce_line(run), host = host_memory_line(run);
  if (together || !atomics.empty() || !reduces.empty() || !host.empty() || run.soak) page.blank();
  if (together) page.line(fmt::format("All pairs at once: {} GB/s in all", number_text(*together)));
  if (!reduces.empty()) page.line(reduces);
  if (!host.empty()) page.line(host);
  if (run.soak)
    page.line(fmt::format("Soak of {:g} minutes, {}: {}", run.soak->minutes, run.soak->ended, soak_line(*run.soak, 0)));
  if (!atomics.empty()) page.line(atomics);
}

void put_list(Page& page, const std::string& heading, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  page.heading(heading);
  for (const std::string& line : lines) page.wrapped(line);
}

}  // namespace

std::string verdict_line(const Judgement& judgement, bool colour) {
  Page page(colour);
  page.line(judgement.summary, judgement.proven                          ? Grade::pass
                               : judgement.limited || !judgement.fails() ? Grade::warn
                                                                         : Grade::fail);
  return std::move(page).text();
}

std::string matrices(const Report& report, bool colour) {
  const Measurement& run = report.measurement;
  Page page(colour);
  const Judgement& judgement = report.judgement;
  if (!run.fault.empty()) {
    page.line(capitals("a fault is seeded: " + run.fault + "; this run proves nothing"), Grade::fail);
  }
  const bool divided = groups_of(run).size() > 1;
  for (const Gpu& gpu : run.gpus) {
    page.line(fmt::format("GPU {:<2} {}  {}{}{}", gpu.index, gpu.address, gpu.name, divided ? "  " + gpu.group : "",
                          gpu.in_use ? "  (in use: its speed is not judged)" : ""));
  }
  if (divided) page.line("P2P is not expected between two generations: CUDA has none (shown as -).");
  if (run.gpus.size() >= 2 && !run.not_run.contains(kEverything)) put_matrices(page, report);
  put_remarks(page, report);
  put_totals(page, run);
  if (!judgement.fit.empty() && !judgement.limited) page.line(capitalized(fit_line(judgement)) + ".");
  if (run.collectives) put_collectives(page, *run.collectives);
  put_list(page, "Not run:", not_run_lines(run));
  put_list(page, "Kernel log since the run began:", limited(report.kernel_log, kMostLog));
  put_list(page, "Advice:", advice(report));
  return std::move(page).text();
}

}  // namespace p2pd::bench
