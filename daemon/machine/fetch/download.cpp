// SPDX-License-Identifier: MIT
// Reference: curl(1), whose options here are all in curl 7.81 of Ubuntu 22.04; prlimit(1).
#include "machine/fetch/download.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>

#include "base/descriptor.hpp"
#include "base/scratch_directory.hpp"
#include "base/sha256.hpp"
#include "base/units.hpp"
#include "base/url.hpp"

namespace p2pd {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kRedirects = 5;
constexpr char kCheckAddress[] =
    "Check the address and the network; proxies are taken from https_proxy and http_proxy.";

/// Options of curl(1), read by --config -, so that no password is in argv. --disable before them: no ~/.curlrc is read.
constexpr char kConfiguration[] = R"(url = {url}
proto = "={scheme}"
proto-redir = "={scheme}"
location
max-redirs = {redirects}
netrc-optional
netrc-file = /root/.netrc
connect-timeout = {stall}
speed-limit = 1
speed-time = {stall}
max-filesize = {limit}
user-agent = p2pd/{version}
fail
globoff
silent
show-error
no-buffer
dump-header = -
output = {file}
)";

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << std::quoted(text);
  return out.str();
}

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

/// Scheme of an address; error for another scheme, and for a character that could end a line of --config.
Result<std::string> scheme_of(const std::string& url) {
  const bool plain = std::ranges::none_of(url, [](unsigned char c) { return c < ' ' || c == 0x7f; });
  for (const std::string scheme : {"https", "http", "file"})
    if (plain && url.starts_with(scheme + "://") && (scheme != "file" || local_path(url))) return scheme;
  return fail(ErrorCode::invalid, without_user_info(url) + " is not an https, http or file address");
}

/// URL of a host's file for curl, which runs on this machine and reads %-escapes.
Result<std::string> url_outside(const Host& host, const std::string& path) {
  std::string url = "file://";
  for (const char c : TRY(host.files().real_path(path)).string()) {
    const bool plain =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("/-_.~").find(c) != std::string_view::npos;
    url += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return url;
}

Failure refusal(const std::string& url, long status) {
  const std::string text = fmt::format("{}: the server answers {}", url, status);
  if (status == 404 || status == 410)
    return fail(ErrorCode::not_found, text, "Check the address, or name another server.");
  if (status == 401 || status == 403 || status == 407)
    return fail(ErrorCode::denied, text, "The server or a proxy on the way refuses it: ask who runs them.");
  if (status == 416) return fail(ErrorCode::state, text);
  if (status == 408 || status == 429 || status >= 500)
    return fail(ErrorCode::busy, text, "The server is in trouble or busy: try later, or name another one.");
  return fail(ErrorCode::invalid, text);
}

/// Reason given by curl: "Could not resolve host: x" of "curl: (6) Could not resolve host: x".
std::string reason_of(const CommandResult& ended) {
  const std::size_t begin = ended.errors.find("curl: ("), text = ended.errors.find(") ", begin);
  if (begin == std::string::npos || text == std::string::npos)
    return fmt::format("curl ends with status {}", ended.status);
  return without_user_info(ended.errors.substr(text + 2, ended.errors.find('\n', text) - text - 2));
}

/// Headers of a server's answer that are needed here.
struct Answer {
  long status = 0;          ///< of HTTP; 0: no answer so far, or a file
  std::string validator;    ///< strong ETag, else Last-Modified: names these bytes; may be empty
  std::uint64_t total = 0;  ///< bytes of the whole; 0: not known

  /// Takes one line of the headers; those of a later answer, as after a redirect, replace the earlier ones.
  void read(std::string_view line) {
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) {
      const std::size_t space = std::min(line.find(' ') + 1, line.size());
      *this = {static_cast<long>(number(line.substr(space, 3))), {}, 0};
    }
    const std::size_t colon = std::min(line.find(':'), line.size());
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    std::string_view value = line.substr(std::min(colon + 1, line.size()));
    value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
    if (name == "content-length" && status == 200) total = number(value);
    if (name == "content-range" && status == 206)
      total = number(value.substr(value.find('/') + 1));  // "bytes 100-199/200"
    if (name == "etag" && value.starts_with('"')) validator = value;
    if (name == "last-modified" && validator.empty()) validator = value;
  }
};

/// One request by curl(1), which appends the missing bytes to `file`.
///
/// No URL or password is in argv, and no ~/.curlrc is read. The file never has more than the limit of `what`.
struct Curl {
  const Host& host;
  const Download& what;
  Clock::time_point until;
  std::filesystem::path file;  ///< path on this machine
  bool first_byte = false;     ///< requests one byte, whose answer reports the size of the file
  std::string validator = {};  ///< of the bytes in the file; may be empty
  Answer answer = {};          ///< answer to the last run(), also to a failed one

  /// Errors as fetch_file(), and ErrorCode::state if the server does not continue the bytes that are there.
  Result<void> run();

 private:
  std::uint64_t limit() const { return first_byte ? 1 : what.limit_bytes; }
  std::string configuration(const std::string& url, std::uint64_t from) const;
  Result<void> judge(const CommandResult& ended, std::uint64_t from) const;
};

std::uint64_t bytes_in(const std::filesystem::path& file) {
  std::error_code error;
  const std::uint64_t bytes = std::filesystem::file_size(file, error);
  return error ? 0 : bytes;
}

