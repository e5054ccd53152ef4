// SPDX-License-Identifier: MIT
#include "tests/sim/libcuda/memory.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <utility>

namespace p2pd::sim {

namespace {

constexpr char kMemfdName[] = "p2pd-sim-gpu";

/// The device in "/memfd:p2pd-sim-gpu3 (deleted)".
std::optional<int> device_of(int fd) {
  std::array<char, 64> link{};
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (::readlink(path.c_str(), link.data(), link.size() - 1) < 0) return std::nullopt;
  int device = 0;
  const std::string format = std::string("/memfd:") + kMemfdName + "%d";
  if (std::sscanf(link.data(), format.c_str(), &device) != 1) return std::nullopt;
  return device;
}

}  // namespace

Memory::Memory(int fd, int device, u64 bytes, std::atomic<u64>* used)
    : fd_(fd), device_(device), bytes_(bytes), used_(used) {}

std::shared_ptr<Memory> Memory::create(int device, u64 bytes, std::atomic<u64>* used) {
  const int fd = ::memfd_create((kMemfdName + std::to_string(device)).c_str(), MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    ::close(fd);
    return nullptr;
  }
  *used += bytes;
  return std::shared_ptr<Memory>(new Memory(fd, device, bytes, used));
}

std::shared_ptr<Memory> Memory::adopt(int fd) {
  struct stat info {};
  const auto device = device_of(fd);
  if (!device || ::fstat(fd, &info) != 0) {
    ::close(fd);
    return nullptr;
  }
  return std::shared_ptr<Memory>(new Memory(fd, *device, static_cast<u64>(info.st_size), nullptr));
}

Memory::~Memory() {
  ::close(fd_);
  if (used_ != nullptr) *used_ -= bytes_;
}

Region::Region(u64 bytes, bool writable) : bytes_(bytes) {
  // aligned to VMM's granularity, which the system does not promise: allocates more, and frees the excess
  const int access = writable ? PROT_READ | PROT_WRITE : PROT_NONE;
  const u64 whole = bytes + kGranularity;
  void* at = ::mmap(nullptr, whole, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return;
  const u64 address = reinterpret_cast<u64>(at);
  const u64 before = round_up(address, kGranularity) - address;
  begin_ = static_cast<char*>(at) + before;
  const u64 kept = round_up(bytes, kPage);
  if (before > 0) ::munmap(at, before);
  if (whole - before > kept) ::munmap(begin_ + kept, whole - before - kept);
}

Region::~Region() {
  if (valid()) ::munmap(begin_, bytes_);
}

Shadow& Arena::shadow(const Fault* fault, int reader) {
  const std::lock_guard lock(mutex_);
  return shadows_.try_emplace({fault, reader}, region.bytes()).first->second;
}

bool AddressSpace::map(const std::shared_ptr<Arena>& arena, u64 offset, u64 bytes,
                       const std::shared_ptr<Memory>& memory, u64 memory_offset, const Grant& grant,
                       std::shared_ptr<Managed> managed) {
  char* const at = arena->region.begin() + offset;
  const int kind = (memory != nullptr ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_FIXED;
  const int fd = memory != nullptr ? memory->fd() : -1;
  if (::mmap(at, bytes, PROT_READ | PROT_WRITE, kind, fd, static_cast<off_t>(memory_offset)) == MAP_FAILED)
    return false;
  const int device = memory != nullptr ? memory->device() : kHost;
  const std::lock_guard lock(mutex_);
  ranges_[reinterpret_cast<u64>(at)] = {reinterpret_cast<u64>(at), bytes, device, arena, memory, grant,
                                        std::move(managed)};
  return true;
}

std::optional<Range> AddressSpace::unmap(u64 begin) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(begin);
  if (found == ranges_.end()) return std::nullopt;
  Range range = std::move(found->second);
  ranges_.erase(found);
  // an operation that holds the arena still may touch it; a reservation lives on and must lose its memory now
  if (range.arena->holes)
    ::mmap(range.arena->region.begin() + (begin - range.arena->region.address()), range.bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return range;
}

std::optional<Range> AddressSpace::find(u64 address) const {
  const std::lock_guard lock(mutex_);
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return std::nullopt;
  Range range = std::prev(next)->second;
  if (address >= range.end()) return std::nullopt;
  if (range.managed != nullptr) range.device = range.managed->place;
  return range;
}

std::vector<Range> AddressSpace::cover(u64 begin, u64 bytes) const {
  std::vector<Range> found;
  if (begin + bytes < begin) return found;
  for (u64 at = begin; found.empty() || at < begin + bytes;) {
    auto range = find(at);
    const bool fits = range && (found.empty() || (range->device == found[0].device && range->arena == found[0].arena));
    if (!fits) return {};
    at = range->end();
    found.push_back(*std::move(range));
  }
  return found;
}

std::optional<Range> AddressSpace::largest(int device) const {
  const std::lock_guard lock(mutex_);
  std::optional<Range> found;
  for (const auto& [begin, range] : ranges_)
    if (range.device == device && (!found || range.bytes > found->bytes)) found = range;
  return found;
}

}  // namespace p2pd::sim
