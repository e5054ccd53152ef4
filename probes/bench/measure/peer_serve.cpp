// SPDX-License-Identifier: MIT
#include "probes/bench/measure/peer_serve.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <thread>

namespace p2pd::bench {

using namespace cuda;

namespace {

constexpr u64 kHalf = 16ULL << 20;

Result<void> open_one(const Driver& driver, Kernels& kernels, int ordinal, SecondGpu& gpu) {
  CU(driver, cuDeviceGet(&gpu.device, ordinal));
  int mode = 0;
  CU(driver, cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, gpu.device));
  if (mode != CU_COMPUTEMODE_DEFAULT)  // a context in this process would block the first process
    return fail(ErrorCode::busy, "the compute mode allows no second process");
  return gpu.gpu.open(kernels, kHalf);
}

/// Closes everything but the channel, so that a hanging process keeps no pipe of another process open.
void keep_only(int channel) {
  constexpr int kPlace = STDERR_FILENO + 1;
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (channel != kPlace) ::dup2(channel, kPlace);
  for (int standard = 0; standard < kPlace; ++standard) ::dup2(null, standard);
  ::syscall(SYS_close_range, kPlace + 1U, UINT_MAX, 0U);
}

/// Returns false if the answer was an error or the other end is closed: then the process ends.
bool reply(int channel, const Result<nlohmann::json>& answer) {
  const nlohmann::json body = answer ? *answer : nlohmann::json{{"error", answer.error().message}};
  return send_message(channel, body).has_value() && answer;
}

/// Answer to a request about two GPUs.
Result<nlohmann::json> answer_to(const Second& second, const nlohmann::json& request, CUdevice from, CUdevice to) {
  if (request.at("do") == "share")
    return share_memory(second, request.at("test").get<std::string>(), from, to, request.at("key").get<u64>());
  if (request.at("do") == "contend") return contend(second, from, to);
  return reduce_in_graph(second, from, to, request.at("bytes").get<u64>(), request.at("replays").get<u64>(),
                         request.at("keys").get<std::array<u64, 2>>());
}

Result<void> serve(int channel) {
  TRY(receive_message(channel, std::nullopt));
  const Driver driver = TRY(Driver::load());
  Second second(driver);
  TRY(second.open());
  for (bool going = true; going;) {
    const Message request = TRY(receive_message(channel, std::nullopt));
    if (request.body.at("do") == "ipc") {
      IpcWrites writes(second);
      going = reply(channel, writes.run(request));  // closed after the answer, while the other process verifies
      continue;
    }
    const auto from = request.body.at("from").get<CUdevice>();
    const auto to = request.body.at("to").get<CUdevice>();
    going = reply(channel, answer_to(second, request.body, from, to));
  }
  return {};
}

}  // namespace

void serve_peer(int channel, pid_t parent) {
  constexpr int kChannel = STDERR_FILENO + 1;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  keep_only(channel);
  const Result<void> served = serve(kChannel);
  // An error before serving is the answer to any request.
  if (!served && receive_message(kChannel, std::nullopt)) reply(kChannel, Failure(served.error()));
  ::_exit(0);
}

nlohmann::json json_of(const Seen& seen) {
  const u32 kept = std::min(seen.samples, kSamples);
  return {{"wrong", seen.wrong},
          {"right", seen.right},
          {"at", std::vector<u64>(seen.at, seen.at + kept)},
          {"value", std::vector<u64>(seen.value, seen.value + kept)}};
}

Seen seen_of(const nlohmann::json& json) {
  const auto at = json.at("at").get<std::vector<u64>>();
  const auto value = json.at("value").get<std::vector<u64>>();
  Seen seen{};
  json.at("wrong").get_to(seen.wrong);
  json.at("right").get_to(seen.right);
  seen.samples = static_cast<u32>(std::min({at.size(), value.size(), std::size_t{kSamples}}));
  std::copy_n(at.begin(), seen.samples, seen.at);
  std::copy_n(value.begin(), seen.samples, seen.value);
  return seen;
}

Result<void> Second::open() {
  int count = 0;
  CU(driver_, cuDeviceGetCount(&count));
  for (int i = 0; i < count; ++i) gpus_.push_back({OpenGpu(driver_, i), -1, ""});
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([this, i, &gpu = gpus_[static_cast<std::size_t>(i)]] {
      const Result<void> opened = open_one(driver_, kernels_, i, gpu);
      if (!opened) gpu.problem = opened.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t from = gpus_.size(); from-- > 0;) {
    for (std::size_t to = gpus_.size(); to-- > 0;) {
      if (from != to && gpus_[from].problem.empty() && gpus_[to].problem.empty()) enable_peer(gpus_[from], gpus_[to]);
    }
  }
  return {};
}

void Second::enable_peer(const SecondGpu& from, const SecondGpu& to) {
  int can = 0;
  CUresult result = driver_->cuDeviceCanAccessPeer(&can, from.device, to.device);
  if (result == CUDA_SUCCESS && can == 0) result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (result == CUDA_SUCCESS) result = driver_->cuCtxSetCurrent(from.gpu.context());
  if (result == CUDA_SUCCESS) result = driver_->cuCtxEnablePeerAccess(to.gpu.context(), 0);
  if (result != CUDA_SUCCESS) refused_[{from.device, to.device}] = driver_.name(result);
}

const SecondGpu* Second::find(CUdevice device) const {
  const auto found = std::ranges::find(gpus_, device, &SecondGpu::device);
  return found == gpus_.end() ? nullptr : &*found;
}

std::string Second::problem(CUdevice from, CUdevice to) const {
  for (const CUdevice device : {from, to}) {
    const SecondGpu* const gpu = find(device);
    if (gpu == nullptr) return "the second process does not see the GPU";
    if (!gpu->problem.empty()) return "the second process: " + gpu->problem;
  }
  return {};
}

std::string Second::refused(CUdevice from, CUdevice to) const {
  const auto found = refused_.find({from, to});
  return found == refused_.end() ? "" : "the second process was refused peer access: " + found->second;
}

}  // namespace p2pd::bench
