// SPDX-License-Identifier: MIT
#include "base/boot/kernel_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/descriptor.hpp"
#include "base/line_pattern.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kDevice = "/dev/kmsg";
constexpr std::string_view kFile = "/var/log/kern.log";
constexpr std::size_t kRecordLimit = 16384;  // bytes; the kernel's own limit is 8192

/// The text of a record: what is behind "6,339,5140900,-;". Other lines come back as they are.
std::string_view text_of(std::string_view line) {
  const std::size_t end = line.find(';');
  const std::string_view fields = line.substr(0, std::min(end, line.size()));
  if (end == std::string_view::npos || std::count(fields.begin(), fields.end(), ',') < 3) return line;
  const std::size_t sequence = fields.find_first_not_of("0123456789");
  return sequence > 0 && fields[sequence] == ',' ? line.substr(end + 1) : line;
}

/// Adds the lines of one record: a message of several has "\x0a" between them.
void add_lines(std::string_view text, std::vector<std::string>& lines) {
  constexpr std::string_view kBreak = "\\x0a";
  while (true) {
    const std::size_t end = text.find(kBreak);
    lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + kBreak.size());
  }
}

/// True for the first line that a kernel prints. More is asked for than fits into a process name, which others print.
bool starts_boot(std::string_view line) {
  static const LinePattern kFirst = LinePattern::parse("Linux version [0-9]+\\.[0-9].* \\(.*@").value();
  return kFirst.found_in(line);
}

Result<KernelLog> read_device(const Host& host) {
  const std::string name = TRY(host.files().real_path(kDevice)).string();
  const Descriptor device(::open(name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!device) return fail_errno(kDevice);
  KernelLog log{std::string(kDevice), false, {}};
  std::array<char, kRecordLimit> record;
  // each read gives one record; what is printed meanwhile must not keep us here
  for (std::size_t bytes = 0; bytes < Root::kReadLimit;) {
    const ssize_t count = ::read(device.get(), record.data(), record.size());
    if (count == 0 || (count < 0 && errno == EAGAIN)) break;
    if (count < 0 && (errno == EINTR || errno == EPIPE)) {  // EPIPE: overwritten, the next read gives the oldest left
      ++bytes;
      continue;
    }
    if (count < 0) return fail_errno(kDevice);
    bytes += static_cast<std::size_t>(count);
    const std::string_view text(record.data(), static_cast<std::size_t>(count));
    add_lines(text_of(text.substr(0, text.find('\n'))), log.lines);  // behind it: SUBSYSTEM=, DEVICE=
  }
  log.complete = !log.lines.empty() && starts_boot(log.lines.front());
  return log;
}

}  // namespace

KernelLog parse_kernel_log(std::string_view text, std::string source) {
  KernelLog log{std::move(source), false, {}};
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (starts_boot(line)) {
      log.lines.clear();
      log.complete = true;
    }
    add_lines(text_of(line), log.lines);
  }
  return log;
}

Result<KernelLog> kernel_log(const Host& host) {
  if (host.live()) {
    auto log = read_device(host);
    if (!log && log.error().code == ErrorCode::denied)
      return fail(ErrorCode::denied, log.error().message + "; root would tell", "Run it as root.");
    return log;
  }
  // a device in a directory is the log of this kernel, not of the one that the directory is of
  const auto info = host.files().stat(kDevice);
  const std::string_view path = info && S_ISREG(info->st_mode) ? kDevice : kFile;
  const auto text = host.files().read(path);
  if (!text && text.error().code == ErrorCode::not_found)
    return fail(ErrorCode::not_found, "no kernel log: neither /dev/kmsg nor /var/log/kern.log is a file here");
  if (!text && text.error().code == ErrorCode::denied)
    return fail(ErrorCode::denied, text.error().message + "; root would tell", "Run it as root.");
  if (!text) return Failure(text.error());
  return parse_kernel_log(*text, std::string(path));
}

}  // namespace p2pd
