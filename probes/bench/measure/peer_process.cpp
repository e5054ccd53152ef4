// SPDX-License-Identifier: MIT
#include "probes/bench/measure/peer_process.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>
#include <thread>

#include "probes/bench/device/mapped.hpp"
#include "probes/bench/measure/arrivals.hpp"
#include "probes/bench/measure/peer_serve.hpp"

namespace p2pd::bench {

using namespace cuda;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kPatience{10'000};  // limit for an answer
constexpr milliseconds kDying{1'000};      // limit for its end: the driver destroys its contexts first
constexpr milliseconds kStep{1};
constexpr u64 kMostStrip = 1ULL << 20;  // bytes, for each pair and test
constexpr std::array<const char*, 3> kIpcTests = {"ipc-store", "ipc-copy", "ipc-vmm"};
constexpr char kNoAtomics[] = "not supported (NS): the driver offers none over this path";

struct Shared {
  Mapped memory;
  Descriptor descriptor;
};

/// Memory of a GPU for writes by the other process, or the reason why there is none.
struct Offer {
  Result<CUipcMemHandle> legacy;
  Result<Shared> shared;
};

Result<CUipcMemHandle> legacy_handle(const Bench& bench, const OpenGpu& gpu) {
  TRY(gpu.use());
  CUipcMemHandle handle{};
  CU(bench.driver, cuIpcGetMemHandle(&handle, gpu.arena()));
  return handle;
}

Result<Shared> shared_memory(const Bench& bench, const OpenGpu& gpu, u64 bytes) {
  if (!device_has(bench.driver, gpu.device(), CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
      !device_has(bench.driver, gpu.device(), CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
    return fail(ErrorCode::invalid, "the GPU has no memory that goes by file descriptor");
  TRY(gpu.use());
  Mapped memory = TRY(Mapped::create(bench.driver, memory_of(gpu.device()), bytes, Mapped::Kind::shareable));
  TRY(memory.grant(gpu.device()));
  Descriptor descriptor = TRY(memory.share());
  return Shared{std::move(memory), std::move(descriptor)};
}

/// Request to the other process, while it is built.
class IpcRequest {
 public:
  explicit IpcRequest(Bench& bench) : bench_(&bench), arrivals_(bench) {
    const auto gpus = static_cast<u64>(bench.count());
    strip_ = kMostStrip;
    for (const OpenGpu& gpu : bench.gpus) strip_ = std::min(strip_, gpu.half() / (2 * gpus) & ~4095ULL);
    request_ = {{"do", "ipc"}, {"strip_bytes", strip_}, {"writes", nlohmann::json::array()}};
  }

  Result<void> make() {
    for (const OpenGpu& gpu : bench_->gpus) offer(gpu);
    for (Pair& pair : bench_->found.pairs) {
      for (std::size_t test = 0; test < kIpcTests.size(); ++test) TRY(add(pair, test));
    }
    return bench_->finish();  // the poison is there before any write
  }

  const nlohmann::json& json() const { return request_; }
  std::vector<int> descriptors() const {
    std::vector<int> numbers;
    for (const Offer& offer : offers_) {
      if (offer.shared) numbers.push_back(offer.shared->descriptor.get());
    }
    return numbers;
  }

  /// Records the writes that the other process could not make, and verifies the others.
  Result<void> finish(const nlohmann::json& answer) {
    for (const auto& [number, why] : answer.at("not_run").get<std::vector<std::pair<std::size_t, std::string>>>())
      skip(number, why);
    if (answer.contains("faulted"))
      end_at(answer.at("faulted").get<std::size_t>(), answer.at("fault").get<std::string>());
    return arrivals_.verify();
  }
  void give_up(const std::string& why) {
    for (std::size_t i = 0; i < request_["writes"].size(); ++i) skip(i, why);
  }

 private:
  void offer(const OpenGpu& gpu) {
    const std::size_t descriptors_before = descriptors().size();
    offers_.push_back(
        {legacy_handle(*bench_, gpu), shared_memory(*bench_, gpu, static_cast<u64>(bench_->count()) * strip_)});
    const Offer& offer = offers_.back();
    request_["devices"].push_back(gpu.device());
    nlohmann::json bytes = nullptr;
    if (offer.legacy) bytes = std::vector<unsigned char>(offer.legacy->reserved, std::end(offer.legacy->reserved));
    request_["legacy"].push_back(bytes);
    request_["shared"].push_back(offer.shared ? static_cast<int>(descriptors_before) : -1);
    request_["shared_bytes"].push_back(offer.shared ? offer.shared->memory.bytes() : 0);
  }

  Result<void> add(Pair& pair, std::size_t test) {
    const Offer& offer = offers_[static_cast<std::size_t>(pair.to)];
    const bool vmm = kIpcTests[test] == std::string_view("ipc-vmm");
    std::string why = no_access(pair);
    if (why.empty() && vmm && !offer.shared) why = offer.shared.error().message;
    if (why.empty() && !vmm && !offer.legacy) why = offer.legacy.error().message;
    if (!why.empty()) {
      pair.not_run[kIpcTests[test]] = why;
      return {};
    }
    const OpenGpu& owner = bench_->gpu(pair.to);
    const u64 place = static_cast<u64>(pair.from) + (vmm ? 0 : test * static_cast<u64>(bench_->count()));
    const CUdeviceptr base = vmm ? offer.shared->memory.address() : owner.arena();
    const CUdeviceptr strip = (vmm ? base : owner.in()) + place * strip_;
    const Transfer transfer = TRY(arrivals_.expect(kIpcTests[test], pair.from, pair.to, strip, strip_));
    request_["writes"].push_back(
        {{"test", kIpcTests[test]}, {"from", pair.from}, {"to", pair.to}, {"at", strip - base}, {"key", transfer.key}});
    return {};
  }

  /// Records that the other process faulted at this write.
  void end_at(std::size_t number, const std::string& why) {
    const nlohmann::json& write = request_["writes"].at(number);
    Wrong wrong;
    write["test"].get_to(wrong.test);
    write["from"].get_to(wrong.from);
    write["to"].get_to(wrong.to);
    wrong.bytes = strip_;
    wrong.kind = WrongKind::faulted;
    wrong.detail = "the second process: " + why;
    bench_->found.wrong.push_back(wrong);
    for (std::size_t i = number; i < request_["writes"].size(); ++i) skip(i, "the second process faulted before");
  }

  void skip(std::size_t number, const std::string& why) {
    const nlohmann::json& write = request_["writes"].at(number);
    bench_->pair(write["from"].get<int>(), write["to"].get<int>()).not_run[write["test"].get<std::string>()] = why;
  }

  Bench* bench_;
  Arrivals arrivals_;
  u64 strip_ = 0;
  std::vector<Offer> offers_;
  nlohmann::json request_;
};

}  // namespace

Result<PeerProcess> PeerProcess::start() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return fail_errno("socketpair");
  Descriptor ours(ends[0]);
  const Descriptor theirs(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t process = ::fork();
  if (process < 0) return fail_errno("fork");
  if (process == 0) serve_peer(theirs.get(), parent);
  return PeerProcess(process, std::move(ours));
}

// Ends the process: while it is still dying, it would count as another user of the GPUs.
PeerProcess::~PeerProcess() { end(); }

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

Result<nlohmann::json> PeerProcess::ask(const nlohmann::json& request, const std::vector<int>& descriptors) {
  Result<void> sent = send_message(channel_.get(), request, descriptors);
  Result<Message> answer = sent ? receive_message(channel_.get(), kPatience) : Failure(std::move(sent).error());
  if (answer && !answer->body.contains("error")) return std::move(answer->body);
  std::string why = answer ? answer->body["error"].get<std::string>() : answer.error().message;
  const bool by_itself = !answer && answer.error().code == ErrorCode::not_found;
  const std::string last = end();
  if (by_itself && !last.empty()) why = last;
  gone_ = "the second process: " + why;
  return fail(answer ? ErrorCode::io : answer.error().code, gone_);
}

Result<nlohmann::json> PeerProcess::try_pair(Bench& bench, const Pair& pair, const char* test, u64 bytes,
                                             const nlohmann::json& request) {
  bench.under_way = UnderWay{fmt::format("after-{}", test), pair.from, pair.to};
  auto answer = ask(request);
  bench.phases.go_on();
  if (answer) return answer;
  Wrong wrong;
  wrong.test = test;
  wrong.from = pair.from;
  wrong.to = pair.to;
  wrong.bytes = bytes;
  wrong.kind = answer.error().code == ErrorCode::timeout ? WrongKind::hung : WrongKind::faulted;
  wrong.detail = answer.error().message;
  bench.found.wrong.push_back(wrong);
  gone_ += fmt::format(" (over GPU {} -> GPU {})", pair.from, pair.to);
  return answer;
}

Result<void> still_working(const Bench& bench) {
  for (const OpenGpu& gpu : bench.gpus)
    TRY(gpu.launch(Kernel::fill, gpu.wide(), gpu.stream(), gpu.scratch(), OpenGpu::kScratch / 8, u64{0}));
  return bench.finish();
}

void PeerProcess::go() {
  if (const Result<void> sent = send_message(channel_.get(), {{"do", "open"}}); !sent)
    gone_ = "the second process: " + sent.error().message;
}

Result<void> PeerProcess::prove_ipc(Bench& bench) {
  IpcRequest request(bench);
  TRY(request.make());
  const auto answer =
      process_ < 0 ? Result<nlohmann::json>(fail(ErrorCode::io, gone_)) : ask(request.json(), request.descriptors());
  if (answer) return request.finish(*answer);
  request.give_up(answer.error().message);
  return {};
}

Result<void> PeerProcess::contend(Bench& bench) {
  for (Pair& pair : bench.found.pairs) {
    std::string why = no_access(pair);
    if (why.empty() && !pair.native_atomics) why = kNoAtomics;
    if (why.empty()) why = gone_;
    if (why.empty()) {
      const auto answer =
          ask({{"do", "contend"}, {"from", bench.gpu(pair.from).device()}, {"to", bench.gpu(pair.to).device()}});
      const std::string problem = answer ? answer->value("problem", "") : answer.error().message;
      if (answer)
        why = answer->value("not_run", "");
      else
        gone_ += fmt::format(" (over GPU {} -> GPU {})", pair.from, pair.to);
      bench.phases.go_on();
      if (why.empty()) bench.found.atomics.push_back({pair.from, pair.to, problem.empty(), problem});
    }
    if (!why.empty()) pair.not_run["atomics"] = why;
  }
  return {};
}

}  // namespace p2pd::bench
