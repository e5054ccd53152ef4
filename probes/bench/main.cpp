// SPDX-License-Identifier: MIT
// p2p-bench: proves bytes, then speed, on every pair of GPUs. This process starts the measuring process with a
// deadline, because a GPU that hangs also blocks every process that waits for it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <tuple>

#include "base/command.hpp"
#include "base/terminal.hpp"
#include "base/wrap.hpp"
#include "machine/hardware/nccl.hpp"
#include "probes/bench/collectives/collectives.hpp"
#include "probes/bench/collectives/nccl.hpp"
#include "probes/bench/device/nvml.hpp"
#include "probes/bench/measuring.hpp"
#include "probes/bench/report/kernel_log.hpp"
#include "probes/bench/report/machine.hpp"
#include "probes/bench/report/report.hpp"
#include "record/record_file.hpp"

namespace p2pd::bench {
namespace {

/// Exit codes of p2p-bench.
enum Exit : int {
  kProven = 0,         ///< every byte was right, every rate is plausible and good enough
  kError = 1,          ///< no result; the reason is on standard error
  kNotProven = 3,      ///< P2P does not work, or not well enough
  kNothing = 4,        ///< nothing to prove here: no driver, one GPU, MIG
  kLimited = 5,        ///< fit for fewer uses than requested
  kPart = 6,           ///< right, but only requested tests ran
  kInterrupted = 130,  ///< a soak was interrupted, with nothing wrong until then
};

struct Options : Apart {
  bool json = false;
  bool bug_report = false;
  bool phases = false;
  bool collectives = false;
  bool driver_peers = false;
  bool list = false;
  std::string nccl;  ///< path of libnccl; empty: it is looked for
  std::string save;
  std::string against;
  std::string thresholds;
  std::vector<std::string> wanted;
  std::vector<std::string> beside;  ///< benchmarks of others to run, too
  bool worker = false;
  std::string collective_worker;  ///< "on" or "off": P2P
};

/// GPUs of the run, or all NVIDIA GPUs if it has not reported them, and the ports above them.
GpuFunctions gpus_of(const Host& host, const Surroundings& around) {
  if (around.gpus) return *around.gpus;
  const std::vector<PciDevice> devices = pci_devices(host).value_or(std::vector<PciDevice>());
  return {devices, nvidia_gpus(devices)};
}

bool ended_at_managed(const Measurement& found) {
  return std::ranges::any_of(found.wrong, [](const Wrong& w) { return w.test == kManaged && is_end(w.kind); });
}

/// Adds NCCL settings of /etc/nccl.conf that this run overrides, except p2pd's.
void note_conf(const Host& host, const std::string& level, std::vector<std::string>& notes) {
  const NcclConf conf = nccl_conf(host).value_or(NcclConf{});
  for (const auto& [setting, overridden] : {std::pair(conf.level, !level.empty()), std::pair(conf.disabled, true)})
    if (setting && !setting->ours && overridden)
      notes.push_back(fmt::format("{} is overridden here: {}={}", setting->source, setting->name, setting->value));
}

/// Runs NCCL at the level that it needs, which /etc/nccl.conf may not have yet. A full run that finds P2P unfit for it
/// leaves it out.
Result<Collectives> collectives_of(const Options& options, const Host& host, CommandRunner& runner,
                                   const Report& report) {
  const Measurement& found = report.measurement;
  if (ended_at_managed(found)) return Collectives{.not_run = "the GPUs may be down: a process ended at managed memory"};
  const Judgement so_far = judge(found, report.paths, report.thresholds, {}, report.wanted);
  const auto unfit = [](const Fitness& one) {
    return one.use == to_string(P2pUse::nccl) && one.kind != Fitness::Kind::fit;
  };
  if (!options.collectives && std::ranges::any_of(so_far.fit, unfit))
    return Collectives{.not_run = "P2P is not fit for it"};
  nccl::Library library = nccl::find_library(runner, options.nccl);
  if (library.path.empty())
    return Collectives{.not_run = std::move(library.why_not), .notes = std::move(library.notes)};
  CollectiveRuns runs{
      .program = "/proc/self/exe", .library = library.path, .deadline = std::chrono::seconds(options.deadline_s)};
  if (const NcclNeed need = nccl_need(report.measurement, report.paths); !need.by_itself)
    runs.p2p_level = to_string(need.level);
  std::vector<Collectives> of_groups;
  for (const std::vector<int>& group : groups_of(found)) {
    if (group.size() < 2) continue;
    runs.gpus.clear();
    for (const int gpu : group)
      runs.gpus += (runs.gpus.empty() ? "" : ",") + found.gpus[static_cast<std::size_t>(gpu)].uuid;
    of_groups.push_back(with_numbers_of(TRY(measure_collectives(runner, runs)), group));
  }
  if (of_groups.empty()) return Collectives{.not_run = "no two GPUs can be peers"};
  Collectives collectives = as_one(std::move(of_groups));
  note_conf(host, runs.p2p_level, library.notes);
  collectives.notes = std::move(library.notes);
  return collectives;
}

/// True if a soak was interrupted with nothing wrong until then.
bool interrupted(const Measurement& found) {
  return found.soak && found.soak->ended == "interrupted" && found.wrong.empty();
}

Result<Report> run(const Options& options, const Root& root) {
  const bool soaks = options.asked.soak_minutes > 0;
  ProcessRunner runner("/", soaks ? stop_signals() : -1);
  const Host host(root, runner);
  Report report;
  if (!options.thresholds.empty()) {
    const auto json = parse_json(options.thresholds);
    report.thresholds = TRY_IN("--thresholds", thresholds_from(json));
  }
  if (!options.wanted.empty()) report.wanted = TRY_IN("--for", uses_from(options.wanted));
  KernelLog log(host);
  Listener listener(host);
  std::vector<std::string> followed;  // faults in the kernel log during a soak
  const auto follow = [&] {
    auto faults = log.faults(0, gpus_of(host, listener.surroundings()));
    followed.insert(followed.end(), faults.begin(), faults.end());
    return faults;
  };
  if (soaks) listener.soak().print_to(options.json ? stderr : stdout, follow);
  Apart apart = options;
  const auto wants = [&](P2pUse use) { return std::ranges::find(report.wanted, use) != report.wanted.end(); };
  apart.asked.managed |= wants(P2pUse::managed_memory);
  apart.asked.compressible |= wants(P2pUse::compressible_memory);
  Result<Measurement> found = measure_apart(apart, runner, listener);
  if (!found && found.error().code == ErrorCode::timeout) {
    const std::vector<std::string> faults = log.faults(0, gpus_of(host, listener.surroundings()));
    return fail(ErrorCode::timeout,
                found.error().message + (faults.empty() ? "" : "; the kernel log says: " + faults.front()),
                "reboot: a GPU that hangs does not come back by itself; then \"p2pctl doctor\"");
  }
  report.measurement = TRY(std::move(found));
  Surroundings around = listener.surroundings();
  report.paths = std::move(around.paths);
  report.machine = std::move(around.machine);
  const bool collectives = options.collectives || (options.asked.full && !soaks && options.asked.tests.empty());
  if (collectives && !interrupted(report.measurement) && report.measurement.gpus.size() > 1)
    report.measurement.collectives = TRY(collectives_of(options, host, runner, report));
  report.kernel_log = log.faults(report.measurement.expendable_process, gpus_of(host, around));
  report.kernel_log.insert(report.kernel_log.begin(), followed.begin(), followed.end());
  if (!log.not_readable().empty()) report.measurement.not_run["kernel log"] = log.not_readable();
  if (report.measurement.gpus.size() > 1) report.others = run_others(runner, report.measurement, options.beside);
  report.judgement = judge(report.measurement, report.paths, report.thresholds, report.kernel_log, report.wanted);
  return report;
}

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file) return fail_errno("cannot read " + path);
  return text;
}

