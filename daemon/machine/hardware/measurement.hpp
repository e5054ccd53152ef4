// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/result.hpp"
#include "machine/hardware/pcie_path.hpp"

namespace p2pd::bench {

/// Repeated timings of one thing: the median and its spread. Rates are GB/s (10^9 bytes), times are nanoseconds.
struct Figure {
  double median = 0;
  double low = 0;
  double high = 0;
  int repetitions = 0;
};
/// Median of at least one value.
double median(std::vector<double> values);
/// The same with its spread.
Figure figure(std::vector<double> values);
/// Median that can be used in a ratio; nothing if there is none.
std::optional<double> median_of(const std::optional<Figure>& figure);

/// GPU as the driver shows it.
struct Gpu {
  int index = 0;        ///< index in the matrices: by PCI address
  std::string uuid;     ///< "GPU-..."
  std::string address;  ///< "0000:01:00.0"
  std::string name;     ///< "NVIDIA GeForce RTX 4090"
  std::string group;    ///< GPUs of two groups are not expected to be peers; empty: all are
  int sm_major = 0;     ///< compute capability
  int sm_minor = 0;
  int multiprocessors = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;   ///< before the benchmark allocated any
  std::uint64_t arena_bytes = 0;  ///< allocated by the benchmark, without contexts
  bool in_use = false;            ///< other processes compute on it: its speed is not judged
  double nvlink_gb_s = 0;         ///< raw rate of its active NVLinks to a switch, one way; 0 without NVSwitch
};

/// Kind of a wrong word, as far as its value shows.
enum class WrongKind {
  lost,                 ///< the old content: the write never arrived
  dropped,              ///< zero
  unsupported_request,  ///< all ones, the answer of a PCIe root to an address without a device
  alias,                ///< the same transfer's data of another offset
  misroute,             ///< data of another pair
  stale,                ///< data of an earlier transfer of this pair
  mirror,               ///< the writer reads back its data, the owner does not see it
  late,                 ///< right, but only some 10 ms later
  guard,                ///< written beyond the end
  garbled,              ///< none of these
  faulted,              ///< not a word: the driver reported an error, such as an illegal address, which ended the run
  hung,                 ///< not a word: the GPUs did not answer in time
};

/// Wrong data in one direction of one pair, or an end of the run in place of data.
struct Wrong {
  std::string test;          ///< "copy-push", "store", ...: a key of Pair::verified_bytes
  int from = -1;             ///< source GPU; -1: unknown, for `faulted` and `hung` only
  int to = -1;               ///< destination GPU
  std::uint64_t bytes = 0;   ///< length of the transfer; total if several are wrong
  std::uint64_t offset = 0;  ///< offset of a wrong byte, from the start of the transfer
  std::uint64_t words = 0;   ///< wrong 8-byte words
  WrongKind kind = WrongKind::garbled;
  std::string detail;  ///< origin of the value: "holds what GPU 2 sent to GPU 3"; may be empty
  std::string seen;    ///< "0x..."
  std::string wanted;
};

/// One ordered pair. Data moves `from` -> `to`, whichever GPU executes: a store or a push runs on `from`, a load or a
/// pull on `to`.
struct Pair {
  int from = -1;  ///< -1: not read
  int to = -1;
  bool access = false;          ///< the driver reports that `from` may access the memory of `to`
  bool native_atomics = false;  ///< and that its atomics work there
  std::string refused;          ///< reason why enabling peer access failed; empty: it did not
  double nvlink_gb_s = 0;       ///< raw rate of the NVLinks between the two, one way; 0: PCIe
  std::map<std::string, std::uint64_t> verified_bytes;  ///< by test: number of correct bytes
  std::map<std::string, std::string> not_run;           ///< by test: reason
  std::optional<Figure> copy_gb_s;                      ///< copy engine, one way
  std::optional<Figure> copy_both_gb_s;  ///< copy engine, this direction and the other at once: the sum of both
  std::optional<Figure> store_gb_s;      ///< SM stores by `from`
  std::optional<Figure> load_gb_s;       ///< SM loads by `to`
  std::optional<Figure> staged_gb_s;     ///< copy through host memory, P2P not enabled
  std::optional<Figure> busy_gb_s;       ///< copy engine while every pair copies
  std::optional<Figure> chase_ns;        ///< one dependent load: `from` reads the memory of `to`
  std::optional<Figure> ping_pong_ns;    ///< one way of a flag: half of a round trip
  std::optional<Figure> staged_ns;       ///< a 4-byte copy, P2P not enabled
};

/// Figure of a pair, for those who show it.
struct Quantity {
  std::string_view id;
  std::optional<Figure> Pair::*figure;
  double divisor;     ///< 1: GB/s, more is better; 1000: ns, shown in us, less is better
  int ways;           ///< multiple of the limit of the path; 0: no limit
  const char* title;  ///< in a report; empty: not shown there
  std::optional<Figure> Pair::*without_p2p = nullptr;  ///< figure that replaces it where there is no P2P

