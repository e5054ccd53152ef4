// SPDX-License-Identifier: MIT
#include "probes/bench/measure/channel.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string>

namespace p2pd::bench {
namespace {

constexpr std::size_t kMostDescriptors = 16;
constexpr std::size_t kControlBytes = CMSG_SPACE(kMostDescriptors * sizeof(int));

Result<void> wait(int socket, std::optional<std::chrono::milliseconds> patience) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + patience.value_or(std::chrono::milliseconds(0));
  for (;;) {
    pollfd waiting{socket, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    const int ready = ::poll(&waiting, 1, !patience ? -1 : static_cast<int>(std::max<long long>(left, 0)));
    if (ready > 0) return {};
    if (ready == 0) return fail(ErrorCode::timeout, "no answer in " + std::to_string(patience->count() / 1000) + " s");
    if (errno != EINTR) return fail_errno("poll");
  }
}

std::vector<Descriptor> descriptors_of(msghdr& header) {
  std::vector<Descriptor> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::vector<int> numbers(count);
    std::memcpy(numbers.data(), CMSG_DATA(part), count * sizeof(int));
    for (const int number : numbers) descriptors.emplace_back(number);
  }
  return descriptors;
}

}  // namespace

Result<void> send_message(int socket, const nlohmann::json& body, const std::vector<int>& descriptors) {
  std::string text = body.dump();
  iovec bytes{text.data(), text.size()};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, kControlBytes> control{};
  const std::size_t size = descriptors.size() * sizeof(int);
  if (descriptors.size() > kMostDescriptors) return fail(ErrorCode::invalid, "more file descriptors than fit");
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(size);
    cmsghdr* const part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(part), descriptors.data(), size);
  }
  if (::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EPIPE || errno == ECONNRESET) return fail(ErrorCode::not_found, "the other end is closed");
    return fail_errno("sendmsg");
  }
  return {};
}

Result<Message> receive_message(int socket, std::optional<std::chrono::milliseconds> patience) {
  TRY(wait(socket, patience));
  const ssize_t size = ::recv(socket, nullptr, 0, MSG_PEEK | MSG_TRUNC);
  if (size < 0 && errno != ECONNRESET) return fail_errno("recv");
  if (size <= 0) return fail(ErrorCode::not_found, "the other end is closed");
  std::string text(static_cast<std::size_t>(size), '\0');
  iovec bytes{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, kControlBytes> control{};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  if (::recvmsg(socket, &header, MSG_CMSG_CLOEXEC) != size) return fail_errno("recvmsg");
  Message message{parse_json(text), descriptors_of(header)};
  if (message.body.is_discarded()) return fail(ErrorCode::invalid, "a message that is not JSON");
  return message;
}

}  // namespace p2pd::bench
