// SPDX-License-Identifier: MIT
#include "probes/bench/measure/peer_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include "probes/bench/measure/arrivals.hpp"

namespace p2pd::bench {

using namespace cuda;
using std::chrono::milliseconds;

namespace {

constexpr u64 kHalf = 16ULL << 20;     // of the second process's GPUs
constexpr milliseconds kDying{1'000};  // limit for its end: the driver destroys its contexts first
constexpr milliseconds kStep{1};

Result<void> open_one(const Driver& driver, Kernels& kernels, int ordinal, OpenGpu& gpu) {
  CUdevice device = 0;
  CU(driver, cuDeviceGet(&device, ordinal));
  int mode = 0;
  CU(driver, cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device));
  if (mode != CU_COMPUTEMODE_DEFAULT)  // a context in this process would block the first process
    return fail(ErrorCode::busy, "the compute mode allows no second process");
  return gpu.open(kernels, kHalf);
}

/// Closes everything but the channel, so that a hanging process keeps no pipe of another process open.
void keep_only(int channel) {
  constexpr int kPlace = STDERR_FILENO + 1;
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (channel != kPlace) ::dup2(channel, kPlace);
  for (int standard = 0; standard < kPlace; ++standard) ::dup2(null, standard);
  ::syscall(__NR_close_range, kPlace + 1U, UINT_MAX, 0U);
}

/// Message with room for a descriptor.
struct Envelope : msghdr {
  explicit Envelope(iovec& bytes) : msghdr{} {
    msg_iov = &bytes;
    msg_iovlen = 1;
    msg_control = control.data();
    msg_controllen = control.size();
  }
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
};

Result<Request> receive_request(int channel, Descriptor& descriptor) {
  Request request;
  descriptor = TRY(receive_message(channel, &request, sizeof request));
  return request;
}

/// Returns false if the answer was an error or the other end is closed: then the process ends.
bool reply(int channel, const Result<Answer>& result) {
  Answer answer = result ? *result : Answer{};
  if (!result) {
    const bool tried = result.error().code == ErrorCode::io;
    answer = answer_of(tried ? Answer::Kind::error : Answer::Kind::not_run, result.error().message);
  }
  return send_message(channel, &answer, sizeof answer) && answer.kind != Answer::Kind::error;
}

Result<Answer> answer_to(const Second& second, IpcMemory& memory, const Request& request,
                         const Descriptor& descriptor) {
  switch (request.task) {
    case Task::memory:
      memory.shared.emplace(request.to, Mapped::import(second.driver(), descriptor.get(), request.bytes));
      return Answer{};
    case Task::ipc_store:
    case Task::ipc_copy:
    case Task::ipc_vmm: return write_memory(second, memory, request);
    case Task::all_reduce: return reduce_in_graph(second, request);
    case Task::contend: return contend(second, request);
    default: return share_memory(second, request);
  }
}

Result<void> serve(int channel) {
  Descriptor descriptor;
  TRY(receive_request(channel, descriptor));
  const Driver driver = TRY(Driver::load());
  Second second(driver);
  TRY(second.open());
  std::optional<IpcMemory> memory(std::in_place);
  for (bool going = true; going;) {
    const Request request = TRY(receive_request(channel, descriptor));
    if (request.task == Task::close)
      memory.emplace();
    else
      going = reply(channel, answer_to(second, *memory, request, descriptor));
  }
  return {};
}

/// Main function of the second process: opens every GPU, answers until the channel closes. `parent`: the process that
/// forked it.
[[noreturn]] void serve_peer(int channel, pid_t parent) {
  constexpr int kChannel = STDERR_FILENO + 1;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  keep_only(channel);
  const Result<void> served = serve(kChannel);
  // An error before serving is the answer to any request.
  Descriptor descriptor;
  if (!served && receive_request(kChannel, descriptor)) reply(kChannel, fail(ErrorCode::io, served.error().message));
  ::_exit(0);
}

}  // namespace

Answer answer_of(Answer::Kind kind, std::string_view text) {
  Answer answer;
  answer.kind = kind;
  text.copy(answer.text.data(), answer.text.size() - 1);
  return answer;
}

Result<void> send_message(int socket, const void* message, std::size_t size, int descriptor) {
  iovec bytes{const_cast<void*>(message), size};
  Envelope envelope(bytes);
  if (descriptor < 0) {
    envelope.msg_controllen = 0;
  } else {
    cmsghdr* const part = CMSG_FIRSTHDR(&envelope);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
  }
  if (::sendmsg(socket, &envelope, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return {};
  if (errno == EPIPE || errno == ECONNRESET) return fail(ErrorCode::not_found, "the other end is closed");
  return fail_errno("sendmsg");
}

Result<Descriptor> receive_message(int socket, void* message, std::size_t size) {
  iovec bytes{message, size};
  Envelope envelope(bytes);
  ssize_t got = 0;
  while ((got = ::recvmsg(socket, &envelope, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) continue;
  if (got < 0 && errno == EAGAIN) return fail(ErrorCode::timeout, fmt::format("no answer in {} s", kAnswerSeconds));
  if (got < 0 && errno != ECONNRESET) return fail_errno("recvmsg");
  if (got <= 0) return fail(ErrorCode::not_found, "the other end is closed");
  int number = -1;
  const cmsghdr* const part = CMSG_FIRSTHDR(&envelope);
  if (part != nullptr && part->cmsg_type == SCM_RIGHTS) std::memcpy(&number, CMSG_DATA(part), sizeof number);
  Descriptor descriptor(number);
  if (static_cast<std::size_t>(got) != size || (envelope.msg_flags & MSG_TRUNC) != 0)
    return fail(ErrorCode::invalid, "a message of another size");
  return descriptor;
}

Result<void> Second::open() {
  int count = 0;
  CU(driver_, cuDeviceGetCount(&count));
  for (int i = 0; i < count; ++i) gpus_.push_back({OpenGpu(driver_, i), ""});
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([this, i, &gpu = gpus_[static_cast<std::size_t>(i)]] {
      const Result<void> opened = open_one(driver_, kernels_, i, gpu.gpu);
      if (!opened) gpu.problem = opened.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int from = count - 1; from >= 0; --from)
    for (int to = count - 1; to >= 0; --to)
      if (from != to && usable(from, to)) refused_[{from, to}] = enable_peer(gpu(from), gpu(to));
  return {};
}

std::string Second::enable_peer(const OpenGpu& from, const OpenGpu& to) const {
  int can = 0;
  CUresult result = driver_->cuDeviceCanAccessPeer(&can, from.device(), to.device());
  if (result == CUDA_SUCCESS && can == 0) result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (result == CUDA_SUCCESS) result = driver_->cuCtxSetCurrent(from.context());
  if (result == CUDA_SUCCESS) result = driver_->cuCtxEnablePeerAccess(to.context(), 0);
  return result == CUDA_SUCCESS ? "" : driver_.name(result);
}

Result<void> Second::usable(int from, int to) const {
  for (const int number : {from, to}) {
    if (number < 0 || static_cast<std::size_t>(number) >= gpus_.size())
      return fail(ErrorCode::busy, "the second process does not see the GPU");
    const std::string& problem = gpus_[static_cast<std::size_t>(number)].problem;
    if (!problem.empty()) return fail(ErrorCode::busy, "the second process: " + problem);
  }
  return {};
}

Result<void> Second::reaches(int from, int to) const {
  const std::string& refused = refused_.at({from, to});
  if (!refused.empty()) return fail(ErrorCode::busy, "the second process was refused peer access: " + refused);
  return {};
}

// ---- requesting process ---------------------------------------------------------------------------------------------

Result<PeerProcess> PeerProcess::start() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return fail_errno("socketpair");
  Descriptor ours(ends[0]);
  const Descriptor theirs(ends[1]);
  constexpr timeval kPatience{.tv_sec = kAnswerSeconds, .tv_usec = 0};
  if (::setsockopt(ours.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience) != 0)
    return fail_errno("SO_RCVTIMEO");
  const pid_t parent = ::getpid();
  const pid_t process = ::fork();
  if (process < 0) return fail_errno("fork");
  if (process == 0) serve_peer(theirs.get(), parent);
  return PeerProcess(process, std::move(ours));
}

PeerProcess::PeerProcess(PeerProcess&& other) noexcept
    : process_(std::exchange(other.process_, -1)), channel_(std::move(other.channel_)), gone_(std::move(other.gone_)) {}

std::string PeerProcess::end() {
  if (process_ < 0) return {};
  channel_.reset();
  ::kill(process_, SIGKILL);
  int status = 0;
  pid_t reaped = ::waitpid(process_, &status, WNOHANG);
  for (milliseconds waited{0}; reaped == 0 && waited < kDying; waited += kStep) {  // a process in D state does not die
    std::this_thread::sleep_for(kStep);
    reaped = ::waitpid(process_, &status, WNOHANG);
  }
  const bool known = reaped == process_;
  process_ = -1;
  if (!known) return {};
  if (WIFSIGNALED(status))
    return fmt::format("died of signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

void PeerProcess::tell(Task task) {
  const Request request{.task = task};
  (void)send_message(channel_.get(), &request, sizeof request);
}

Result<Answer> PeerProcess::ask(const Request& request, int descriptor) {
  if (!gone_.empty()) return fail(ErrorCode::busy, gone_);
  Answer answer;
  Result<void> done = send_message(channel_.get(), &request, sizeof request, descriptor);
  if (done)
    if (auto received = receive_message(channel_.get(), &answer, sizeof answer); !received)
      done = Failure(std::move(received).error());
  answer.text.back() = '\0';
  std::string why = done ? answer.text.data() : done.error().message;
  if (done && answer.kind == Answer::Kind::not_run) return fail(ErrorCode::busy, std::move(why));
  if (done && answer.kind != Answer::Kind::error) return answer;
  const std::string last = end();
  if (!done && done.error().code == ErrorCode::not_found && !last.empty()) why = last;  // it ended by itself
  gone_ = "the second process: " + why;
  return fail(done ? ErrorCode::io : done.error().code, gone_);
}

Result<Answer> PeerProcess::ask_about(Bench& bench, const Pair& pair, Request request) {
  const bool before = gone_.empty();
  request.from = pair.from;
  request.to = pair.to;
  Result<Answer> answer = ask(request);
  if (before && !gone_.empty()) gone_ += fmt::format(" (over GPU {} -> GPU {})", pair.from, pair.to);
  bench.phases.go_on();
  return answer;
}

Result<Answer> PeerProcess::try_pair(Bench& bench, const Pair& pair, const char* test, const Request& request) {
  TRY(can_send(pair));
  if (!gone_.empty()) return fail(ErrorCode::busy, gone_);
  bench.under_way = UnderWay{fmt::format("after-{}", test), pair.from, pair.to};
  Result<Answer> answer = ask_about(bench, pair, request);
  if (answer || answer.error().code == ErrorCode::busy) return answer;
  const WrongKind kind = answer.error().code == ErrorCode::timeout ? WrongKind::hung : WrongKind::faulted;
  bench.found.wrong.push_back(wrong_of(test, pair.from, pair.to, request.bytes, kind, answer.error().message));
  return answer;
}

Result<void> still_working(const Bench& bench) {
  for (const OpenGpu& gpu : bench.gpus) TRY(gpu.fill(gpu.scratch(), OpenGpu::kScratch, 0));
  return bench.finish();
}

}  // namespace p2pd::bench
