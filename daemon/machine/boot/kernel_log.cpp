// SPDX-License-Identifier: MIT
// Reads the kernel's log, record by record. Uses /dev/kmsg itself, not `dmesg` or journalctl: it keeps records whole
// (line breaks are escaped) and has the facility of each, everywhere; dmesg prints JSON from util-linux 2.38 on (not on
// Ubuntu 22.04), and indents or repeats lines. Reference: Documentation/ABI/testing/dev-kmsg of Linux.
#include "machine/boot/kernel_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

#include "base/line_pattern.hpp"

namespace p2pd {
namespace {

constexpr std::string_view kDevice = "/dev/kmsg";
constexpr std::string_view kFile = "/var/log/kern.log";
constexpr std::size_t kLogRecordLimit = 16384;  // limit in bytes; the kernel's own limit is 8192
constexpr std::size_t kHeadLimit = 96;          // bytes of a date, a host and times
constexpr unsigned kLevels = 8;                 // a priority is facility * 8 + level; facility 0 is the kernel

/// Checks for the first line that a kernel prints. The name of a process is too short to match.
bool is_banner(std::string_view text) {
  static const LinePattern kFirst = LinePattern::parse("Linux version [0-9]+\\.[0-9].* \\(.*@").value();
  return kFirst.starts(text);
}

/// Takes a number and the `end` after it off the front.
std::optional<unsigned long long> take_number(std::string_view& rest, char end) {
  unsigned long long number = 0;
  const auto [behind, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  const auto digits = static_cast<std::size_t>(behind - rest.data());
  if (error != std::errc() || digits == rest.size() || *behind != end) return std::nullopt;
  rest.remove_prefix(digits + 1);
  return number;
}

/// Header of a record of /dev/kmsg, "6,339,5140900,-;".
struct DeviceHead {
  std::size_t size;
  bool of_kernel;
  bool first;  ///< first record since the boot
};

std::optional<DeviceHead> device_head(std::string_view line) {
  const std::size_t end = line.find(';');
  std::string_view rest = line.substr(0, end);
  if (end == std::string_view::npos) return std::nullopt;
  const auto priority = take_number(rest, ',');
  const auto sequence = priority ? take_number(rest, ',') : std::nullopt;
  if (!sequence || !take_number(rest, ',')) return std::nullopt;
  return DeviceHead{end + 1, *priority < kLevels, *sequence == 0};
}

std::string_view take_line(std::string_view& text) {
  std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

void parse_device(std::string_view text, KernelLog& log) {
  // an older p2pd recorded each line of a record as one of its own, all of level 6; a kernel's first has level 5
  log.whole = !text.starts_with("6,0,0,-;");
  for (bool first = true; !text.empty(); first = false) {
    const std::string_view line = take_line(text);
    const auto head = device_head(line);
    if (first) log.complete = head && head->first;
    if (head && head->of_kernel)  // skips " SUBSYSTEM=pci" of the record before it, or text of a program
      log.records.push_back({std::string(line.substr(0, head->size)), std::string(line.substr(head->size))});
  }
}

/// Prefix of a line of text: "Nov 21 19:58:21 box kernel: [    0.000000] ", "<6>[    0.000000][    T0] ",
/// "2024-05-01T10:11:12,123456+00:00 ", and the marks of a quotation.
struct TextHead {
  std::size_t indent = 0;
  std::size_t size = 0;
  bool dated = false;       ///< contains a date, a time or a priority
  bool of_kernel = true;    ///< false if a priority says otherwise
  bool after_boot = false;  ///< time since the boot is not 0
};

/// Takes "[    0.000000]", "[  +0.05]", "[Tue Mar  2 10:11:12 2021]" or "[   T0]" off the front.
bool take_brackets(std::string_view& rest, TextHead& head) {
  const std::size_t end = rest.find(']');
  if (!rest.starts_with('[') || end == std::string_view::npos || end > kHeadLimit) return false;
  const std::string_view inside = rest.substr(1, end - 1);
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view(" .:+").find(c) != std::string_view::npos;
  };
  if (inside.empty() || !std::ranges::all_of(inside, fits) || inside.back() < '0' || inside.back() > '9') return false;
  if (inside.find_first_not_of(" .+0123456789") == std::string_view::npos)
    head.after_boot = head.after_boot || inside.find_first_of("123456789") != std::string_view::npos;
  rest.remove_prefix(end + 1);
  return true;
}

/// Takes a date, host and "kernel: ", or a date alone, off the front.
bool take_date(std::string_view& rest) {
  constexpr std::string_view kKernel = "kernel: ";
  const std::size_t at = rest.substr(0, kHeadLimit).find(kKernel);
  if (at != std::string_view::npos && rest.substr(0, at).find_first_of("[(;'") == std::string_view::npos) {
    rest.remove_prefix(at + kKernel.size());
    return true;
  }
  const std::size_t end = rest.find_first_not_of("0123456789TZ:.,+-");
  if (end == 0 || end == std::string_view::npos || rest[end] != ' ') return false;
  if (rest.substr(0, end).find_first_of(":.") == std::string_view::npos) return false;
  rest.remove_prefix(end);
  return true;
}

TextHead text_head(std::string_view line) {
  constexpr std::string_view kQuote = " \t>*";
  TextHead head;
  head.indent = std::min(line.find_first_not_of(kQuote), line.size());
  std::string_view rest = line.substr(head.indent);
  const auto skip = [&] { rest.remove_prefix(std::min(rest.find_first_not_of(kQuote), rest.size())); };
  if (rest.starts_with('<')) {
    std::string_view behind = rest.substr(1);
    if (const auto priority = take_number(behind, '>')) {
      head.of_kernel = *priority < kLevels;
      head.dated = true;
      rest = behind;
    }
  }
  for (bool taken = true; taken; head.dated = head.dated || taken) {
    skip();
    taken = take_brackets(rest, head) || take_date(rest);
  }
  head.size = line.size() - rest.size();
  return head;
}

void parse_text(std::string_view text, KernelLog& log) {
  std::optional<std::size_t> indent;
  bool dated = false;
  bool of_kernel = true;  // origin of the record that a line may continue
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    const TextHead head = text_head(line);
    if (head.size == line.size()) continue;
    if (!indent) indent = head.indent;
    const bool continues = head.indent != *indent || (dated && !head.dated);
    if (!continues) {
      of_kernel = head.of_kernel;
      dated = dated || head.dated;
    }
    if (!of_kernel) continue;
    if (continues && !log.records.empty()) {
      log.records.back().text += std::string(kKernelLogBreak) + std::string(line.substr(head.indent));
      continue;
    }
    const std::string_view message = line.substr(head.size);
    if (is_banner(message) && !head.after_boot) {
      log.records.clear();
      log.complete = true;
    }
    log.records.push_back({std::string(line.substr(0, head.size)), std::string(message)});
  }
}

Failure for_root(const Error& error) {
  if (error.code != ErrorCode::denied) return Failure(error);
  return fail(ErrorCode::denied, error.message + "; root would tell", "Run it as root.");
}

}  // namespace

std::vector<std::string> KernelRecord::lines() const {
  std::vector<std::string> out;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find(kKernelLogBreak, at);
    out.push_back(text.substr(at, end - at));
    if (end == std::string::npos) return out;
    at = end + kKernelLogBreak.size();
  }
}

