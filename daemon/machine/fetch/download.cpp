// SPDX-License-Identifier: MIT
#include "machine/fetch/download.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "base/descriptor.hpp"
#include "base/scratch_directory.hpp"
#include "base/sha256.hpp"
#include "base/url.hpp"
#include "machine/fetch/curl.hpp"

namespace p2pd {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kIdleAttempts = 3;     // limit of attempts in a row without a byte
constexpr milliseconds kPause{500};  // pause before the second attempt, doubled for each further one
constexpr mode_t kMode = 0644;

Clock::time_point end_of(const Download& what) {
  return Clock::now() +
         std::min<milliseconds>(what.deadline, std::chrono::hours(24 * 365));  // the sum must not overflow
}

/// Opens FILE.part for this process alone.
Result<Descriptor> open_part(const std::string& path) {
  Descriptor part(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kMode));
  if (!part) return fail_errno(path);
  struct stat info {};
  if (::fstat(part.get(), &info) != 0) return fail_errno(path);
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::invalid, path + " is not a regular file", "Remove it.");
  if (::flock(part.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(ErrorCode::busy, path + ": another process is fetching it", "Wait until that one is done.");
  struct stat named {};  // the process that held the lock may have renamed it, and then it is the finished file
  if (::stat(path.c_str(), &named) != 0 || named.st_ino != info.st_ino || named.st_dev != info.st_dev)
    return fail(ErrorCode::busy, path + ": another process has just fetched it", "Try again.");
  return part;
}

/// Fetches into FILE.part, with as many requests as that takes.
class Fetch {
 public:
  Fetch(const Host& host, const Download& what, const std::string& path, const Descriptor& part)
      : what_(what), part_(part), curl_{host, what, end_of(what), path} {}

  std::uint64_t bytes() const { return bytes_in(curl_.file); }
  Result<std::string> sum() const { return sha256_of_file(part_, curl_.file.string()); }
  /// Checks that the part comes from more than one request, and so perhaps from more than one file.
  bool pieced() const { return pieced_; }

  /// Drops all bytes received so far.
  Result<void> restart() {
    curl_.validator.clear();
    if (::ftruncate(part_.get(), 0) != 0) return fail_errno(curl_.file.string());
    return {};
  }

  /// Fetches until the part is complete; returns its sum.
  Result<std::string> complete() {
    std::uint64_t before = bytes();
    for (int idle = 0;;) {
      const bool mixed = curl_.validator.empty() && what_.sha256.empty();  // no way to detect a mix of two files
      if (mixed || bytes() > what_.limit_bytes) TRY(restart());
      pieced_ = bytes() > 0;
      auto done = curl_.run();
      const std::uint64_t total = curl_.answer.total;
      if (done && (total == 0 || bytes() == total)) return sum();
      if (done)
        done = fail(ErrorCode::busy,
                    fmt::format("{}: received {} bytes of {}", without_user_info(what_.url), bytes(), total));
      if (done.error().code == ErrorCode::state && pieced_) {  // another file by now, or a server without ranges
        TRY(restart());
        continue;
      }
      if (done.error().code != ErrorCode::busy) return Failure(done.error());
      idle = bytes() > before ? 0 : idle + 1;
      before = bytes();
      if (idle == kIdleAttempts) return Failure(done.error());
      TRY(pause(idle));
    }
  }

 private:
  Result<void> pause(int idle) const {
    pollfd stop{curl_.host.stop_fd(), POLLIN, 0};  // poll(2) skips negative ones
    const auto left = std::chrono::duration_cast<milliseconds>(curl_.until - Clock::now());
    const auto time = std::min(kPause * (1 << idle), std::max(left, milliseconds(0)));
    if (::poll(&stop, 1, static_cast<int>(time.count())) > 0)
      return fail(ErrorCode::interrupted, without_user_info(what_.url) + ": asked to stop");
    return {};
  }

  const Download& what_;
  const Descriptor& part_;
  Curl curl_;
  bool pieced_ = false;
};

}  // namespace

Result<Downloaded> fetch_file(Host& host, const Download& what, const std::string& file) {
  const std::size_t name = file.rfind('/') + 1;
  const std::string path = TRY(host.files().real_path(file.substr(0, name))) / (file.substr(name) + ".part");
  const Descriptor part = TRY(open_part(path));
  Fetch fetch(host, what, path, part);
  const bool any = what.sha256.empty();
  std::string sum = TRY(fetch.sum());  // of the bytes of an earlier call
  if (any || sum != what.sha256) sum = TRY(fetch.complete());
  if (!any && sum != what.sha256 && fetch.pieced()) {  // parts of different files
    TRY(fetch.restart());
    sum = TRY(fetch.complete());
  }
  if (!any && sum != what.sha256) {
    TRY(host.remove_tree(file + ".part"));
    return fail(ErrorCode::invalid,
                fmt::format("{}: its SHA-256 is {}, not {}", without_user_info(what.url), sum, what.sha256),
                "It is not used. Fetch it from another server; where that gives the same, the expected sum is wrong.");
  }
  const Downloaded done{fetch.bytes(), sum};
  TRY(host.move(file + ".part", file));
  return done;
}

Result<std::string> fetch_text(const Host& host, const Download& what) {
  const ScratchDirectory scratch = TRY(ScratchDirectory::make("download"));
  Curl curl{host, what, end_of(what), scratch.path() / "text"};
  TRY(curl.run());
  std::ifstream text(curl.file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(text), {});
}

Result<std::uint64_t> remote_bytes(const Host& host, const Download& what) {
  const ScratchDirectory scratch = TRY(ScratchDirectory::make("download"));
  Curl curl{host, what, end_of(what), scratch.path() / "byte", true};
  const auto done = curl.run();
  const Answer& answer = curl.answer;
  if (answer.total > what.limit_bytes) return too_large(what);
  if (answer.total > 0) return answer.total;
  const bool answered =
      done || answer.status == 416 || (answer.status / 100 == 2 && done.error().code == ErrorCode::invalid);
  if (!answered) return Failure(done.error());
  return fail(ErrorCode::invalid,
              without_user_info(what.url) + ": the server does not report its size, or it is empty");
}

}  // namespace p2pd
