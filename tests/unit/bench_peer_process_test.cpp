// SPDX-License-Identifier: MIT
// Parts of the second process that need no GPU: the verdict on contended atomics, and the channel.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <numeric>

#include "catch.hpp"
#include "probes/bench/measure/peer_process.hpp"

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

TEST_CASE("channel: a message and its descriptor arrive together") {
  const Ends ends;
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const Descriptor read_end(pipe[0]);
  Descriptor write_end(pipe[1]);
  const Request sent{.task = Task::memory, .to = 3, .bytes = ~0ULL};
  Request received;
  REQUIRE(send_message(ends.one.get(), &sent, sizeof sent, write_end.get()));
  write_end.reset();
  const auto descriptor = receive_message(ends.other.get(), &received, sizeof received);
  REQUIRE(descriptor);
  CHECK((received.task == sent.task && received.to == 3 && received.bytes == ~0ULL));
  CHECK(::write(descriptor->get(), "!", 1) == 1);
  char byte = 0;
  CHECK(::read(read_end.get(), &byte, 1) == 1);
  CHECK(byte == '!');
  REQUIRE(send_message(ends.one.get(), &sent, sizeof sent));
  const auto none = receive_message(ends.other.get(), &received, sizeof received);
  REQUIRE(none);
  CHECK_FALSE(*none);
}

TEST_CASE("channel: a message of another size is refused") {
  const Ends ends;
  const Answer answer = answer_of(Answer::Kind::not_run, std::string(5000, 'x'));
  CHECK(std::string(answer.text.data()) == std::string(answer.text.size() - 1, 'x'));
  const Request request;
  Request short_one;
  Answer long_one;
  REQUIRE(send_message(ends.one.get(), &answer, sizeof answer));
  CHECK(receive_message(ends.other.get(), &short_one, sizeof short_one).error().code == ErrorCode::invalid);
  REQUIRE(send_message(ends.one.get(), &request, sizeof request));
  CHECK(receive_message(ends.other.get(), &long_one, sizeof long_one).error().code == ErrorCode::invalid);
}

TEST_CASE("channel: silence and a closed end are different errors") {
  Ends ends;
  Request request;
  constexpr timeval kPatience{.tv_sec = 0, .tv_usec = 10'000};
  REQUIRE(::setsockopt(ends.one.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience) == 0);
  const auto silent = receive_message(ends.one.get(), &request, sizeof request);
  REQUIRE(!silent);
  CHECK(silent.error().code == ErrorCode::timeout);
  ends.other.reset();
  const auto closed = receive_message(ends.one.get(), &request, sizeof request);
  REQUIRE(!closed);
  CHECK(closed.error().code == ErrorCode::not_found);
  const auto unsent = send_message(ends.one.get(), &request, sizeof request);
  REQUIRE(!unsent);
  CHECK(unsent.error().code == ErrorCode::not_found);
}
