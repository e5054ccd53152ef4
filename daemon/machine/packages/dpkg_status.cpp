// SPDX-License-Identifier: MIT
#include "machine/packages/dpkg_status.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace p2pd {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

Result<std::vector<Paragraph>> parse_paragraphs(std::string_view text, std::initializer_list<std::string_view> wanted) {
  if (!text.empty() && !text.ends_with('\n')) return fail(ErrorCode::invalid, "it ends in the middle of a line");
  std::vector<Paragraph> paragraphs;
  std::string* value = nullptr;  // field that the next line may continue
  bool open = false;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const char* begin = text.data();
    text.remove_prefix(line.size() + 1);
    if (trimmed(line).empty()) {
      open = false;
      continue;
    }
    const bool goes_on = line.front() == ' ' || line.front() == '\t';
    const std::size_t colon = line.find(':');
    if (!goes_on && colon == std::string_view::npos)
      return fail(ErrorCode::invalid, fmt::format("line {}: not a field", number));
    if (!open && goes_on) continue;  // dpkg ignores a continuation without a field
    if (!std::exchange(open, true)) paragraphs.push_back({number, std::string_view(begin, begin), {}});
    Paragraph& paragraph = paragraphs.back();
    paragraph.text = {paragraph.text.data(), static_cast<std::size_t>(text.data() - paragraph.text.data())};
    if (goes_on) {
      if (value != nullptr) *value += "\n" + std::string(trimmed(line));
      continue;
    }
    const std::string name = lower_case(line.substr(0, colon));
    value = std::ranges::find(wanted, name) == wanted.end() ? nullptr : &paragraph.fields[name];
    if (value != nullptr) *value = trimmed(line.substr(colon + 1));
  }
  return paragraphs;
}

namespace {

constexpr std::size_t kLimit = 32U << 20;  // limit in bytes; a desktop with everything has 10 MiB

/// Splits "install ok installed" into its three words; false for anything else.
bool read_status(const std::string& text, DpkgPackage& package) {
  std::istringstream words(text);
  std::string more;
  return words >> package.want >> package.flag >> package.state && !(words >> more);
}

/// Paths in "\n/etc/a 1f3c\n/etc/b 77aa obsolete".
std::vector<std::string> read_conffiles(const std::string& text) {
  std::vector<std::string> paths;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with('/') && !line.ends_with(" obsolete") && !line.ends_with(" remove-on-upgrade"))
      paths.push_back(line.substr(0, line.rfind(' ')));
  return paths;
}

}  // namespace

Result<std::vector<DpkgPackage>> parse_dpkg_status(std::string_view text) {
  std::vector<DpkgPackage> packages;
  for (const Paragraph& paragraph :
       TRY(parse_paragraphs(text, {"package", "status", "architecture", "version", "priority", "depends", "pre-depends",
                                   "recommends", "suggests", "provides", "conffiles", "essential"}))) {
    const auto line = [&](const char* name) {
      const std::string value = paragraph.value(name);
      return value.substr(0, value.find('\n'));
    };
    DpkgPackage package;
    package.name = line("package");
    if (package.name.empty() || line("status").empty())
      return fail(ErrorCode::invalid, fmt::format("line {}: a package without name or status", paragraph.line));
    if (!read_status(line("status"), package))
      return fail(ErrorCode::invalid, fmt::format("line {}: a status that is not three words", paragraph.line));
    package.architecture = line("architecture");
    package.version = line("version");
    package.priority = line("priority");
    package.essential = line("essential") == "yes";
    package.depends = paragraph.value("depends") + ", " + paragraph.value("pre-depends");
    package.recommends = paragraph.value("recommends");
    package.suggests = paragraph.value("suggests");
    package.provides = paragraph.value("provides");
    package.conffiles = read_conffiles(paragraph.value("conffiles"));
    packages.push_back(std::move(package));
  }
  return packages;
}

Result<std::string> dpkg_status_text(const Host& host) { return host.files().read(kDpkgStatus, kLimit); }

Result<std::vector<DpkgPackage>> dpkg_packages(const Host& host) {
  auto packages = TRY_IN(kDpkgStatus, parse_dpkg_status(TRY(dpkg_status_text(host))));
  if (packages.empty()) return fail(ErrorCode::invalid, std::string(kDpkgStatus) + " lists no package");
  return packages;
}

Result<std::size_t> unwritten_updates(const Host& host) {
  const auto names = TRY(host.files().list(kDpkgUpdates));
  return static_cast<std::size_t>(std::ranges::count_if(
      names, [](const std::string& name) { return name.find_first_not_of("0123456789") == std::string::npos; }));
}

Result<std::set<std::string>> apt_automatic(const Host& host) {
  std::set<std::string> found;
  if (!host.files().exists(kAptMarks)) return found;  // dpkg alone has no marks
  const std::string text = TRY(host.files().read(kAptMarks, kLimit));
  const auto paragraphs = TRY_IN(kAptMarks, parse_paragraphs(text, {"package", "architecture", "auto-installed"}));
  for (const Paragraph& one : paragraphs)
    if (one.value("auto-installed") == "1") found.insert(one.value("package") + ":" + one.value("architecture"));
  return found;
}

}  // namespace p2pd
