// SPDX-License-Identifier: MIT
// Parts of the second process that need no GPU: the verdict on contended atomics, and the channel.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <numeric>

#include "catch.hpp"
#include "probes/bench/measure/peer_serve.hpp"

using namespace p2pd;
using namespace p2pd::bench;

namespace {

constexpr u64 kThreads = 2ULL * kContendBlocks * kContendThreads;
constexpr u64 kTickets = kThreads * kContendEach;
constexpr u64 kSum = kThreads * kContendEach * (kContendEach + 1) / 2;

std::vector<u64> tickets() {
  std::vector<u64> all(kTickets);
  std::iota(all.rbegin(), all.rend(), 0);
  return all;
}

struct Ends {
  Ends() {
    std::array<int, 2> numbers{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, numbers.data()) == 0);
    one = Descriptor(numbers[0]);
    other = Descriptor(numbers[1]);
  }
  Descriptor one;
  Descriptor other;
};

}  // namespace

TEST_CASE("atomics: exact means the sum and every ticket once") {
  CHECK(contention_problem(kSum, kTickets, tickets()).empty());
  CHECK(contention_problem(kSum - 1, kTickets, tickets()) == "the sum is 17407, not 17408");
  CHECK(contention_problem(kSum, kTickets - 1, tickets()) == "2048 tickets were drawn and 2047 counted");
  auto twice = tickets();
  twice[7] = twice[8];
  CHECK(contention_problem(kSum, kTickets, twice) == "ticket 2039 was given out twice");
  auto beyond = tickets();
  beyond[0] = kTickets;
  CHECK(contention_problem(kSum, kTickets, beyond) == "ticket 2047 was not given out");
}

TEST_CASE("channel: JSON and descriptors arrive together") {
  const Ends ends;
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const Descriptor read_end(pipe[0]);
  Descriptor write_end(pipe[1]);
  const nlohmann::json body = {{"key", ~0ULL}, {"text", std::string(50'000, 'x')}};
  REQUIRE(send_message(ends.one.get(), body, {write_end.get()}));
  write_end.reset();
  auto message = receive_message(ends.other.get(), std::nullopt);
  REQUIRE(message);
  CHECK(message->body == body);
  REQUIRE(message->descriptors.size() == 1);
  CHECK(::write(message->descriptors[0].get(), "!", 1) == 1);
  char byte = 0;
  CHECK(::read(read_end.get(), &byte, 1) == 1);
  CHECK(byte == '!');
}

TEST_CASE("channel: silence and a closed end are different errors") {
  Ends ends;
  const auto silent = receive_message(ends.one.get(), std::chrono::milliseconds(10));
  REQUIRE(!silent);
  CHECK(silent.error().code == ErrorCode::timeout);
  ends.other.reset();
  const auto closed = receive_message(ends.one.get(), std::nullopt);
  REQUIRE(!closed);
  CHECK(closed.error().code == ErrorCode::not_found);
  const auto unsent = send_message(ends.one.get(), {{"do", "nothing"}});
  REQUIRE(!unsent);
  CHECK(unsent.error().code == ErrorCode::not_found);
}