Failure too_large(const Download& what) {
  return fail(ErrorCode::invalid,
              fmt::format("{} has more than {} bytes", without_user_info(what.url), what.limit_bytes));
}

std::string Curl::configuration(const std::string& url, std::uint64_t from) const {
  using fmt::arg;
  std::string text = fmt::format(kConfiguration, arg("url", quoted(url)), arg("scheme", url.substr(0, url.find(':'))),
                                 arg("version", P2PD_VERSION), arg("redirects", kRedirects),
                                 arg("stall", what.stall.count()), arg("limit", limit()), arg("file", quoted(file)));
  if (first_byte) text += "range = 0-0\n";  // some servers refuse HEAD
  if (from > 0) text += fmt::format("continue-at = {}\n", from);
  if (from > 0 && !validator.empty()) text += "header = " + quoted("If-Range: " + validator) + "\n";
  return text;
}

Result<void> Curl::run() {
  const std::string shown = without_user_info(what.url), scheme = TRY(scheme_of(what.url));
  const std::uint64_t from = first_byte ? 0 : bytes_in(file);
  Command command{{"prlimit", fmt::format("--fsize={}", limit()), "curl", "--disable", "--config", "-"}};
  command.environment = proxy_variables();
  command.outside = true;
  command.deadline = std::chrono::duration_cast<milliseconds>(until - Clock::now());
  if (command.deadline <= milliseconds(0)) return fail(ErrorCode::timeout, shown + ": not done in time", kCheckAddress);
  std::string url = what.url;
  answer = {};
  if (scheme == "file") {
    const std::string path = *local_path(url);
    const auto info = TRY(host.files().stat(path));
    if (!S_ISREG(info.st_mode)) return fail(ErrorCode::invalid, shown + " is not a regular file");  // a pipe has no end
    answer.total = static_cast<std::uint64_t>(info.st_size);
    if (answer.total > what.limit_bytes) return too_large(what);
    url = TRY(url_outside(host, path));
  }
  command.input = configuration(url, from);
  if (scheme != "file") command.on_line = [&](std::string_view line) { answer.read(line); };
  const auto tell = [&] { what.progress(bytes_in(file), answer.total); };
  if (what.progress) command.on_idle = tell;
  const auto ended = host.run_readonly(command);
  if (answer.status == 200 || answer.status == 206) validator = answer.validator;
  if (!ended && ended.error().code == ErrorCode::interrupted)
    return fail(ErrorCode::interrupted, shown + ": asked to stop");
  if (!ended && ended.error().code == ErrorCode::timeout)
    return fail(ErrorCode::timeout, shown + ": not done in time", kCheckAddress);
  if (!ended) return Failure(ended.error());
  if (what.progress) tell();
  return judge(*ended, from);
}

Result<void> Curl::judge(const CommandResult& ended, std::uint64_t from) const {
  const std::string url = without_user_info(what.url), reason = url + ": " + reason_of(ended);
  if (answer.status >= 400) return refusal(url, answer.status);
  switch (ended.status) {
    case 0:
      if (from > 0 && answer.status == 200) return fail(ErrorCode::state, url + ": the server sends the whole");
      if (from == 0 && answer.status == 206 && !first_byte)
        return fail(ErrorCode::invalid, url + ": the server sends a part, and the whole was asked for");
      if (answer.status == 0 || answer.status == 200 || answer.status == 206) return {};
      return fail(ErrorCode::io, fmt::format("{}: the server answers {}", url, answer.status));
    case 1:
      if (answer.status < 300) return fail(ErrorCode::invalid, reason);
      return fail(ErrorCode::invalid, url + ": it redirects to another scheme, which is not followed",
                  "Name the address that it redirects to, where that is to be trusted.");
    case 6:   // no such host
    case 7:   // no connection
    case 16:  // HTTP/2
    case 18:  // cut
    case 52:  // no answer
    case 55:  // not sent
    case 56:  // not received
    case 92:  // HTTP/2 stream
      return fail(ErrorCode::busy, reason, kCheckAddress);
    case 23: {
      std::error_code error;
      const std::uint64_t free = std::filesystem::space(file.parent_path(), error).available / kMiB;
      return fail(ErrorCode::io, fmt::format("{} cannot be written: {} MiB are free there", file.string(), free),
                  "Make room there; where there is enough, see \"dmesg\".");
    }
    case 28:
      return fail(ErrorCode::busy, fmt::format("{}: nothing received for {} s", url, what.stall.count()),
                  kCheckAddress);
    case 33:  // no such range, or no ranges at all
    case 36:  // the same of a file
      return fail(ErrorCode::state, reason);
    case 37: return fail(ErrorCode::not_found, reason);
    case 47:
      return fail(ErrorCode::invalid, fmt::format("{}: more than {} redirects", url, kRedirects),
                  "Name another server.");
    case 60:
      return fail(ErrorCode::io, reason,
                  "Check the clock, and that ca-certificates is installed and knows who signed it.");
    case 63:             // the length announced
    case 128 + SIGXFSZ:  // RLIMIT_FSIZE
      return too_large(what);
    case 126:
    case 127:  // of prlimit
      return fail(ErrorCode::command, "curl is not installed", "apt-get install curl");
    default: return fail(ErrorCode::io, reason, kCheckAddress);
  }
}

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

std::map<std::string, std::string> proxy_variables() {
  std::map<std::string, std::string> found;
  for (const char* name :
       {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"})
    if (const char* value = std::getenv(name)) found[name] = value;
  return found;
}

}  // namespace p2pd
