// SPDX-License-Identifier: MIT
// fetch file|text|bytes URL [FILE] [KEY=VALUE]...: machine/fetch/download.hpp as a program, so that a test can run it
// against any server. Keys: limit (bytes), sha256, deadline (ms), stall (s). Prints JSON; exits 0 if it was fetched,
// else 1.
#include <signal.h>
#include <sys/signalfd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "machine/fetch/download.hpp"

namespace {

using nlohmann::json;

/// SIGTERM becomes readable.
int stop_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

p2pd::Download wanted(const std::vector<std::string>& words, json& progress) {
  p2pd::Download what;
  what.url = words.at(1);
  what.progress = [&](std::uint64_t done, std::uint64_t total) { progress = {done, total}; };
  for (const std::string& word : words) {
    const std::string value = word.substr(word.find('=') + 1);
    if (word.starts_with("limit=")) what.limit_bytes = std::stoull(value);
    if (word.starts_with("sha256=")) what.sha256 = value;
    if (word.starts_with("deadline=")) what.deadline = std::chrono::milliseconds(std::stoll(value));
    if (word.starts_with("stall=")) what.stall = std::chrono::seconds(std::stoll(value));
  }
  return what;
}

p2pd::Result<json> fetched(const std::vector<std::string>& words) {
  json progress;
  const p2pd::Download what = wanted(words, progress);
  p2pd::ProcessRunner runner("/", stop_signal());
  p2pd::Host host(TRY(p2pd::Root::open("/")), runner);
  if (words[0] == "text") {
    const std::string text = TRY(p2pd::fetch_text(host, what));
    return json{{"text", text}};
  }
  if (words[0] == "bytes") {
    const auto bytes = TRY(p2pd::remote_bytes(host, what));
    return json{{"bytes", bytes}};
  }
  const p2pd::Downloaded done = TRY(p2pd::fetch_file(host, what, words.at(2)));
  return json{{"bytes", done.bytes}, {"sha256", done.sha256}, {"progress", progress}};
}

}  // namespace

int main(int argc, char** argv) {
  const auto result = fetched(std::vector<std::string>(argv + 1, argv + argc));
  const json said = result ? *result
                           : json{{"error", result.error().message},
                                  {"code", p2pd::to_string(result.error().code)},
                                  {"next", result.error().next}};
  std::printf("%s\n", said.dump().c_str());
  return result ? 0 : 1;
}
