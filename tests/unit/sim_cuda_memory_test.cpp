// SPDX-License-Identifier: MIT
// Memory of the simulated CUDA driver that is mapped, pooled, shared with another process, and freed.
#include <sys/socket.h>

#include <thread>

#include "sim_cuda.hpp"

using namespace p2pd;
using namespace p2pd::test::sim;

TEST_CASE("simulated CUDA: managed memory is loaded from where it is preferred, and migrates") {
  constexpr Slots kWhole = {1, 0, {{0, 4096 + 512 * 1024}}};  // as long as the payload of kStrip
  struct Row {
    json faults;
    std::string mapped, prefetched;  ///< data of GPU 0 as GPU 1 sees it
    std::string touched;             ///< and as GPU 2 does, which does not map it
  };
  const json to_1 = {{"kind", "wrong-byte"}, {"from", 0}, {"to", 1}, {"at", 100}};
  const auto by = [&](const char* engine) {
    json fault = to_1;
    fault["engine"] = engine;
    return json::array({fault});
  };
  const Row rows[] = {
      {json::array(), "clean", "clean", "clean"},
      {by("copy"), "clean", "one other at 96", "one other at 96"},
      {by("load"), "one other at 96", "clean", "clean"},
      {json::array({{{"kind", "dead-direction"}, {"from", 1}, {"to", 2}}}), "clean", "clean", "many zero at 0"},
  };
  for (const Row& row : rows) {
    INFO(row.faults.dump());
    json machine = machine_of(3);
    machine["faults"] = row.faults;
    CHECK(on_gpus(machine, [&](const Cuda& cuda, std::vector<Gpu>& gpus) {
            const auto seen = [&](const Gpu& gpu, CUdeviceptr pages) {
              gpu.use();
              ok(cuda.cuMemsetD32Async(gpu.memory + kSeenAt, 0, sizeof(Seen) / 4, gpu.stream));
              gpu.launch("verify", 4, 1, pages, kWhole, kKey, kPoison, u32{kPlain}, gpu.memory + kSeenAt);
              gpu.sync();
              return word_of(gpu.read<Seen>(kSeenAt));
            };
            CUdeviceptr pages = 0;
            gpus[0].use();
            same(cuda.cuMemAllocManaged(&pages, kMiB, 0), CUDA_ERROR_INVALID_VALUE, "no flags");
            ok(cuda.cuMemAllocManaged(&pages, kMiB, CU_MEM_ATTACH_GLOBAL));
            ok(cuda.cuMemAdvise(pages, kMiB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0));
            ok(cuda.cuMemAdvise(pages, kMiB, CU_MEM_ADVISE_SET_ACCESSED_BY, 1));
            same(cuda.cuMemAdvise(pages, kMiB, CU_MEM_ADVISE_SET_ACCESSED_BY, 9), CUDA_ERROR_INVALID_DEVICE,
                 "no such GPU");
            gpus[0].launch("fill", 4, 1, pages, kMiB / 8, kKey);
            gpus[0].sync();
            same(seen(gpus[1], pages), row.mapped, "mapped");
            ok(cuda.cuMemPrefetchAsync(pages, kMiB, 1, gpus[1].stream));
            same(seen(gpus[1], pages), row.prefetched, "prefetched");
            same(seen(gpus[2], pages), row.touched, "touched");
            same(cuda.cuMemPrefetchAsync(gpus[2].memory, kMiB, 1, gpus[2].stream), CUDA_ERROR_INVALID_VALUE,
                 "memory that does not migrate");
            ok(cuda.cuMemFree(pages));
          }) == "ok");
  }
}

TEST_CASE("simulated CUDA: a migration of managed memory ends the context") {
  const test::TemporaryDirectory directory;
  json machine = with_fault({{"kind", "managed-fault"}, {"from", 0}, {"to", 1}});
  machine["kernel_log"] = directory / "kmsg";
  CHECK(on_gpus(machine, [](const Cuda& cuda, std::vector<Gpu>& gpus) {
          CUdeviceptr pages = 0;
          gpus[0].use();
          ok(cuda.cuMemAllocManaged(&pages, kMiB, CU_MEM_ATTACH_GLOBAL));
          for (const Gpu& gpu : gpus) {
            gpu.launch("fill", 4, 1, pages, kMiB / 8, kKey);
            same(cuda.cuStreamSynchronize(gpu.stream), gpu.number == 1 ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS,
                 "fill");
          }
        }) == "ok");
  std::ifstream log(directory / "kmsg");
  const std::string text{std::istreambuf_iterator<char>(log), {}};
  CHECK(text.find("(PCI:0000:02:00): 31, pid=") != std::string::npos);
  for (const char* gpu : {"01", "02", "03"})
    CHECK(text.find(fmt::format("(PCI:0000:{}:00): 154, ", gpu)) != std::string::npos);
}

