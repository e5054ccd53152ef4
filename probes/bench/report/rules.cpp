// SPDX-License-Identifier: MIT
#include "probes/bench/report/rules.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/signatures.hpp"
#include "probes/bench/report/text.hpp"

namespace p2pd::bench {
namespace {

std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

bool in_use(const Case& c) {
  const auto busy = [&](int gpu) { return c.run.gpus[static_cast<std::size_t>(gpu)].in_use; };
  return busy(c.pair.from) || busy(c.pair.to);
}

std::string busy_gpus(const Measurement& run) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < run.gpus.size(); ++i) {
    if (run.gpus[i].in_use) names.push_back(fmt::format("GPU {}", i));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void judge_tested(const Case& c, std::string_view test) {
  const auto is_it = [&](const Wrong& w) { return w.test == test && w.from == c.pair.from && w.to == c.pair.to; };
  if (std::ranges::any_of(c.run.wrong, is_it) || has_run(c.run, c.pair, test))
    return;  // wrong bytes have remarks of their own
  const std::string reason = why_not_run(c.run, c.pair, test);
  c.remark(Grade::fail, "bytes", fmt::format("{} was not tested{}{}", test, reason.empty() ? "" : ": ", reason), test);
}

/// Thresholds for the kind of a path; the most lenient ones for an unknown path.
Shares shares_of(const Path& path, const Thresholds& limits) {
  switch (path.kind) {
    case PathKind::nvlink: return limits.nvlink;
    case PathKind::pcie_switch: return limits.pcie_switch;
    case PathKind::one_socket: return path.intel_root ? limits.one_socket_intel : limits.one_socket;
    case PathKind::cross_socket:
    case PathKind::unknown: return limits.cross_socket;
  }
  return limits.cross_socket;
}

void judge_share(const Case& c) {
  if (!c.pair.copy_gb_s || c.path.payload_gb_s <= 0) return;
  const Shares shares = shares_of(c.path, c.limits);
  const double share = c.pair.copy_gb_s->median / c.path.payload_gb_s;
  if (share >= shares.warn && share >= shares.fail) return;
  const bool fails = !(share >= shares.fail);  // NaN fails
  c.remark(fails ? Grade::fail : Grade::warn, "copy",
           fmt::format("{:.1f} GB/s is {} of {:.1f} GB/s ({}); {} below {}", c.pair.copy_gb_s->median, percent(share),
                       c.path.payload_gb_s, c.path.arithmetic, fails ? "fails" : "warns",
                       percent(fails ? shares.fail : shares.warn)));
}

void judge_ceiling(const Case& c, const char* test, const std::optional<Figure>& rate, int ways) {
  if (!rate || c.path.raw_gb_s <= 0) return;
  const double raw = ways * c.path.raw_gb_s;
  const double payload = ways * c.path.payload_gb_s;
  const char* both = ways == 2 ? " both ways" : "";
  if (rate->median > c.limits.over_raw * raw) {
    c.remark(Grade::fail, test,
             fmt::format(
                 "{:.1f} GB/s is {} of the raw {:.1f} GB/s{} ({}); fails above {}: faster than the link: the data "
                 "did not take it",
                 rate->median, percent(rate->median / raw), raw, both, c.path.arithmetic, percent(c.limits.over_raw)));
  } else if (rate->median > payload) {
    c.remark(Grade::warn, test,
             fmt::format("{:.1f} GB/s is above {:.1f} GB/s{}, all that packets leave for data ({})", rate->median,
                         payload, both, c.path.arithmetic));
  }
}

/// Judges rates against their ceilings. Completions of loads have shorter headers: a rate between payload limit and raw
/// rate is valid.
void judge_ceilings(const Case& c) {
  judge_ceiling(c, "copy", c.pair.copy_gb_s, 1);
  judge_ceiling(c, "store", c.pair.store_gb_s, 1);
  judge_ceiling(c, "busy", c.pair.busy_gb_s, 1);
  judge_ceiling(c, "both", c.pair.copy_both_gb_s, 2);
  if (c.pair.load_gb_s && c.pair.load_gb_s->median > c.limits.over_raw * c.path.raw_gb_s) {
    judge_ceiling(c, "load", c.pair.load_gb_s, 1);
  }
}

void judge_both_ways(const Case& c) {
  if (!c.pair.copy_gb_s || !c.pair.copy_both_gb_s || c.pair.copy_gb_s->median <= 0) return;
  const double ratio = c.pair.copy_both_gb_s->median / c.pair.copy_gb_s->median;
  if (ratio >= c.limits.both_over_one) return;
  c.remark(Grade::warn, "both",
           fmt::format("{:.1f} GB/s both ways is {:.2f} x the {:.1f} GB/s one way; warns below {:.2f}{}",
                       c.pair.copy_both_gb_s->median, ratio, c.pair.copy_gb_s->median, c.limits.both_over_one,
                       c.path.kind == PathKind::nvlink
                           ? ""
                           : ": ACS redirection on a port between them does that, both ways share its uplink then"));
}

/// Adds the remark to the slower direction.
void judge_asymmetry(const Case& c) {
  if (c.back == nullptr || !c.pair.copy_gb_s || !c.back->copy_gb_s) return;
  const double slow = c.pair.copy_gb_s->median;
  const double fast = c.back->copy_gb_s->median;
  if (slow >= fast) return;
  if (c.path.raw_gb_s > 0 && fast > c.limits.over_raw * c.path.raw_gb_s)
    return;  // the other direction is the faulty one
  const double difference = (fast - slow) / fast;
  if (difference <= c.limits.asymmetry_warn && difference <= c.limits.asymmetry_fail) return;
  const bool fails = difference > c.limits.asymmetry_fail;
  c.remark(
      fails ? Grade::fail : Grade::warn, "asymmetry",
      fmt::format("{:.1f} GB/s, and {:.1f} GB/s the other way: {} less; {} above {}", slow, fast, percent(difference),
                  fails ? "fails" : "warns", percent(fails ? c.limits.asymmetry_fail : c.limits.asymmetry_warn)));
}

void judge_chase(const Case& c) {
  if (!c.pair.chase_ns) return;
  const bool unseen = c.path.kind == PathKind::unknown;
  const bool far = unseen || c.path.kind == PathKind::cross_socket;
  const double most = far ? c.limits.chase_cross_ns : c.limits.chase_ns;
  if (c.pair.chase_ns->median <= most) return;
  const char* where = unseen ? " (path not known)" : far ? " (across sockets)" : "";
  c.remark(Grade::fail, "chase",
           fmt::format("a dependent load takes {:.2f} us; fails above {:.2f} us{}", c.pair.chase_ns->median / 1000,
                       most / 1000, where));
}

void judge_staged(const Case& c) {
  if (!c.pair.copy_gb_s || !c.pair.staged_gb_s) return;
  if (c.pair.copy_gb_s->median >= c.pair.staged_gb_s->median) return;
  c.remark(Grade::warn, "staged",
           fmt::format("{:.1f} GB/s is less than the {:.1f} GB/s of a copy through host memory",
                       c.pair.copy_gb_s->median, c.pair.staged_gb_s->median));
}

}  // namespace

void Case::remark(Grade grade, const char* test, const std::string& text, std::string_view transfer) const {
  remarks.push_back(
      {grade, pair.from, pair.to, test, pair_name(pair.from, pair.to) + ": " + text, std::string(transfer)});
}

bool judge_access(const Case& c) {
  if (c.pair.access && c.pair.refused.empty()) return true;
  const std::string text = c.pair.access ? "peer access was refused" : "the driver says there is no peer access";
  const auto known = program_failure(c.pair.refused);
  c.remark(Grade::fail, "access",
           text + (c.pair.refused.empty() ? "" : ": " + c.pair.refused) +
               (known ? fmt::format(": {}. {}", known->cause, known->fix) : ""));
  return false;
}

void judge_bytes(const Case& c) {
  for (const std::string_view test : essential_tests(c.wanted))
    if (c.run.mode != "quick" || (test != "atomics" && test != kManaged && test != kCompressible))
      judge_tested(c, test);  // a quick run leaves these out
}

void judge_atomics(const Case& c) {
  const auto is_it = [&](const Atomics& a) { return a.from == c.pair.from && a.to == c.pair.to; };
  const auto found = std::ranges::find_if(c.run.atomics, is_it);
  if (found != c.run.atomics.end() && !found->exact)
    c.remark(Grade::fail, "atomics", "atomics came out wrong: " + found->problem);
}

void judge_speed(const Case& c) {
  if (in_use(c)) return;
  judge_share(c);
  judge_ceilings(c);
  judge_both_ways(c);
  judge_asymmetry(c);
  judge_chase(c);
  judge_staged(c);
}

std::string unjudged(const Case& c) {
  if (in_use(c)) return "others compute on " + busy_gpus(c.run);
  if (!c.pair.copy_gb_s) {
    const std::string reason = why_not_run(c.run, c.pair, "copy");
    return c.run.mode == "quick" && reason.empty() ? "" : "no copy was timed" + (reason.empty() ? "" : ": " + reason);
  }
  if (c.path.payload_gb_s <= 0) return "the rate of the path is not known, " + c.path.arithmetic;
  return {};
}

}  // namespace p2pd::bench
