// SPDX-License-Identifier: MIT
#include "machine/fetch/download.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "base/descriptor.hpp"
#include "base/sha256.hpp"
#include "base/url.hpp"
#include "machine/fetch/transfer.hpp"

namespace p2pd {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kIdleAttempts = 3;     // limit of attempts in a row without a byte
constexpr milliseconds kPause{500};  // pause before the second attempt, doubled for each further one
constexpr mode_t kMode = 0644;

Failure too_large(const Download& what) {
  return fail(ErrorCode::invalid,
              fmt::format("{} has more than {} bytes", without_user_info(what.url), what.limit_bytes));
}

Clock::time_point end_of(const Download& what) {
  return Clock::now() +
         std::min<milliseconds>(what.deadline, std::chrono::hours(24 * 365));  // the sum must not overflow
}

/// FILE.part: the bytes received so far, and their sum.
class Part {
 public:
  static Result<Part> open(const std::filesystem::path& file) {
    Part part;
    part.file_ = file;
    part.path_ = file.string() + ".part";
    part.fd_ = Descriptor(::open(part.path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kMode));
    if (!part.fd_) return fail_errno(part.path_);
    struct stat info {};
    if (::fstat(part.fd_.get(), &info) != 0) return fail_errno(part.path_);
    if (!S_ISREG(info.st_mode)) return fail(ErrorCode::invalid, part.path_ + " is not a regular file", "Remove it.");
    if (::flock(part.fd_.get(), LOCK_EX | LOCK_NB) != 0)
      return fail(ErrorCode::busy, part.path_ + ": another process is fetching it", "Wait until that one is done.");
    struct stat named {};  // the process that held the lock may have renamed it, and then it is the finished file
    if (::stat(part.path_.c_str(), &named) != 0 || named.st_ino != info.st_ino || named.st_dev != info.st_dev)
      return fail(ErrorCode::busy, part.path_ + ": another process has just fetched it", "Try again.");
    return part;
  }

  std::uint64_t size() const { return size_; }
  std::string sum() const { return sum_.hex(); }
  const std::string& path() const { return path_; }

  /// Adopts the bytes of an earlier call, unless they exceed `limit`.
  Result<void> adopt(std::uint64_t limit) {
    std::array<char, 65536> buffer;
    for (;;) {
      const ssize_t count = ::pread(fd_.get(), buffer.data(), buffer.size(), static_cast<off_t>(size_));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail_errno(path_);
      if (count == 0) return {};
      if (size_ + static_cast<std::uint64_t>(count) > limit) return restart();
      sum_.feed({buffer.data(), static_cast<std::size_t>(count)});
      size_ += static_cast<std::uint64_t>(count);
    }
  }

  Result<void> restart() {
    if (::ftruncate(fd_.get(), 0) != 0) return fail_errno(path_);
    size_ = 0;
    sum_.restart();
    return {};
  }

  Result<void> append(std::string_view bytes) {
    sum_.feed(bytes);
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail_errno(path_);
      size_ += static_cast<std::uint64_t>(count);
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return {};
  }

  /// Renames the part to the file, durably.
  Result<void> finish() {
    if (::fsync(fd_.get()) != 0) return fail_errno(path_);
    if (::rename(path_.c_str(), file_.c_str()) != 0) return fail_errno(file_.string());
    const std::filesystem::path above = file_.has_parent_path() ? file_.parent_path() : ".";
    const Descriptor directory(::open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory || ::fsync(directory.get()) != 0) return fail_errno(above.string());
    return {};
  }

  void remove() { ::unlink(path_.c_str()); }

 private:
  std::filesystem::path file_;
  std::string path_;
  Descriptor fd_;
  std::uint64_t size_ = 0;
  Sha256 sum_;
};

/// Fetches into a part, in as many exchanges as needed.
class Fetch {
 public:
  Fetch(const Download& what, Part& part, int stop_fd)
      : what_(what), part_(part), stop_fd_(stop_fd), until_(end_of(what)) {}

  /// Fetches the rest of the part; returns its address after redirects.
  Result<std::string> to_the_end() {
    for (int idle = 0;;) {
      const std::uint64_t before = part_.size();
      Result<Answer> answer = attempt();
      if (answer && whole(*answer)) return std::move(answer->url);
      if (answer)
        answer = fail(ErrorCode::busy, fmt::format("{}: {} bytes came, and {} were told",
                                                   without_user_info(what_.url), part_.size(), answer->total));
      const ErrorCode code = answer.error().code;
      if (code == ErrorCode::state && part_.size() > 0)
        TRY(restart());  // the range does not exist: the file has changed
      else if (code != ErrorCode::busy)
        return Failure(answer.error());
      idle = part_.size() > before ? 0 : idle + 1;
      if (idle == kIdleAttempts) return Failure(answer.error());
      TRY(pause(idle));
    }
  }

  /// True if the part is of more than one exchange, and maybe of more than one file.
  bool pieced() const { return pieced_; }
  /// Discards all bytes received so far.
  Result<void> restart() {
    validator_.clear();
    return part_.restart();
  }

