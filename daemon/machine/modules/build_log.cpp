// SPDX-License-Identifier: MIT
#include "machine/modules/build_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "base/signatures.hpp"

namespace p2pd {
namespace {

constexpr std::size_t kReadBytes = 4096;  // limit of a line; its start is enough
constexpr std::size_t kShownBytes = 512;

// marks of errors: gcc and clang write "FILE:LINE:COLUMN: error: ", gcc in the languages that it has
constexpr std::array<std::string_view, 24> kErrors = {
    ": error: ", "fatal error: ", ": Fehler: ", ": erreur : ", ": erreur: ",       ": errore: ",
    ": chyba: ", ": błąd: ",      ": ошибка: ", ": помилка: ", ": fel: ",          ": fout: ",
    ": fejl: ",  ": virhe: ",     ": hata: ",   ": erro: ",    ": 错误：",         ": 错误: ",
    ": 錯誤：",  ": 錯誤: ",      ": エラー: ", ": 오류: ",    "ERROR: modpost: ", "FATAL: modpost: "};

// messages that only report another failure
constexpr std::array<std::string_view, 6> kPassedOn = {"Bad return status for module build",
                                                       "recipe for target",
                                                       "returned error exit status",
                                                       "Failed to run `",
                                                       "Unable to build the NVIDIA kernel module",
                                                       "An error occurred while performing the step"};

bool holds(std::string_view line, std::string_view part) { return line.find(part) != std::string_view::npos; }

/// Checks for make's report on a target, "make[2]: *** [Makefile:9: x.o] Error 1"; not that it waits for the others
/// ("....").
bool of_make(std::string_view line) { return holds(line, ": *** ") && !line.ends_with("...."); }

/// Checks for make's report that a command failed, "Error 1", 2 for a make below; "Error" is in the user's language.
/// The command printed why.
bool is_status(std::string_view line) {
  const std::size_t digits = line.find_last_not_of("0123456789") + 1;
  return of_make(line) && holds(line, "] ") && digits < line.size() && line[digits - 1] == ' ';
}

bool is_killed(std::string_view line) {
  return line == "Killed" || line.ends_with(" Killed") || holds(line, " Killed ");
}

bool is_error(std::string_view line) {
  return std::ranges::any_of(kErrors, [&](std::string_view word) { return holds(line, word); }) ||
         (holds(line, "ld: ") && !holds(line, "warning")) || is_killed(line) || holds(line, ". Bailing out!") ||
         (of_make(line) && !is_status(line));
}

bool is_passed_on(std::string_view line) {
  return is_status(line) || std::ranges::any_of(kPassedOn, [&](std::string_view part) { return holds(line, part); });
}

/// Splits a log into lines without line ends and indentation; cuts lines that are too long.
std::vector<std::string_view> lines_of(std::string_view log) {
  constexpr std::string_view kBlank = " \t\r";
  std::vector<std::string_view> lines;
  while (!log.empty()) {
    std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(line.size() + 1, log.size()));
    line = line.substr(0, kReadBytes);
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    lines.push_back(line.substr(0, line.find_last_not_of(kBlank) + 1));
  }
  return lines;
}

/// Path of DKMS's own log, if a line names it; else empty.
std::string make_log(const std::vector<std::string_view>& lines) {
  constexpr std::string_view kLogName = "/make.log";
  for (const std::string_view line : lines) {
    const std::size_t end = line.find(kLogName);
    if (end == std::string_view::npos) continue;
    const std::size_t begin = line.find_last_of(" \t'`\"(", end) + 1;  // npos + 1 is 0
    const std::string_view path = line.substr(begin, end + kLogName.size() - begin);
    if (path.starts_with('/')) return std::string(path);
  }
  return {};
}

/// Failure that the first line that `fits` reports; nullopt: none does.
std::optional<BuildFailure> first_of(const std::vector<std::string_view>& lines,
                                     const std::function<bool(std::string_view)>& fits) {
  const auto line = std::ranges::find_if(lines, fits);
  if (line == lines.end()) return std::nullopt;
  BuildFailure failure;
  failure.line = line->substr(0, kShownBytes);
  std::ranges::replace_if(
      failure.line, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; }, '?');
  failure.line_number = static_cast<std::size_t>(line - lines.begin()) + 1;
  return failure;
}

}  // namespace

Result<std::optional<BuildFailure>> build_failure(std::string_view log) {
  const std::vector<Signature> table = TRY(signatures());
  const std::vector<std::string_view> lines = lines_of(log);
  for (const Signature& signature : table) {
    if (signature.log != "build" || !signature.failure) continue;
    auto known = first_of(lines, [&](std::string_view line) { return signature.matches(line); });
    if (!known) continue;
    known->cause = signature.cause;
    known->next = signature.fix;
    known->signature_id = signature.id;
    return known;
  }
  auto failure = first_of(lines, is_error);
  if (failure) {
    failure->cause = "the build stopped at: " + failure->line;
    failure->next = "Choose a driver that is known to build on this kernel (p2pctl catalogue).";
    return failure;
  }
  failure = first_of(lines, is_passed_on);
  if (!failure) return failure;
  const std::string path = make_log(lines);
  failure->cause = "the build failed, and this part of its log does not show why";
  failure->next = path.empty() ? fmt::format(
                                     "The cause is above line {}, or above this part of the log: look for the "
                                     "first \"error:\" there.",
                                     failure->line_number)
                               : "Read " + path + ": the cause is the first error in it.";
  return failure;
}

}  // namespace p2pd
