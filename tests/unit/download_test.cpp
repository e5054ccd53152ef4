// SPDX-License-Identifier: MIT
// Parts of the download that need no server: files, checksums, calls of curl. download_test.py has the servers.
#include "machine/fetch/download.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "base/descriptor.hpp"
#include "base/sha256.hpp"
#include "catch.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;
using namespace p2pd;

namespace {

constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";  // FIPS 180-4, example

struct Place {
  Place() { put("source", "abc"); }
  void put(const std::string& name, const std::string& content) const { std::ofstream(directory / name) << content; }
  std::string text(const std::string& name) const {
    std::ifstream in(directory / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Download source() const { return {.url = "file://" + (directory / "source").string(), .sha256 = {}}; }
  Result<Downloaded> fetch(const Download& what) { return fetch_file(host, what, directory / "target"); }
  test::TemporaryDirectory directory;
  ProcessRunner runner;
  Host host{Root::open("/").value(), runner};
};

constexpr char kUrl[] =
    "https://me:s3cret@host.example/a[1-2]{x}\"\\";  // characters of a list of curl, and ends of a quotation
constexpr char kShown[] = "https://host.example/a[1-2]{x}\"\\";

/// Fake curl: gives the set replies, one for each request, and records its calls.
struct FakeCurl : CommandRunner {
  struct Reply {
    std::vector<std::string> headers;
    std::string body;
    int status = 0;
    std::string errors;
  };
  Result<CommandResult> run(const Command& command) override {
    ran.push_back(command);
    const Reply reply = replies.at(ran.size() - 1);
    for (const std::string& line : reply.headers) command.on_line(line + "\r");
    const std::string before = "output = \"", text = command.input;
    const std::size_t at = text.find(before) + before.size();
    std::ofstream(text.substr(at, text.find('"', at) - at), std::ios::app) << reply.body;
    if (command.on_idle) command.on_idle();
    return CommandResult{reply.status, {}, reply.errors};
  }
  int stop_fd() const override { return -1; }
  std::vector<Reply> replies;
  std::vector<Command> ran;
};

/// A host with only this curl.
struct Faked {
  explicit Faked(std::vector<FakeCurl::Reply> replies) { curl.replies = std::move(replies); }
  Result<Downloaded> fetch() { return fetch_file(host, what, directory / "target"); }
  std::string part() const { return (directory / "target.part").string(); }
  test::TemporaryDirectory directory;
  FakeCurl curl;
  Host host{Root::open("/").value(), curl};
  Download what = {.url = kUrl, .limit_bytes = 5, .sha256 = {}};
};

}  // namespace

TEST_CASE("sha256: of bytes, and of a file of more than one piece", "[download]") {
  CHECK(sha256_of("abc") == kAbc);
  const std::string bytes(3U << 20, 'x');
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "file") << bytes;
  const Descriptor file(::open((directory / "file").c_str(), O_RDONLY | O_CLOEXEC));
  CHECK(sha256_of_file(file, "file").value() == sha256_of(bytes));
}

TEST_CASE("download: a file comes whole, with its sum", "[download]") {
  Place place;
  Download what = place.source();
  std::uint64_t told = 0;
  what.progress = [&](std::uint64_t done, std::uint64_t) { told = done; };
  const auto done = place.fetch(what);
  REQUIRE(done);
  CHECK(done->sha256 == kAbc);
  CHECK(done->bytes == 3);
  CHECK(told == 3);
  CHECK(place.text("target") == "abc");
  CHECK_FALSE(fs::exists(place.directory / "target.part"));
  CHECK(fetch_text(place.host, what).value() == "abc");
  CHECK(remote_bytes(place.host, what).value() == 3);
}

TEST_CASE("download: another sum leaves nothing, and what was there stays", "[download]") {
  Place place;
  place.put("target", "old");
  Download what = place.source();
  what.sha256 = sha256_of("abd");
  const auto done = place.fetch(what);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == ErrorCode::invalid);
  CHECK(done.error().message.find(kAbc) != std::string::npos);
  CHECK(place.text("target") == "old");
  CHECK_FALSE(fs::exists(place.directory / "target.part"));
}

TEST_CASE("download: what an earlier call left is used only where a sum tells", "[download]") {
  Place place;
  Download what = place.source();
  place.put("target.part", "abX");
  CHECK(place.fetch(what)->sha256 == kAbc);
  place.put("target.part", "abc");  // complete: the source is not needed
  what.sha256 = kAbc;
  what.url += ".gone";
  CHECK(place.fetch(what).value().bytes == 3);
}

