// SPDX-License-Identifier: MIT
#include "tests/sim/libcuda/traffic.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace p2pd::sim {

using namespace bench::cuda;

namespace {

constexpr auto kMisalignedAddress = static_cast<CUresult>(716);

/// The Xid of a fault of this process.
std::string mmu_fault() { return "31, pid=" + std::to_string(::getpid()) + ", name=p2p-bench, Ch 00000008, MMU Fault"; }

}  // namespace

// ---- windows -------------------------------------------------------------------------------------------------------

u64 Window::left() const { return ranges_.back().end() - reinterpret_cast<u64>(begin_); }

/// Place of the bytes at `at`, and how many of them lie there together; null: nowhere.
char* Window::place(const Effects& effects, u64 at, u64& bytes) const {
  const Range& range = ranges_.front();
  char* base = range.arena->region.begin();
  u64 limit = range.arena->region.bytes();
  if (effects.misroute != nullptr) {
    if (!stray_) return nullptr;
    base = reinterpret_cast<char*>(stray_->begin);
    limit = stray_->bytes;
  }
  u64 offset = offset_ + at;
  if (effects.alias != nullptr) {
    offset %= effects.alias->at;
    bytes = std::min(bytes, effects.alias->at - offset);
  }
  if (offset >= limit) return nullptr;
  bytes = std::min(bytes, limit - offset);
  const bool mapped = !range.arena->holes || operation_->simulation_.space.find(reinterpret_cast<u64>(base) + offset);
  return mapped ? base + offset : nullptr;
}

void Window::read_disturbed(u64 at, char* to, u64 bytes) const {
  for (u64 done = 0, part = 0; done < bytes; done += part) {
    part = bytes - done;
    const char* from = load_.lost ? nullptr : place(load_, at + done, part);
    if (from != nullptr)
      std::memcpy(to + done, from, part);
    else
      std::memset(to + done, 0xff, part);
  }
  Arena& arena = *ranges_.front().arena;
  if (load_.stale != nullptr) {  // repeats the data of an earlier transfer
    char* const seen = arena.shadow(load_.stale, operation_->device()).data.begin() + offset_ + at;
    std::memcpy(load_.missed ? to : seen, load_.missed ? seen : to, bytes);
  }
  if (mirror_ != nullptr) {
    const Shadow& shadow = arena.shadow(mirror_, operation_->device());
    for (u64 i = 0; i < bytes; ++i)
      if (shadow.known.begin()[offset_ + at + i] != 0) to[i] = shadow.data.begin()[offset_ + at + i];
  }
  const Fault* wrong = load_.wrong_byte;
  if (wrong != nullptr && wrong->at - at < bytes) to[wrong->at - at] = static_cast<char>(~to[wrong->at - at]);
}

void Window::write_disturbed(u64 at, const char* data, u64 bytes) {
  if (store_.lost || store_.missed) return;
  const Fault* wrong = store_.wrong_byte;
  if (wrong == nullptr || wrong->at - at >= bytes) return put(at, data, bytes);
  const u64 before = wrong->at - at;
  const char flipped = static_cast<char>(~data[before]);
  put(at, data, before);
  put(wrong->at, &flipped, 1);
  put(wrong->at + 1, data + before + 1, bytes - before - 1);
}

void Window::put(u64 at, const char* data, u64 bytes) {
  if (store_.mirror != nullptr) {
    Shadow& shadow = ranges_.front().arena->shadow(store_.mirror, operation_->device());
    std::memcpy(shadow.data.begin() + offset_ + at, data, bytes);
    std::memset(shadow.known.begin() + offset_ + at, 1, bytes);
    return;
  }
  for (u64 done = 0, part = 0; done < bytes; done += part) {
    part = bytes - done;
    char* const to = place(store_, at + done, part);
    if (to == nullptr) continue;
    if (store_.late != nullptr)
      operation_->late_.push_back({to, std::string(data + done, part)});
    else
      deliver(to, data + done, part);
  }
}

// ---- operations ----------------------------------------------------------------------------------------------------

bool may_access(const Context& context, const Range& range) {
  if (range.device == kHost || range.managed != nullptr) return true;
  if (range.grant != nullptr) return (*range.grant >> context.device & 1U) != 0;
  return range.device == context.device || (context.peers >> range.device & 1U) != 0;
}

Window Operation::locate(u64 address, u64 bytes) {
  Window window;
  window.operation_ = this;
  window.ranges_ = simulation_.space.cover(address, bytes);
  if (window.ranges_.empty()) throw Trap{CUDA_ERROR_ILLEGAL_ADDRESS};
  window.begin_ = reinterpret_cast<char*>(address);
  window.offset_ = address - window.ranges_.front().arena->region.address();
  return window;
}

Window Operation::open_plain(u64 address, u64 bytes, u64 alignment, Use use) {
  if (address % alignment != 0) throw Trap{kMisalignedAddress};
  Window window = locate(address, bytes);
  const auto denied = [&](const Range& range) { return !may_access(context_, range); };
  if (std::ranges::any_of(window.ranges_, denied)) throw Trap{CUDA_ERROR_ILLEGAL_ADDRESS};
  if (use == Use::store)
    simulation_.late.arrive(address, bytes);
  else
    simulation_.late.look(address, bytes, enqueued_);
  return window;
}

Window Operation::open(u64 address, u64 bytes, Use use) {
  Window window = open_plain(address, bytes, sizeof(u64), use);
  Range& range = window.ranges_.front();
  if (range.managed != nullptr) range.device = touch(range);
  const int owner = window.device();
  if (owner == kHost || owner == device()) return window;
  const bool compressible = range.memory != nullptr && range.memory->compressible;
  const Effects load = use == Use::store ? Effects{} : cross(owner, device(), Engine::load, compressible);
  const Effects store = use == Use::load ? Effects{} : cross(device(), owner, Engine::store, compressible);
  disturb(window, load, store);
  if (use != Use::store) window.mirror_ = simulation_.machine.fault(Wrong::private_mirror, device(), owner);
  window.disturbed_ |= window.mirror_ != nullptr;
  return window;
}

