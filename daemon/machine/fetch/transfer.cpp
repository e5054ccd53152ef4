// SPDX-License-Identifier: MIT
#include "machine/fetch/transfer.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>

#include "base/url.hpp"
#include "machine/fetch/libcurl.hpp"

namespace p2pd {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr long kRedirects = 5;
constexpr char kCheckAddress[] =
    "Check the address and the network; proxies are taken from https_proxy and http_proxy.";

/// Scheme of an address, if it is supported.
Result<std::string> scheme_of(const std::string& url) {
  for (const char* scheme : {"https", "http", "file"})
    if (url.starts_with(std::string(scheme) + "://")) return scheme;
  return fail(ErrorCode::invalid, without_user_info(url) + " is no https, http or file address");
}

/// Rejects a pipe: libcurl would wait forever for its other end.
Result<void> check_regular(const Libcurl& lib, const std::string& url) {
  const std::unique_ptr<CURLU, decltype(lib.url_cleanup)> parsed(lib.url(), lib.url_cleanup);
  char* path = nullptr;
  if (!parsed || lib.url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      lib.url_get(parsed.get(), CURLUPART_PATH, &path, CURLU_URLDECODE) != CURLUE_OK)
    return fail(ErrorCode::invalid, without_user_info(url) + " is no address of a file");
  const std::unique_ptr<char, decltype(lib.free)> owner(path, lib.free);
  struct stat info {};
  if (::stat(path, &info) != 0) return fail_errno(url);
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::invalid, url + " is not a regular file");
  return {};
}

std::optional<std::uint64_t> header_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Parses "bytes 100-199/200"; leaves `answer` as it is for any other text.
void read_content_range(std::string_view value, Answer& answer) {
  constexpr std::string_view kRangeUnit = "bytes ";
  const std::size_t dash = value.find('-'), slash = value.find('/');
  if (!value.starts_with(kRangeUnit) || dash == std::string_view::npos || slash == std::string_view::npos) return;
  const auto from = header_number(value.substr(kRangeUnit.size(), dash - kRangeUnit.size()));
  if (!from) return;
  answer.from = *from;
  answer.total = header_number(value.substr(slash + 1)).value_or(0);
}

/// One exchange while libcurl carries it; libcurl passes it to the callbacks as their last argument.
struct Exchange {
  const Libcurl& lib;
  CURL* curl;
  const Transfer& transfer;
  const Transfer::Sink& sink;
  Answer answer = {};
  Result<void> failure = {};
  bool begun = false;  ///< first piece of the body has arrived

  /// Passes a long, a curl_off_t or a pointer to libcurl, as the option requires.
  template <typename Value>
  void set(CURLoption option, Value value) const {
    lib.easy_setopt(curl, option, value);
  }
};

void begin_body(Exchange& exchange) {
  exchange.begun = true;
  Answer& answer = exchange.answer;
  curl_off_t length = -1;
  char* url = nullptr;
  exchange.lib.easy_getinfo(exchange.curl, CURLINFO_RESPONSE_CODE, &answer.status);
  exchange.lib.easy_getinfo(exchange.curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
  exchange.lib.easy_getinfo(exchange.curl, CURLINFO_EFFECTIVE_URL, &url);
  answer.url = url != nullptr ? url : exchange.transfer.what.url;
  if (answer.status != 206) {
    answer.from = 0;
    answer.total = length > 0 ? static_cast<std::uint64_t>(length) : 0;
  }
  if (answer.status != 0 && answer.status != 200 && answer.status != 206)
    exchange.failure = fail(ErrorCode::io, fmt::format("{}: the server answers {}",
                                                       without_user_info(exchange.transfer.what.url), answer.status));
}

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* user) noexcept {
  Answer& answer = static_cast<Exchange*>(user)->answer;
  std::string_view line(data, size * count);
  while (line.ends_with('\n') || line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) answer = {};  // headers so far were of a redirect or a proxy
  const std::size_t colon = std::min(line.find(':'), line.size());
  std::string name(line.substr(0, colon));
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  std::string_view value = line.substr(std::min(colon + 1, line.size()));
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  if (name == "content-range") read_content_range(value, answer);
  if (name == "etag" && value.starts_with('"')) answer.validator = value;
  if (name == "last-modified" && answer.validator.empty()) answer.validator = value;
  return size * count;
}

std::size_t on_body(char* data, std::size_t size, std::size_t count, void* user) noexcept {
  Exchange& exchange = *static_cast<Exchange*>(user);
  if (!exchange.begun) begin_body(exchange);
  if (exchange.failure) exchange.failure = exchange.sink(exchange.answer, {data, size * count});
  return exchange.failure ? size * count : 0;
}

/// Runs about once a second even without data; any result but 0 ends the exchange.
int on_tick(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) noexcept {
  pollfd stop{static_cast<Exchange*>(user)->transfer.stop_fd, POLLIN, 0};
  return stop.fd >= 0 && ::poll(&stop, 1, 0) > 0 ? 1 : 0;
}

Failure refusal(const std::string& url, long status) {
  const std::string text = fmt::format("{}: the server answers {}", url, status);
  if (status == 404 || status == 410) return fail(ErrorCode::not_found, text);
  if (status == 401 || status == 403 || status == 407)
    return fail(ErrorCode::denied, text, "The server or a proxy on the way refuses it: ask who runs them.");
  if (status == 416) return fail(ErrorCode::state, text);
  if (status == 408 || status == 429 || status >= 500)
    return fail(ErrorCode::busy, text, "The server is in trouble or busy: try later, or name another one.");
  return fail(ErrorCode::invalid, text);
}