 private:
  Result<Answer> attempt() {
    if (validator_.empty() && what_.sha256.empty()) TRY(restart());  // nothing would detect a mix of two files
    const std::string range = part_.size() > 0 ? fmt::format("{}-", part_.size()) : "";
    bool begun = false;
    const auto sink = [&](const Answer& answer, std::string_view bytes) -> Result<void> {
      if (!std::exchange(begun, true)) TRY(begin(answer));
      if (part_.size() + bytes.size() > what_.limit_bytes) return too_large(what_);
      TRY(part_.append(bytes));
      if (what_.progress) what_.progress(part_.size(), answer.total);
      return {};
    };
    Answer answer = TRY(Transfer{what_, until_, stop_fd_, range, validator_}.run(sink));
    if (!begun) TRY(begin(answer));
    return answer;
  }

  /// Lets the body that follows continue the part, or replace it.
  Result<void> begin(const Answer& answer) {
    if (answer.total > what_.limit_bytes) return too_large(what_);
    const bool goes_on = answer.status == 206 && part_.size() > 0;
    if (goes_on && answer.from != part_.size()) {
      TRY(restart());
      return fail(ErrorCode::busy,
                  fmt::format("{}: the server sends another range than was asked for", without_user_info(what_.url)));
    }
    if (answer.status == 206 && !goes_on)
      return fail(ErrorCode::invalid,
                  without_user_info(what_.url) + ": the server sends a part, and the whole was asked for");
    if (!goes_on) TRY(restart());
    pieced_ = goes_on;
    validator_ = answer.validator;
    return {};
  }

  bool whole(const Answer& answer) const { return answer.total == 0 || part_.size() == answer.total; }

  Result<void> pause(int idle) const {
    pollfd stop{stop_fd_, POLLIN, 0};  // poll(2) skips a negative descriptor
    const auto left = std::chrono::duration_cast<milliseconds>(until_ - Clock::now());
    const auto time = std::min(kPause * (1 << idle), std::max(left, milliseconds(0)));
    if (::poll(&stop, 1, static_cast<int>(time.count())) > 0)
      return fail(ErrorCode::interrupted, without_user_info(what_.url) + ": asked to stop");
    return {};
  }

  const Download& what_;
  Part& part_;
  int stop_fd_;
  Clock::time_point until_;
  std::string validator_;  ///< identity of the bytes in the part
  bool pieced_ = false;
};

}  // namespace

Result<Downloaded> fetch_file(const Download& what, const std::filesystem::path& file, int stop_fd) {
  Part part = TRY(Part::open(file));
  if (!what.sha256.empty()) TRY(part.adopt(what.limit_bytes));
  Downloaded done{what.url, 0, {}};
  Fetch fetch(what, part, stop_fd);
  const bool whole_already = part.size() > 0 && part.sum() == what.sha256;
  if (!whole_already) done.url = TRY(fetch.to_the_end());
  if (fetch.pieced() && !what.sha256.empty() && part.sum() != what.sha256) {  // the pieces do not belong together
    TRY(fetch.restart());
    done.url = TRY(fetch.to_the_end());
  }
  done.bytes = part.size();
  done.sha256 = part.sum();
  if (!what.sha256.empty() && done.sha256 != what.sha256) {
    part.remove();
    return fail(ErrorCode::invalid,
                fmt::format("{}: its SHA-256 is {}, not {}", without_user_info(what.url), done.sha256, what.sha256),
                "It is not used. Fetch it from another server; where that gives the same, the expected sum is wrong.");
  }
  TRY(part.finish());
  return done;
}

Result<std::string> fetch_text(const Download& what, int stop_fd) {
  std::string text;
  const auto sink = [&](const Answer& answer, std::string_view bytes) -> Result<void> {
    if (answer.status == 206)
      return fail(ErrorCode::invalid,
                  without_user_info(what.url) + ": the server sends a part, and the whole was asked for");
    if (text.size() + bytes.size() > what.limit_bytes) return too_large(what);
    text += bytes;
    return {};
  };
  TRY(Transfer{what, end_of(what), stop_fd}.run(sink));
  return text;
}

Result<std::uint64_t> remote_bytes(const Download& what, int stop_fd) {
  std::optional<std::uint64_t> total;
  const auto sink = [&](const Answer& answer, std::string_view) -> Result<void> {
    total = answer.total;
    return fail(ErrorCode::interrupted, "enough");  // the first byte is enough
  };
  // one byte by GET: some servers refuse HEAD, and one that ignores the range reports the length all the same
  const auto answer = Transfer{what, end_of(what), stop_fd, "0-0"}.run(sink);
  const bool empty = !answer && answer.error().code == ErrorCode::state;  // no first byte
  if (!answer && !total && !empty) return Failure(answer.error());
  if (total.value_or(0) > 0) return *total;
  return fail(ErrorCode::invalid,
              without_user_info(what.url) + ": the server does not tell its size, or it is empty");
}

}  // namespace p2pd