std::string KernelRecord::line() const { return fmt::format("{}", fmt::join(lines(), kKernelLogJoint)); }

KernelLog parse_kernel_log(std::string_view text, std::string source) {
  KernelLog log{std::move(source), false, false, {}};
  if (device_head(text.substr(0, text.find('\n'))))
    parse_device(text, log);
  else
    parse_text(text, log);
  return log;
}

Result<Descriptor> open_kernel_log(const Host& host) {
  const std::string name = TRY(host.files().real_path(kDevice)).string();
  Descriptor device(::open(name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!device) return fail_errno(kDevice);
  return device;
}

Result<KernelLogPart> read_kernel_log(const Descriptor& device) {
  KernelLogPart part;
  std::array<char, kLogRecordLimit> record;
  // the device returns one record a read, a file what fits; new records must not keep p2pd here
  for (std::size_t bytes = 0; bytes < Root::kReadLimit;) {
    const ssize_t count = ::read(device.get(), record.data(), record.size());
    if (count == 0 || (count < 0 && errno == EAGAIN)) break;
    if (count < 0 && errno != EINTR && errno != EPIPE) return fail_errno(kDevice);
    if (count < 0) {
      part.lost = part.lost || errno == EPIPE;  // overwritten: the next read returns the oldest record left
      ++bytes;
      continue;
    }
    bytes += static_cast<std::size_t>(count);
    part.text.append(record.data(), static_cast<std::size_t>(count));
  }
  return part;
}

Result<KernelLog> kernel_log(const Host& host) {
  if (host.live()) {
    const auto device = open_kernel_log(host);
    if (!device) return for_root(device.error());
    return parse_kernel_log(TRY(read_kernel_log(*device)).text, std::string(kDevice));
  }
  // a device in a directory is the log of this kernel, not of the directory's kernel
  const auto info = host.files().stat(kDevice);
  const std::string_view path = info && S_ISREG(info->st_mode) ? kDevice : kFile;
  const auto text = host.files().read(path);
  if (!text && text.error().code == ErrorCode::not_found)
    return fail(ErrorCode::not_found, "no kernel log: neither /dev/kmsg nor /var/log/kern.log is a file here");
  if (!text) return for_root(text.error());
  return parse_kernel_log(*text, std::string(path));
}

}  // namespace p2pd