/// Makes the Error of an exchange for which libcurl reports a failure.
Failure failure_of(CURLcode code, const Exchange& exchange, const char* words) {
  const std::string url = without_user_info(exchange.transfer.what.url);
  long status = 0;
  exchange.lib.easy_getinfo(exchange.curl, CURLINFO_RESPONSE_CODE, &status);
  const std::string text = fmt::format("{}: {}", url, *words != '\0' ? words : exchange.lib.easy_strerror(code));
  switch (code) {
    case CURLE_HTTP_RETURNED_ERROR:
      return refusal(url, status);
    case CURLE_ABORTED_BY_CALLBACK:
      return fail(ErrorCode::interrupted, url + ": asked to stop");
    case CURLE_FILE_COULDNT_READ_FILE:
      return fail(ErrorCode::not_found, text);
    case CURLE_TOO_MANY_REDIRECTS:
      return fail(ErrorCode::invalid, fmt::format("{}: more than {} redirects", url, kRedirects),
                  "Name another server.");
    case CURLE_UNSUPPORTED_PROTOCOL:
      return fail(ErrorCode::invalid, url + ": it redirects to another scheme, which is not followed",
                  "Name the address that it redirects to, where that is to be trusted.");
    case CURLE_FILESIZE_EXCEEDED:
      return fail(ErrorCode::invalid,
                  fmt::format("{} has more than {} bytes", url, exchange.transfer.what.limit_bytes));
    case CURLE_OPERATION_TIMEDOUT:
      if (Clock::now() >= exchange.transfer.until)
        return fail(ErrorCode::timeout, url + ": not done in time", kCheckAddress);
      return fail(ErrorCode::busy, fmt::format("{}: nothing came for {} s", url, exchange.transfer.what.stall.count()),
                  kCheckAddress);
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return fail(ErrorCode::busy, text, kCheckAddress);
    default:
      return fail(ErrorCode::io, text, kCheckAddress);
  }
}

/// Allows its own scheme alone, for redirects too.
void limit_protocols(const Exchange& exchange, const std::string& scheme) {
  const long bits = scheme == "https" ? CURLPROTO_HTTPS : scheme == "http" ? CURLPROTO_HTTP : CURLPROTO_FILE;
  exchange.set(CURLOPT_PROTOCOLS, bits);
  exchange.set(CURLOPT_REDIR_PROTOCOLS, bits);
}

void set_bounds(const Exchange& exchange) {
  const Transfer& transfer = exchange.transfer;
  const auto left = std::chrono::duration_cast<milliseconds>(transfer.until - Clock::now()).count();
  exchange.set(CURLOPT_TIMEOUT_MS, static_cast<long>(std::max<std::int64_t>(left, 1)));
  exchange.set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(transfer.what.stall.count()));
  exchange.set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  exchange.set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(transfer.what.stall.count()));
  exchange.set(CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(transfer.what.limit_bytes));
  exchange.set(CURLOPT_FOLLOWLOCATION, 1L);
  exchange.set(CURLOPT_MAXREDIRS, kRedirects);
  exchange.set(CURLOPT_FAILONERROR, 1L);
  exchange.set(CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
  exchange.set(CURLOPT_QUICK_EXIT, 1L);  // a name server that does not answer would delay a stop by half a minute
#endif
  exchange.set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_OPTIONAL));  // file with a mirror's password, for git too
  exchange.set(CURLOPT_NETRC_FILE, "/root/.netrc");
}

void set_callbacks(Exchange& exchange) {
  exchange.set(CURLOPT_HEADERFUNCTION, on_header);
  exchange.set(CURLOPT_HEADERDATA, &exchange);
  exchange.set(CURLOPT_WRITEFUNCTION, on_body);
  exchange.set(CURLOPT_WRITEDATA, &exchange);
  exchange.set(CURLOPT_XFERINFOFUNCTION, on_tick);
  exchange.set(CURLOPT_XFERINFODATA, &exchange);
  exchange.set(CURLOPT_NOPROGRESS, 0L);
}

}  // namespace

Result<Answer> Transfer::run(const Sink& sink) const {
  const std::string scheme = TRY(scheme_of(what.url));
  const Libcurl& lib = *TRY(libcurl());
  if (scheme == "file") TRY(check_regular(lib, what.url));
  const std::unique_ptr<CURL, decltype(lib.easy_cleanup)> curl(lib.easy_init(), lib.easy_cleanup);
  if (!curl) return fail(ErrorCode::io, "libcurl does not start");
  if (Clock::now() >= until)
    return fail(ErrorCode::timeout, without_user_info(what.url) + ": not done in time", kCheckAddress);
  Exchange exchange{lib, curl.get(), *this, sink};
  std::array<char, CURL_ERROR_SIZE> words{};
  exchange.set(CURLOPT_ERRORBUFFER, words.data());
  exchange.set(CURLOPT_URL, what.url.c_str());
  exchange.set(CURLOPT_USERAGENT, "p2pd/" P2PD_VERSION);
  limit_protocols(exchange, scheme);
  set_bounds(exchange);
  set_callbacks(exchange);
  std::unique_ptr<curl_slist, decltype(lib.slist_free_all)> headers(nullptr, lib.slist_free_all);
  if (!range.empty() && scheme != "file") exchange.set(CURLOPT_RANGE, range.c_str());
  if (!range.empty() && !validator.empty())
    headers.reset(lib.slist_append(nullptr, ("If-Range: " + validator).c_str()));
  exchange.set(CURLOPT_HTTPHEADER, headers.get());
  const CURLcode code = lib.easy_perform(curl.get());
  if (!exchange.failure) return Failure(exchange.failure.error());
  if (code != CURLE_OK) return failure_of(code, exchange, words.data());
  if (!exchange.begun) begin_body(exchange);  // an empty body
  if (!exchange.failure) return Failure(exchange.failure.error());
  return std::move(exchange.answer);
}

}  // namespace p2pd
