// SPDX-License-Identifier: MIT
// IPC tests in the second process: memory of the first, opened by handle or descriptor for each GPU that
// writes into it. Each write is waited for, so that a fault is attributed to its write.
#include <algorithm>

#include "probes/bench/measure/arrivals.hpp"
#include "probes/bench/measure/peer_serve.hpp"

namespace p2pd::bench {

using namespace cuda;

IpcWrites::~IpcWrites() {
  for (const auto& [pair, pointer] : opened_) {
    const SecondGpu* const from = second_->find(devices_[pair.first]);
    if (from->gpu.use()) second_->driver()->cuIpcCloseMemHandle(pointer);
  }
}

void IpcWrites::take(const Message& request) {
  request.body.at("devices").get_to(devices_);
  request.body.at("strip_bytes").get_to(strip_bytes_);
  theirs_.resize(devices_.size());
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (const nlohmann::json& handle = request.body.at("legacy")[i]; !handle.is_null()) {
      const auto bytes = handle.get<std::vector<unsigned char>>();
      theirs_[i].legacy.emplace();
      std::copy_n(bytes.begin(), sizeof(CUipcMemHandle), theirs_[i].legacy->reserved);
    }
    if (const int number = request.body.at("shared")[i].get<int>(); number >= 0) {
      const int descriptor = request.descriptors.at(static_cast<std::size_t>(number)).get();
      const auto bytes = request.body.at("shared_bytes")[i].get<u64>();
      theirs_[i].shared.emplace(Mapped::import(second_->driver(), descriptor, bytes));
    }
  }
}

Result<CUdeviceptr> IpcWrites::target(const OpenGpu& from, const Write& write) {
  const Theirs& theirs = theirs_[write.to];
  TRY(from.use());
  if (write.test == "ipc-vmm") {
    if (!*theirs.shared) return Failure(theirs.shared->error());
    TRY((*theirs.shared)->grant(from.device()));
    return (*theirs.shared)->address();
  }
  const auto pair = std::pair(write.from, write.to);
  if (!opened_.contains(pair)) {  // a context opens a handle once
    CUdeviceptr pointer = 0;
    CU(second_->driver(), cuIpcOpenMemHandle(&pointer, *theirs.legacy, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    opened_[pair] = pointer;
  }
  return opened_[pair];
}

Result<CUdeviceptr> IpcWrites::target_of(const Write& write) {
  const CUdevice device = devices_.at(write.from);
  if (const std::string why = second_->problem(device, devices_.at(write.to)); !why.empty())
    return fail(ErrorCode::busy, why);
  const OpenGpu& from = second_->find(device)->gpu;
  if (from.half() < devices_.size() * strip_bytes_)
    return fail(ErrorCode::busy, "too little free memory for a second process");
  return target(from, write);
}

Result<void> IpcWrites::enqueue(const OpenGpu& from, CUdeviceptr strip, const Write& write) const {
  const Slots slots = one_slot(strip_bytes_);
  if (write.test != "ipc-copy") return store_strip(from, strip, slots, write.key);
  const CUdeviceptr source = from.out() + write.to * strip_bytes_;
  TRY(from.launch(Kernel::fill, from.wide(), from.side(), source, strip_bytes_ / 8, write.key));
  const Slot slot = slots.slot[0];
  CU(second_->driver(), cuMemcpyAsync(strip + slot.begin, source + slot.begin, slot.bytes, from.side()));
  return {};
}

Result<nlohmann::json> IpcWrites::run(const Message& request) {
  take(request);
  nlohmann::json not_run = nlohmann::json::array();
  std::size_t number = 0;
  for (const nlohmann::json& item : request.body.at("writes")) {
    const Write write{item.at("test").get<std::string>(), item.at("from").get<std::size_t>(),
                      item.at("to").get<std::size_t>(), item.at("at").get<u64>(), item.at("key").get<u64>()};
    const Result<CUdeviceptr> base = target_of(write);
    if (base) {
      const OpenGpu& from = second_->find(devices_[write.from])->gpu;
      Result<void> done = enqueue(from, *base + write.at, write);
      if (done) done = from.finish();
      if (!done && second_->driver().faulted())
        return nlohmann::json{{"not_run", not_run}, {"faulted", number}, {"fault", done.error().message}};
      TRY(std::move(done));
    } else {
      not_run.push_back({number, base.error().message});
    }
    ++number;
  }
  return nlohmann::json{{"not_run", not_run}};
}

}  // namespace p2pd::bench