  bool is_time() const { return divisor != 1; }
};
inline constexpr Quantity kQuantities[] = {
    {"copy", &Pair::copy_gb_s, 1, 1, "Copy, one way", &Pair::staged_gb_s},
    {"latency", &Pair::chase_ns, 1000, 0, "Latency of a load", &Pair::staged_ns},
    {"both", &Pair::copy_both_gb_s, 1, 2, "Copies both ways at once, sum"},
    {"busy", &Pair::busy_gb_s, 1, 1, "Copy while every pair copies"},
    {"store", &Pair::store_gb_s, 1, 1, "Stores by a kernel"},
    {"load", &Pair::load_gb_s, 1, 1, "Loads by a kernel"},
    {"ping_pong", &Pair::ping_pong_ns, 1000, 0, "Ping-pong, one way"},
    {"staged", &Pair::staged_gb_s, 1, 0, "Copy through host memory, without P2P"},
    {"staged_latency", &Pair::staged_ns, 1000, 0, ""},
};
/// One of them, "copy".
const Quantity& quantity(std::string_view id);

/// Contended atomics of one pair, run in a process that they may kill.
struct Atomics {
  int from = 0;
  int to = 0;           ///< owner of the memory
  bool exact = false;   ///< sums and tickets were right
  std::string problem;  ///< error; empty: exact
};

/// One size of the one-shot all-reduce of two GPUs in a CUDA graph, as `to` saw it, which loads from `from`.
struct AllReduce {
  int from = 0;
  int to = 0;
  std::uint64_t bytes = 0;    ///< of each GPU's buffer
  std::uint64_t replays = 0;  ///< completed
  double time_ns = 0;         ///< mean of one, from the first flag to the last; 0: fewer than two replays
  std::uint64_t wrong = 0;    ///< wrong elements of 8 bytes, of all replays
};

/// Host memory of one NUMA node, allocated as NCCL does for its path through shared memory.
struct HostMemory {
  int node = 0;
  std::uint64_t wanted_bytes = 0;    ///< more than 4 GiB, if much more than that is available
  std::uint64_t bytes = 0;           ///< allocated
  std::string problem;               ///< reason why not all; empty: all
  std::uint64_t verified_bytes = 0;  ///< stored by one GPU, verified by another
  std::uint64_t wrong = 0;           ///< wrong words of 8 bytes
};

/// One size of one collective.
struct Collective {
  std::string name;         ///< "all_reduce", "alltoall"
  bool p2p = true;          ///< P2P allowed, or NCCL_P2P_DISABLE=1
  std::uint64_t bytes = 0;  ///< per rank
  std::optional<Figure> bus_gb_s = {};
  std::optional<Figure> time_ns = {};
  std::uint64_t wrong = 0;  ///< wrong elements
};

/// Version and results of NCCL.
struct Collectives {
  std::string not_run = {};  ///< "no libnccl found", "hangs with P2P: ..."; of one run or both; empty: both ran
  std::string version = {};  ///< "2.28.3"
  std::string library = {};  ///< path
  std::map<std::string, int> transports = {};     ///< "P2P/CUMEM", "SHM/direct", "NET/Socket": channels, P2P allowed
  std::map<std::string, std::string> pairs = {};  ///< by connected pair, "GPU 0 -> GPU 1": transport, P2P allowed
  std::string p2p_level = {};                     ///< NCCL_P2P_LEVEL of the run; empty: NCCL's own choice
  std::vector<std::string> notes = {};            ///< other libraries, and settings that the run overrode
  std::string summary = {};                       ///< one line, see nccl_line(); empty before the report is written
  std::vector<Collective> results = {};
};

/// Part of the run, by the clock of the process.
struct Phase {
  std::string name;
  double start_ms = 0;
  double length_ms = 0;
};

/// Readings of one GPU while it works; absent if not available.
struct SoakGpu {
  double link_gt_s = 0;  ///< speed of its PCIe link per lane; 0: unknown
  std::uint64_t link_width = 0;
  std::optional<std::uint64_t> temperature_c;
  std::optional<std::uint64_t> replays;   ///< PCIe replays since the driver was loaded
  std::optional<std::uint64_t> throttle;  ///< reasons for lower clocks, a bit each, as NVML numbers them
};

/// State of a soak at one moment; sums are since its start.
struct SoakSample {
  double seconds = 0;
  std::uint64_t rounds = 0;
  std::uint64_t checked_bytes = 0;  ///< that were right
  std::uint64_t wrong = 0;          ///< wrong words; an end counts none
  double slowest_gb_s = 0;          ///< copy engine, of all ordered pairs
  std::map<std::string, std::uint64_t>
      aer;                    ///< "0000:01:00.0 correctable": errors since boot, by function and severity
  std::vector<SoakGpu> gpus;  ///< by index
};

/// Run that repeats its transfers until its time is over, or something is wrong.
struct Soak {
  double minutes = 0;               ///< requested
  std::string ended;                ///< "complete", "wrong" (also: a GPU faulted), "hung", "interrupted"
  std::vector<SoakSample> samples;  ///< at most about 1000, in order
};

/// Results of one run, before any judgement. GPUs are numbered by PCI address.
struct Measurement {
  std::string driver;              ///< CUDA driver API version, "13.0"
  std::string mode;                ///< "default", "quick", "full", "soak"
  std::string seed;                ///< the run's nonce, hexadecimal
  std::string fault;               ///< seeded fault of a test; such a run proves nothing
  std::vector<std::string> tests;  ///< the only ones that were to run; such a run proves nothing; empty: all
  std::vector<Gpu> gpus;
  /// Every ordered pair, by from, then to; of those between two groups the ones that the driver calls peers.
  std::vector<Pair> pairs;
  std::vector<Wrong> wrong;
  std::vector<Atomics> atomics;
  std::vector<AllReduce> all_reduces;
  std::vector<HostMemory> host_memory;    ///< of a full run, by NUMA node of the GPUs
  std::optional<Figure> all_to_all_gb_s;  ///< sum over every pair, all copying at once
  std::map<std::string, std::uint64_t>
      swept_bytes;                             ///< --sweep: by GPU's UUID, memory with verified distinct addresses
  std::map<std::string, std::string> not_run;  ///< by test: reason, for the whole run
  std::optional<Collectives> collectives;
  std::optional<Soak> soak;
  std::vector<Phase> phases;
  double wall_ms = 0;
  int expendable_process = 0;         ///< its Xids are expected: all-reduce, atomics or managed memory may kill it
  std::uint64_t host_peak_bytes = 0;  ///< peak resident set of the measuring process
};

/// Rate of the NVLink between the GPUs of a pair, direct or through NVSwitch; 0: none.
inline double nvlink_gb_s(const Measurement& run, const Pair& pair) {
  const auto switched = [&](int number) { return run.gpus[static_cast<std::size_t>(number)].nvlink_gb_s; };
  return pair.nvlink_gb_s > 0 ? pair.nvlink_gb_s : std::min(switched(pair.from), switched(pair.to));
}

/// False for GPUs of two groups.
inline bool may_be_peers(const Measurement& run, int one, int other) {
  const auto gpu = [&](int number) -> const Gpu& { return run.gpus[static_cast<std::size_t>(number)]; };
  return gpu(one).group == gpu(other).group;
}

/// True for a pair that was measured, or is going to be.
bool is_measured(const Measurement& run, int from, int to);

/// Pairs of an earlier run of which `run` has both GPUs, by UUID: a driver may renumber them. They have the numbers of
/// `run`.
std::vector<Pair> pairs_as_in(const Measurement& run, const Measurement& earlier);

/// Numbers of the GPUs of each group, the largest group first, then in the order of their first GPUs.
std::vector<std::vector<int>> groups_of(const Measurement& run);

/// Key of Measurement::not_run: no test could run here, for a reason that a person can change.
constexpr char kEverything[] = "everything";

/// Key of Pair::verified_bytes: pages of managed memory on `from` are loaded by `to`, then migrate there. On some
/// drivers the migration takes all GPUs down until a reboot.
constexpr char kManaged[] = "managed";

/// Key of Pair::verified_bytes: compressible memory of a peer is loaded, then stored to.
constexpr char kCompressible[] = "compressible";

/// Key of Pair::verified_bytes: bytes that `to` loaded from `from` and added in the all-reduce, see AllReduce.
constexpr char kGraphReduce[] = "graph-all-reduce";

/// Test of HostMemory.
constexpr char kHostMemory[] = "host-memory";

std::string_view to_string(WrongKind kind);
/// True for an end of the run, or of the second process, in place of data: faulted or hung.
inline bool is_end(WrongKind kind) { return kind == WrongKind::faulted || kind == WrongKind::hung; }

/// Fitness of all pairs of GPUs for one use.
struct Fitness {
  enum class Kind { not_tested, fit, unfit };
  std::string use;  ///< a P2pUse
  Kind kind = Kind::not_tested;
  std::string why;  ///< reason why it is not fit, or was not tested, or a reservation; may be empty
};
std::string_view to_string(Fitness::Kind kind);

enum class Grade { pass, not_judged, warn, fail };  ///< ascending
std::string_view to_string(Grade grade);

/// One sentence about one pair or about the run, with its numbers.
struct Remark {
  Grade grade = Grade::pass;
  int from = -1;  ///< -1: the whole run
  int to = -1;
  std::string test;           ///< "bytes", "copy", "both", "chase", "asymmetry", "access", ...
  std::string text;           ///< "GPU 0 -> GPU 1: 12.1 GB/s is 42 % of 28.8 GB/s (Gen4 x16 ...); fails below 50 %"
  std::string transfer = {};  ///< for "bytes": the exact test, "store"; empty: not one alone
};

/// Verdict on a run.
struct Judgement {
  bool proven = false;                     ///< every ordered pair is fit for every wanted use
  bool limited = false;                    ///< not proven, but every pair is fit for some use
  std::vector<Fitness> fit;                ///< for every use, wanted or not
  std::vector<std::vector<Grade>> grades;  ///< [from][to]: the worst remark of the ordered pair
  std::vector<Remark> remarks;             ///< worst first; no passes
  std::string summary;                     ///< one line: the result for a person