Result<void> save(const std::string& path, const Report& report) {
  std::ofstream file(path);
  file << to_json(report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  file.close();
  if (!file) return fail_errno("cannot write " + path);
  return {};
}

Result<void> print(const Options& options, const Report& report) {
  std::vector<std::string> gains;
  if (!options.against.empty()) gains = gain(parse_json(TRY(read_file(options.against))), report);
  if (options.json) {
    nlohmann::json document = to_json(report);
    document["gain"] = gains;
    if (!report.others.empty()) document["side_by_side"] = side_by_side(report.measurement, report.others);
    document["advice"] = advice(report);
    fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (const auto why = report.measurement.not_run.find(kEverything); why != report.measurement.not_run.end()) {
    fmt::print("{}\n", why->second);
  } else if (options.bug_report) {
    fmt::print("{}", bug_report(report));
  } else {
    const bool terminal = ::isatty(STDOUT_FILENO) == 1, colour = has_colours(STDOUT_FILENO);
    const std::string verdict = verdict_line(report.judgement, colour);
    if (!terminal) fmt::print("{}", verdict);  // on a terminal it comes last, where it is seen
    fmt::print("{}", matrices(report, colour));
    if (options.phases) fmt::print("\n{}", phase_table(report.measurement));
    for (const auto& lines : {gains, side_by_side(report.measurement, report.others)})
      for (const std::string& line : lines) fmt::print("{}\n", narrow(line));
    if (terminal) fmt::print("\n{}", verdict);
  }
  return {};
}

int fail_with(const Options& options, const Error& error, int code = kError) {
  if (options.json)
    fmt::print(
        "{}\n",
        nlohmann::json{
            {"schema", "p2pd.error/1"}, {"error", error.message}, {"code", to_string(error.code)}, {"next", error.next}}
            .dump(2));
  fmt::print(stderr, "p2p-bench: {}\n", error.message);
  if (!error.next.empty()) fmt::print(stderr, "  next: {}\n", error.next);
  return code;
}

int main_of(const Options& options, const Root& root) {
  const Result<Report> report = run(options, root);
  if (!report) {
    const ErrorCode why = report.error().code;
    return fail_with(options, report.error(),
                     why == ErrorCode::timeout     ? kNotProven
                     : why == ErrorCode::not_found ? kNothing
                                                   : kError);
  }
  if (!options.save.empty())
    if (const Result<void> saved = save(options.save, *report); !saved) return fail_with(options, saved.error());
  if (const Result<void> printed = print(options, *report); !printed) return fail_with(options, printed.error());
  if (std::fflush(stdout) != 0) return fail_with(options, {ErrorCode::io, "cannot write to standard output", ""});
  if (interrupted(report->measurement) && report->kernel_log.empty()) return kInterrupted;
  if (report->judgement.proven) return kProven;
  if (report->judgement.limited) return kLimited;
  if (!report->judgement.fails()) return kPart;
  return report->measurement.not_run.contains(kEverything) ? kNothing : kNotProven;
}

constexpr const char* kFooter = R"(Examples:
  p2p-bench --save before.json              before P2P works
  p2p-bench --full --against before.json    then: the proof, and the gain
  p2p-bench -t store-timed -i 10            one rate, ten times
  p2p-bench --soak 480                      under load for a night

Exit codes:
  0    proven
  1    error: the tests could not run
  3    not proven
  4    nothing to prove here: no driver, one GPU, MIG
  5    fit for less than what was asked for
  6    right, but only the tests of -t ran: no proof
  130  a soak was interrupted, with nothing wrong until then)";

std::string unknown_test(const std::string& name) {
  std::vector<std::string_view> names;
  for (const NamedTest& test : kNamedTests) names.push_back(test.name);
  return test_named(name) != nullptr ? "" : fmt::format("\"{}\" is no test; known: {}", name, fmt::join(names, ", "));
}

/// Adds to the request what it implies.
void complete(Options& options) {
  Asked& asked = options.asked;
  if (asked.soak_minutes > 0) asked.full = true;
  if (asked.tests.empty()) return;
  if (asked.sweep) asked.tests.push_back("sweep");
  if (options.collectives) asked.tests.push_back(kCollectives);
  if (asked.wants("chase")) asked.tests.push_back("load");  // it follows pointers, which must be right
  std::ranges::sort(asked.tests);
  asked.tests.erase(std::unique(asked.tests.begin(), asked.tests.end()), asked.tests.end());
  for (const std::string& name : asked.tests)
    if (bool Asked::*const needed = test_named(name)->needs) asked.*needed = true;
  asked.full = asked.full || asked.managed || asked.compressible;
  options.collectives = asked.wants(kCollectives);
}

int start(int argc, char** argv) {
  Options options;
  CLI::App app("p2p-bench: proves that every pair of GPUs moves correct bytes, then measures how fast.", "p2p-bench");
  app.footer(kFooter);
  CLI::Option* quick =
      app.add_flag("--quick", options.asked.quick, "bytes and one rate: for every boot")->option_text(" ");
  app.add_flag("--full", options.asked.full,
               "IPC, an all-reduce in CUDA graphs, atomics, wanted kinds of memory and NCCL too, and all repetitions "
               "of the handshakes");
  CLI::Option* soak =
      app.add_option("--soak", options.asked.soak_minutes,
                     "repeat copies, stores, loads and the all-reduce of --full over all pairs, a line a minute, until "
                     "the first wrong byte; SIGINT ends it with its results")
          ->option_text("MINUTES")
          ->check(CLI::Range(0.01, 10'080.0));
  app.add_flag("--sweep", options.asked.sweep, "an address tag in every 2 MiB page of free GPU memory");
  app.add_flag("--collectives", options.collectives,
               "NCCL all-reduce and all-to-all too, with P2P and without; --full does that where P2P is fit for it");
  app.add_option("-t,--test", options.asked.tests, "only these tests, by names of --list: never a proof")
      ->option_text("TEST,...")
      ->delimiter(',')
      ->check(unknown_test)
      ->excludes(quick)
      ->excludes(soak);
  app.add_flag("-l,--list", options.list, "list the tests");
  app.add_option("-b,--buffer-size", options.asked.buffer_mib, "largest transfer, 4 to 4096 (default: 512)")
      ->option_text("MIB")
      ->check(CLI::Range(4, 4096));
  app.add_option("-i,--iterations", options.asked.iterations, "repetitions of each timed figure, 1 to 100 (default: 3)")
      ->option_text("N")
      ->check(CLI::Range(1, 100));
  app.add_option("--for", options.wanted,
                 fmt::format("uses that must work: {} (default: nccl,custom-all-reduce)", known_uses()))
      ->option_text("USE,...")
      ->delimiter(',');
  app.add_option("--thresholds", options.thresholds, "object of thresholds to replace, as in a plan")
      ->option_text("JSON");
  app.add_option("--exclude", options.asked.without, "GPUs that take no part, by PCI address")
      ->option_text("ADDRESS,...")
      ->delimiter(',');
  app.add_flag("--all-pairs", options.asked.all_pairs,
               "expect P2P between all GPUs, not only between those of one generation");
  app.add_option("--deadline", options.deadline_s, "time without an answer until the GPUs count as hung (default: 120)")
      ->option_text("SECONDS")
      ->check(CLI::Range(1, 86'400));
  app.add_option("--nccl", options.nccl, "the libnccl to use; otherwise it is looked for")
      ->option_text("FILE")
      ->take_last();
  app.add_option(
         "--beside", options.beside,
         "NVIDIA's benchmarks to run too, by name or path: p2pBandwidthLatencyTest, nvbandwidth, all_reduce_perf")
      ->option_text("PROGRAM,...")
      ->delimiter(',');
  app.add_flag("--json", options.json, "print JSON, schema p2pd.bench/1");
  app.add_flag("--bug-report", options.bug_report, "print forty plain lines to paste");
  app.add_flag("--phases", options.phases, "print what took how long");
  app.add_option("--save", options.save, "write the report as JSON, for --against")->option_text("FILE");
  app.add_option("--against", options.against, "print the gain over a saved report")->option_text("FILE");
  app.add_flag("--driver-peers", options.driver_peers,
               "print as JSON what the driver says of each pair; measure nothing");
  app.add_option("--root", options.root, "read sysfs and /proc of this tree: a machine record")->option_text("TREE");
  app.add_option("--fault", options.asked.fault)
      ->group("")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kFaults), std::end(kFaults))));
  app.add_flag("--worker", options.worker)->group("");
  app.add_flag("--managed", options.asked.managed)->group("");
  app.add_flag("--compressible", options.asked.compressible)->group("");
  app.add_flag("--alone", options.asked.alone)->group("");
  app.add_option("--collective-worker", options.collective_worker)->group("")->check(CLI::IsMember({"on", "off"}));
  app.set_version_flag("-V,--version", "p2p-bench " P2PD_VERSION);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("p2p-bench: {}\n  next: \"p2p-bench --help\" shows what it takes\n", error.what());
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", narrow_help(app.help()));
    return kProven;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kProven : kError;
  }
  complete(options);
  if (options.list) {
    for (const NamedTest& test : kNamedTests) fmt::print("{:<18}{}\n", test.name, test.text);
    return kProven;
  }
  if (options.driver_peers) {
    const nlohmann::json peers = driver_peers();
    fmt::print("{}\n", peers.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return peers.contains("not_available") ? kNothing : kProven;
  }
  const Result<NamedRoot> named = NamedRoot::open(options.root);
  if (!named) return fail_with(options, named.error());
  const Result<Root> root = Root::open(named->directory());
  if (!root) return fail_with(options, root.error());
  options.root = named->directory();  // for the measuring process
  if (options.worker) return measuring_process(options, *root);
  if (!options.collective_worker.empty()) return collective_worker(options.collective_worker, options.nccl);
  return main_of(options, *root);
}

}  // namespace
}  // namespace p2pd::bench

int main(int argc, char** argv) {
  try {
    return p2pd::bench::start(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "p2p-bench: unexpected: {}\n", error.what());
    return 1;
  }
}
