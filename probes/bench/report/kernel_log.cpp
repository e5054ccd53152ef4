// SPDX-License-Identifier: MIT
#include "probes/bench/report/kernel_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/boot/kernel_log.hpp"

namespace p2pd::bench {

KernelLog::KernelLog(const Host& host) {
  const auto path = host.files().real_path("/dev/kmsg");
  if (path) fd_ = ::open(path->c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ >= 0 && ::lseek(fd_, 0, SEEK_END) >= 0) return;
  not_readable_ = path ? fmt::format("/dev/kmsg: {}", std::strerror(errno)) : path.error().message;
}

KernelLog::~KernelLog() {
  if (fd_ >= 0) ::close(fd_);
}

bool is_gpu_fault(std::string_view message) {
  static constexpr std::string_view kSigns[] = {"NVRM: Xid",  "NVRM: nvAssert", "NVRM: rcdbAddRmGpuDump", "IO_PAGE_FAULT",
                                                "DMAR: [DMA", "AER: ",          "fallen off the bus",      "GPU has crashed"};
  return std::any_of(std::begin(kSigns), std::end(kSigns), [&](std::string_view sign) { return message.find(sign) != message.npos; });
}

std::vector<std::string> KernelLog::lines(int expected) const {
  constexpr std::size_t kMost = 50;
  std::vector<std::string> found;
  std::string text;
  std::array<char, 8192> record{};
  const std::string own = fmt::format("pid={},", expected);
  const std::string quoted = fmt::format("pid='{}'", expected);
  for (int reads = 0; fd_ >= 0 && reads < 100'000; ++reads) {  // kmsg gives a record a read, a recorded file all of it
    const ssize_t length = ::read(fd_, record.data(), record.size());
    if (length < 0 && (errno == EPIPE || errno == EINTR)) continue;  // overwritten before it was read: go on
    if (length <= 0) break;
    text.append(record.data(), static_cast<std::size_t>(length));
  }
  for (const std::string& line : parse_kernel_log(text, "/dev/kmsg").lines) {
    const bool excused = expected > 0 && (line.find(own) != line.npos || line.find(quoted) != line.npos);
    if (is_gpu_fault(line) && !excused && found.size() < kMost) found.push_back(line);
  }
  return found;
}

}  // namespace p2pd::bench