  /// True if something is wrong, or was not tested although it had to be.
  bool fails() const { return !remarks.empty() && remarks.front().grade == Grade::fail; }
  /// Uses of that fitness.
  std::vector<std::string> uses(Fitness::Kind kind) const;
};

/// Report of p2p-bench, schema "p2pd.bench/1", as far as other programs read it.
struct BenchReport {
  Measurement measurement;
  std::vector<std::vector<Path>> paths;
  Judgement judgement;
  std::vector<std::string> kernel_log;    ///< faults of these GPUs since the run began
  std::vector<std::string> gain;          ///< lines about the gain over an earlier report
  std::vector<std::string> side_by_side;  ///< lines with the figures of other benchmarks
  std::vector<std::string> advice;        ///< settings, each with its evidence

  /// It proved P2P, if only for some uses.
  bool proves() const { return judgement.proven || judgement.limited; }
};

nlohmann::json json_of(const Measurement& measurement);
nlohmann::json json_of(const Collectives& collectives);
nlohmann::json json_of(const SoakSample& sample);
nlohmann::json json_of(const BenchReport& report);
/// Reads the output of another process, or a saved report. An Error names the first value that is missing, of another
/// type or out of range.
Result<Measurement> measurement_from(const nlohmann::json& json);
Result<SoakSample> soak_sample_from(const nlohmann::json& json);
Result<Collectives> collectives_from(const nlohmann::json& json);
/// Reads what can be read of a report, from the journal or a file, which another version wrote: anything else keeps
/// its default. There are 64 GPUs at most; pairs are of two of them, and wrong data, if its pair is known.
BenchReport bench_report_from(const nlohmann::json& json);

}  // namespace p2pd::bench
