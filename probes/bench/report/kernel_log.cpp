// SPDX-License-Identifier: MIT
#include "probes/bench/report/kernel_log.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/signatures.hpp"
#include "machine/boot/kernel_log.hpp"

namespace p2pd::bench {
namespace {

constexpr std::size_t kMost = 50;  // limit of reported faults

const LinePattern& xid() {
  static const LinePattern kXid = LinePattern::parse("NVRM: Xid \\([0-9A-Za-f:. -]*\\): [0-9]+,").value();
  return kXid;
}

/// True for an Xid that names `process`: "NVRM: Xid (PCI:0000:01:00): 31, pid=77, name=...", or pid='77'.
bool is_of(const std::string& xid, int process) {
  const std::size_t at = xid.find(", ");
  const std::string_view rest = std::string_view(xid).substr(std::min(at, xid.size()));
  return rest.starts_with(fmt::format(", pid={},", process)) || rest.starts_with(fmt::format(", pid='{}',", process));
}

bool refutes(const std::vector<Signature>& rows, const std::string& text, const GpuFunctions& gpus, int expected) {
  const auto device = blamed_device(text);
  if (device && !gpus.hold(*device)) return false;
  if (xid().starts(text)) return expected <= 0 || !is_of(text, expected);
  const auto row = std::ranges::find_if(rows, [&](const Signature& one) {  // the first row counts
    return one.log == "kernel" && one.matches(text);
  });
  return row != rows.end() && row->refutes_proof && (device || (!row->gpu_only && gpus.hold_all_gpus()));
}

}  // namespace

KernelLog::KernelLog(const Host& host) : device_(open_kernel_log(host)) {
  if (device_ && ::lseek(device_->get(), 0, SEEK_END) < 0) device_ = fail_errno("/dev/kmsg");
  if (!device_) not_readable_ = device_.error().message;
}

std::vector<std::string> KernelLog::faults(int expected, const GpuFunctions& gpus) {
  std::vector<std::string> found;
  if (!device_) return found;
  const auto part = read_kernel_log(*device_);
  const auto rows = signatures();
  if (!part || !rows) {
    not_readable_ = (part ? rows.error() : part.error()).message;
    return found;
  }
  if (part->lost) not_readable_ = "/dev/kmsg: records were overwritten before they were read";
  for (const KernelRecord& record : parse_kernel_log(part->text, "/dev/kmsg").records)
    if (found.size() < kMost && refutes(*rows, record.text, gpus, expected)) found.push_back(record.line());
  return found;
}

}  // namespace p2pd::bench