Window Operation::source(u64 address, u64 bytes) {
  Window window = locate(address, bytes);
  simulation_.late.look(address, bytes, enqueued_);
  return window;
}

Window Operation::target(u64 address, u64 bytes, int from, bool direct) {
  Window window = locate(address, bytes);
  simulation_.late.arrive(address, bytes);
  const int to = window.device();
  if (direct && from != kHost && to != kHost && from != to) disturb(window, {}, cross(from, to, Engine::copy));
  return window;
}

void Operation::prefetch(u64 address, int to) {
  const Range range = locate(address, 1).ranges_.front();
  const std::lock_guard lock(range.managed->mutex);
  migrate(range, to);
}

int Operation::touch(const Range& range) {
  Managed& pages = *range.managed;
  const std::lock_guard lock(pages.mutex);
  const bool mapped = pages.place != kHost && pages.place == pages.preferred &&
                      (pages.accessed_by >> device() & 1U) != 0 &&
                      simulation_.machine.can_access(device(), pages.place);
  if (!mapped) migrate(range, device());
  return pages.place;
}

void Operation::migrate(const Range& range, int to) {
  const int from = range.managed->place.exchange(to);
  Machine& machine = simulation_.machine;
  if (from == to || from == kHost || to == kHost || !machine.can_access(to, from)) return;  // over no link between GPUs
  if (machine.fault(Wrong::managed_fault, from, to) != nullptr) {
    log_xid(device(), mmu_fault());
    for (int gpu = 0; gpu < machine.count(); ++gpu)
      log_xid(gpu, "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)");
    throw Trap{CUDA_ERROR_ILLEGAL_ADDRESS};
  }
  Window window = locate(range.begin, range.bytes);
  const std::string data(window.begin(), range.bytes);
  std::memset(window.begin_, 0, range.bytes);  // pages that are new there
  disturb(window, {}, cross(from, to, Engine::copy));
  window.write(0, data.data(), data.size());
}

void Operation::disturb(Window& window, const Effects& load, const Effects& store) {
  window.load_ = load;
  window.store_ = store;
  window.disturbed_ = load.any() || store.any();
  for (const Fault* fault : {load.misroute, store.misroute})
    if (fault != nullptr) window.stray_ = simulation_.space.largest(fault->other);
}

bool Operation::atomics(Wrong wrong, const Window& window) const {
  const int owner = window.device();
  return owner != kHost && owner != device() && simulation_.machine.fault(wrong, device(), owner) != nullptr;
}

Effects Operation::cross(int from, int to, Engine engine, bool compressible) {
  Effects effects;
  for (Fault& fault : simulation_.machine.faults) {
    if (!fault.covers(from, to, engine) || (fault.graph && !replayed) || (fault.compressible && !compressible))
      continue;
    const u64 number = fault.transfers++;
    if (number < fault.after) continue;
    switch (fault.wrong) {
      case Wrong::wrong_byte: effects.wrong_byte = &fault; break;
      case Wrong::dead_direction:
      case Wrong::lost_stores: effects.lost = true; break;
      case Wrong::private_mirror: effects.mirror = &fault; break;
      case Wrong::alias: effects.alias = &fault; break;
      case Wrong::misroute: effects.misroute = &fault; break;
      case Wrong::stale:
        effects.stale = &fault;
        effects.missed = (number - fault.after) % 2 == 1;
        break;
      case Wrong::late: effects.late = &fault; break;
      case Wrong::hang: simulation_.stopping.wait(false); throw Trap{CUDA_ERROR_UNKNOWN};
      case Wrong::xid:
        if (number == fault.after) log_xid(device(), mmu_fault());
        break;
      case Wrong::gone:
        log_xid(to, "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.");
        throw Trap{CUDA_ERROR_UNKNOWN};
      default: break;  // not of single transfers
    }
  }
  return effects;
}

/// The kernel's own /dev/kmsg would mark it as from a program, which is no evidence: writes nothing there.
void Operation::log_xid(int gpu, const std::string& what) const {
  const Machine& machine = simulation_.machine;
  if (machine.kernel_log.empty() || std::filesystem::is_character_file(machine.kernel_log)) return;
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
  const std::string line = "4,1234," + std::to_string(now) +
                           ",-;NVRM: Xid (PCI:" + machine.device(gpu).address.substr(0, 10) + "): " + what + "\n";
  const int file = ::open(machine.kernel_log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  const auto written = ::write(file, line.data(), line.size());
  static_cast<void>(written);  // a full log gets no record, as on a real machine
  ::close(file);
}

Cost price(const Machine& machine, int from, int to, u64 bytes, Engine engine) {
  Cost cost;
  cost.bytes = static_cast<double>(bytes);
  if (from == to) {
    cost.gb_s = kLocalGbS;
    return cost;
  }
  const bool host = from == kHost || to == kHost;
  const Link& link = host ? machine.link : machine.link_of(from, to);
  const double haste = host ? 1 : machine.haste(from, to, engine);
  cost.from = from;
  cost.to = to;
  cost.delay_ns = link.latency_ns;
  cost.gb_s = haste * (engine == Engine::copy ? link.gb_s : engine == Engine::load ? link.load_gb_s : link.store_gb_s);
  cost.both_gb_s = haste * link.both_gb_s;
  if (cost.gb_s == 0) cost.gb_s = kLocalGbS;  // a machine of one device may have no link
  return cost;
}

}  // namespace p2pd::sim