TEST_CASE("simulated CUDA: mapped and pooled memory wants access of its own") {
  CHECK(on_gpus(machine_of(3), [](const Cuda& cuda, std::vector<Gpu>& gpus) {
          CUmemAllocationProp property{};
          property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
          property.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
          std::size_t unit = 0;
          ok(cuda.cuMemGetAllocationGranularity(&unit, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
          CUdeviceptr at = 0;
          ok(cuda.cuMemAddressReserve(&at, 2 * unit, 0, 0, 0));
          std::array<CUmemGenericAllocationHandle, 2> pieces{};
          for (std::size_t i = 0; i < 2; ++i) {
            ok(cuda.cuMemCreate(&pieces[i], unit, &property, 0));
            ok(cuda.cuMemMap(at + i * unit, unit, 0, pieces[i], 0));
            ok(cuda.cuMemRelease(pieces[i]));
          }
          const CUmemAccessDesc both[] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                          {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
          ok(cuda.cuMemSetAccess(at, 2 * unit, both, 2));
          gpus[0].launch("fill", 4, 1, at, 2 * unit / 8, kKey);
          gpus[0].sync();
          u64 word = 0;
          ok(cuda.cuMemcpyDtoH(&word, at + unit, 8));
          same(word, pattern(kKey, unit / 8), "second piece");

          CUmemPoolProps pooled{};
          pooled.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
          pooled.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
          CUmemoryPool pool = nullptr;
          CUdeviceptr inside = 0;
          ok(cuda.cuMemPoolCreate(&pool, &pooled));
          ok(cuda.cuMemPoolSetAccess(pool, both, 1));
          gpus[1].use();
          ok(cuda.cuMemAllocFromPoolAsync(&inside, kMiB, pool, gpus[1].stream));
          gpus[0].launch("fill", 4, 1, inside, kMiB / 8, kKey);
          gpus[0].sync();
          gpus[1].use();
          ok(cuda.cuMemFreeAsync(inside, gpus[1].stream));
          gpus[1].sync();
          ok(cuda.cuMemPoolDestroy(pool));

          gpus[2].launch("fill", 4, 1, at, u64{8}, kKey);
          same(cuda.cuStreamSynchronize(gpus[2].stream), CUDA_ERROR_ILLEGAL_ADDRESS, "a GPU without access");
          ok(cuda.cuMemUnmap(at, 2 * unit));
          ok(cuda.cuMemAddressFree(at, 2 * unit));
          std::size_t free = 0;
          std::size_t total = 0;
          gpus[1].use();
          ok(cuda.cuMemGetInfo(&free, &total));
          same(free, 40 * kMiB, "all is given back");
        }) == "ok");
}

namespace {

std::size_t entries(const char* directory) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator()));
}

/// Data passed from one process to the other; the descriptor of mapped memory is sent beside it.
struct Shared {
  CUipcMemHandle legacy;
};

/// Message with the shared data, and room for a descriptor.
struct Message : msghdr {
  explicit Message(Shared& shared) : msghdr{}, data{&shared, sizeof(shared)} {
    msg_iov = &data;
    msg_iovlen = 1;
    msg_control = control;
    msg_controllen = sizeof(control);
  }
  iovec data;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
};

void send_with(int channel, Shared& shared, int fd) {
  Message message(shared);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  need(::sendmsg(channel, &message, 0) == sizeof(shared), "sendmsg");
}

int receive_with(int channel, Shared& shared) {
  Message message(shared);
  need(::recvmsg(channel, &message, 0) == sizeof(shared), "recvmsg");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
  return fd;
}

/// The other process: GPU 0 writes into memory of GPU 1 that was passed to it.
void write_from_outside(int channel) {
  Shared shared{};
  const int fd = receive_with(channel, shared);
  const Cuda cuda;
  ok(cuda.cuInit(0));
  const Gpu gpu(cuda, 0);
  CUdeviceptr legacy = 0;
  const CUresult opened = cuda.cuIpcOpenMemHandle(&legacy, shared.legacy, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (opened == CUDA_SUCCESS) {
    gpu.launch("fill", 4, 1, legacy, kMiB / 8, kKey);
    gpu.sync();
    ok(cuda.cuIpcCloseMemHandle(legacy));
  }
  CUmemGenericAllocationHandle piece = 0;
  CUdeviceptr at = 0;
  ok(cuda.cuMemImportFromShareableHandle(&piece, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ::close(fd);
  ok(cuda.cuMemAddressReserve(&at, 2 * kMiB, 0, 0, 0));
  ok(cuda.cuMemMap(at, 2 * kMiB, 0, piece, 0));
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ok(cuda.cuMemSetAccess(at, 2 * kMiB, &access, 1));
  gpu.launch("fill", 4, 1, at, kMiB / 8, kKey + 1);
  gpu.sync();
  same(opened, CUDA_SUCCESS, "cuIpcOpenMemHandle");
}

/// GPU 1 of this process owns the memory, another process writes; returns the result of the writer or the owner.
std::string write_across(const json& machine) {
  std::array<int, 2> channel{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel.data()) == 0);
  const Child writer(machine, [&] { write_from_outside(channel[1]); });
  const Child owner(machine, [&] {
    const Cuda cuda;
    ok(cuda.cuInit(0));
    const Gpu gpu(cuda, 1);
    Shared shared{};
    ok(cuda.cuIpcGetMemHandle(&shared.legacy, gpu.memory));
    CUmemAllocationProp property{};
    property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    property.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    CUmemGenericAllocationHandle piece = 0;
    CUdeviceptr at = 0;
    int fd = -1;
    ok(cuda.cuMemCreate(&piece, 2 * kMiB, &property, 0));
    ok(cuda.cuMemExportToShareableHandle(&fd, piece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ok(cuda.cuMemAddressReserve(&at, 2 * kMiB, 0, 0, 0));
    ok(cuda.cuMemMap(at, 2 * kMiB, 0, piece, 0));
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    ok(cuda.cuMemSetAccess(at, 2 * kMiB, &access, 1));
    send_with(channel[0], shared, fd);
    ::close(fd);
    u64 word = 0;
    for (int wait = 0; wait < 1000 && word != pattern(kKey + 1, kMiB / 8 - 1); ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ok(cuda.cuMemcpyDtoH(&word, at + kMiB - 8, sizeof(word)));
    }
    same(word, pattern(kKey + 1, kMiB / 8 - 1), "through a descriptor");
    same(gpu.read<u64>(kMiB - 8), pattern(kKey, kMiB / 8 - 1), "through a legacy handle");
  });
  for (const int end : channel) ::close(end);
  const std::string of_owner = owner.finish(60'000);
  return of_owner + "; " + writer.finish(60'000);
}

}  // namespace

TEST_CASE("simulated CUDA: memory is shared with another process") {
  CHECK(write_across(machine_of(2)) == "ok; ok");
  const std::string refused = write_across(with_fault({{"kind", "ipc"}}, 2));
  CHECK(refused.find("through a legacy handle: 0 instead of") != std::string::npos);
  CHECK(refused.find("; cuIpcOpenMemHandle: 1 instead of 0") != std::string::npos);
}

TEST_CASE("simulated CUDA: what is given back leaves no thread and no descriptor behind") {
  CHECK(in_child(machine_of(2), [] {
          const Cuda cuda;
          ok(cuda.cuInit(0));
          const std::size_t threads = entries("/proc/self/task");
          const std::size_t files = entries("/proc/self/fd");
          for (int i = 0; i < 2; ++i) {
            const Gpu gpu(cuda, i);
            store(gpu, gpu);
            ok(cuda.cuMemFree(gpu.memory));
            ok(cuda.cuStreamDestroy(gpu.stream));
            ok(cuda.cuModuleUnload(gpu.module));
            ok(cuda.cuDevicePrimaryCtxRelease(i));
          }
          // a thread that was joined may still be listed for a moment
          for (int wait = 0; wait < 1000 && entries("/proc/self/task") != threads; ++wait)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          same(entries("/proc/self/task"), threads, "threads");
          same(entries("/proc/self/fd"), files, "files");
        }) == "ok");
}