TEST_CASE("download: bounds and bad addresses", "[download]") {
  Place place;
  Download what = place.source();
  const auto code = [&] {
    const auto text = fetch_text(place.host, what);
    const auto file = place.fetch(what);
    REQUIRE_FALSE(text);
    REQUIRE_FALSE(file);
    CHECK(text.error().code == file.error().code);
    return text.error().code;
  };
  what.limit_bytes = 2;
  CHECK(code() == ErrorCode::invalid);
  what = place.source();
  what.deadline = std::chrono::milliseconds(0);
  CHECK(code() == ErrorCode::timeout);
  what = place.source();
  what.url += ".gone";
  CHECK(code() == ErrorCode::not_found);
  for (const char* url : {"ftp://127.0.0.1/x", "gopher://x", "/etc/passwd", "", "https:/x", "file://"}) {
    INFO(url);
    what.url = url;
    CHECK_FALSE(fetch_text(place.host, what));
  }
  const std::string pipe = place.directory / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  what.url = "file://" + pipe;
  CHECK(code() == ErrorCode::invalid);
  what.url = "file://" + place.directory.path().string();
  CHECK(code() == ErrorCode::invalid);
}

TEST_CASE("download: a part that is no file, or in use, is left alone", "[download]") {
  Place place;
  place.put("other", "theirs");
  fs::create_symlink(place.directory / "other", place.directory / "target.part");
  CHECK_FALSE(place.fetch(place.source()));
  CHECK(place.text("other") == "theirs");
  fs::remove(place.directory / "target.part");
  place.put("target.part", "half");
  const Descriptor user(::open((place.directory / "target.part").c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::flock(user.get(), LOCK_EX) == 0);
  const auto done = place.fetch(place.source());
  REQUIRE_FALSE(done);
  CHECK(done.error().code == ErrorCode::busy);
  CHECK(place.text("target.part") == "half");
}

TEST_CASE("download: how curl is called", "[download]") {
  ::setenv("https_proxy", "http://me:s3cret@proxy.example:1", 1);
  Faked faked({{{"HTTP/1.1 200 OK", "ETag: \"one\"", "Content-Length: 3"}, "ab", 18, "curl: (18) cut\n"},
               {{"HTTP/1.1 206 Partial Content", "Content-Range: bytes 2-2/3"}, "c", 0, {}}});
  const auto done = faked.fetch();
  ::unsetenv("https_proxy");
  REQUIRE(done);
  CHECK(done->sha256 == kAbc);
  REQUIRE(faked.curl.ran.size() == 2);
  const Command first = faked.curl.ran[0], second = faked.curl.ran[1];
  CHECK(first.text() == "prlimit --fsize=5 curl --disable --config -");
  CHECK(second.text() == first.text());
  const std::string options = R"(url = "https://me:s3cret@host.example/a[1-2]{x}\"\\"
proto = "=https"
proto-redir = "=https"
location
max-redirs = 5
netrc-optional
netrc-file = /root/.netrc
connect-timeout = 30
speed-limit = 1
speed-time = 30
max-filesize = 5
user-agent = p2pd/)" P2PD_VERSION R"(
fail
globoff
silent
show-error
no-buffer
dump-header = -
output = ")" + faked.part() + "\"\n";
  CHECK(first.input == options);
  CHECK(second.input == options + "continue-at = 2\nheader = \"If-Range: \\\"one\\\"\"\n");
  CHECK(first.environment.at("https_proxy") == "http://me:s3cret@proxy.example:1");
  CHECK(first.outside);
  CHECK(second.deadline < first.deadline);
}

TEST_CASE("download: what curl's exit status means", "[download]") {
  struct Case {
    int status;
    std::string header, errors;
    ErrorCode code;
    std::string message, next;
  };
  const std::string url = std::string(kShown) + ": ";
  for (const Case& one : std::vector<Case>{
           {1, "HTTP/1.1 302 Found", "curl: (1) Protocol \"file\" not supported\n", ErrorCode::invalid,
            url + "it redirects to another scheme", "Name the address"},
           {1, "", "curl: (1) Received HTTP/0.9 when not allowed\n", ErrorCode::invalid, url + "Received HTTP/0.9", ""},
           {5, "", "curl: (5) Could not resolve proxy: p\n", ErrorCode::io, url + "Could not resolve proxy: p",
            "https_proxy"},
           {7, "", "curl: (7) Unsupported proxy scheme for 'x://me:s3cret@p:1'\n", ErrorCode::busy,
            url + "Unsupported proxy scheme for 'x://p:1'", "https_proxy"},
           {6, "", "curl: (6) Could not resolve host: h\n", ErrorCode::busy, url + "Could not resolve host: h",
            "Check the address"},
           {22, "HTTP/1.1 404 Not Found", "", ErrorCode::not_found, url + "the server answers 404",
            "Check the address"},
           {22, "HTTP/2 416", "", ErrorCode::state, url + "the server answers 416", ""},
           {56, "HTTP/1.1 407 Proxy Authentication Required", "curl: (56) CONNECT tunnel failed\n", ErrorCode::denied,
            url + "the server answers 407", "proxy"},
           {23, "", "curl: (23) Failure writing output\n", ErrorCode::io,
            "target.part cannot be written: ", "Make room"},
           {28, "", "curl: (28) Operation too slow\n", ErrorCode::busy, url + "nothing received for 30 s",
            "Check the address"},
           {35, "", "curl: (35) wrong version number\n", ErrorCode::io, url + "wrong version number",
            "Check the address"},
           {47, "HTTP/1.1 302 Found", "", ErrorCode::invalid, url + "more than 5 redirects", "Name another"},
           {60, "", "Warning: x\ncurl: (60) self-signed certificate\nMore details here: x\n", ErrorCode::io,
            url + "self-signed certificate", "ca-certificates"},
           {63, "HTTP/1.1 200 OK", "", ErrorCode::invalid, "has more than 5 bytes", ""},
           {128 + 25, "HTTP/1.1 200 OK", "", ErrorCode::invalid, "has more than 5 bytes", ""},
           {127, "", "prlimit: failed to execute curl: No such file or directory\n", ErrorCode::command,
            "curl is not installed", "apt-get install curl"},
           {128 + 9, "", "", ErrorCode::io, url + "curl ends with status 137", "Check the address"}}) {
    INFO(one.status << " " << one.header);
    Faked faked(std::vector<FakeCurl::Reply>(3, {{one.header}, {}, one.status, one.errors}));
    const auto text = fetch_text(faked.host, faked.what);
    REQUIRE_FALSE(text);
    CHECK(text.error().code == one.code);
    INFO(text.error().text());
    if (one.status != 23) CHECK(text.error().message.find(one.message) != std::string::npos);
    CHECK(text.error().next.find(one.next) != std::string::npos);
    CHECK(text.error().text().find("s3cret") == std::string::npos);
  }
}

TEST_CASE("download: a server that does not continue is asked for the whole", "[download]") {
  const FakeCurl::Reply cut{{"HTTP/1.1 200 OK", "ETag: \"one\""}, "xx", 18, "curl: (18) cut\n"};
  for (const FakeCurl::Reply& refused : {FakeCurl::Reply{{"HTTP/1.1 200 OK"}, {}, 33, "curl: (33) no ranges\n"},
                                         FakeCurl::Reply{{"HTTP/1.1 416 Range"}, {}, 22, {}},
                                         FakeCurl::Reply{{"HTTP/1.1 200 OK", "Content-Length: 2"}, {}, 0, {}}}) {
    Faked faked({cut, refused, {{"HTTP/1.1 200 OK", "Content-Length: 3"}, "abc", 0, {}}});
    CHECK(faked.fetch().value().sha256 == kAbc);
    CHECK(faked.curl.ran.size() == 3);
    CHECK(faked.curl.ran[1].input.find("continue-at = 2") != std::string::npos);
    CHECK(faked.curl.ran[2].input == faked.curl.ran[0].input);
  }
}

TEST_CASE("download: headers of a redirect do not count, and progress is told while bytes come", "[download]") {
  Faked faked({{{"HTTP/1.1 200 Connection established", "", "HTTP/1.1 302 Found", "ETag: \"other\"",
                 "Content-Length: 9", "", "HTTP/2 200", "content-length: 3", "last-modified: now", "etag: W/\"weak\""},
                "abc",
                0,
                {}}});
  std::vector<std::pair<std::uint64_t, std::uint64_t>> told;
  faked.what.progress = [&](std::uint64_t done, std::uint64_t total) { told.emplace_back(done, total); };
  CHECK(faked.fetch().value().bytes == 3);
  REQUIRE_FALSE(told.empty());
  CHECK(told.front() == std::pair<std::uint64_t, std::uint64_t>(3, 3));  // by on_idle, before curl has ended
}

TEST_CASE("download: an address with a line break is none", "[download]") {
  Faked faked({});
  for (const char* url : {"https://x/\noutput = /etc/passwd", "https://x/\r", "https://x/\x7f"}) {
    faked.what.url = url;
    CHECK(fetch_text(faked.host, faked.what).error().code == ErrorCode::invalid);
  }
}
