// SPDX-License-Identifier: MIT
// Progress that the requesting process receives: phases, results so far, samples of a soak.
#include <fmt/format.h>
#include <unistd.h>

#include <iterator>
#include <sstream>

#include "base/terminal.hpp"
#include "probes/bench/measuring.hpp"
#include "probes/bench/report/machine.hpp"
#include "probes/bench/report/text.hpp"

namespace p2pd::bench {

Listener::Listener(const Host& host) : host_(host), shown_(obeys_escapes(STDERR_FILENO)) {}

void Listener::line(std::string_view text) {
  if (text.starts_with(kGpusMark) && !looking_.valid()) {
    std::istringstream words{std::string(text.substr(kGpusMark.size()))};
    const std::vector<std::string> addresses{std::istream_iterator<std::string>(words), {}};
    looking_ = std::async(std::launch::async, [this, addresses] {
      const std::vector<std::vector<Path>> unknown(addresses.size(), std::vector<Path>(addresses.size()));
      const auto host = host_.snapshot();
      return Surroundings{paths_between(*host, addresses).value_or(unknown), machine_facts(*host, addresses),
                          GpuFunctions(pci_devices(*host).value_or(std::vector<PciDevice>()), addresses)};
    });
  }
  if (text.starts_with(kSampleMark)) soak_.add(parse_json(std::string(text.substr(kSampleMark.size()))));
  if (text.starts_with(kSofarMark)) sofar_ = text.substr(kSofarMark.size());
  if (text.starts_with(kTransferMark)) transfer_ = text.substr(kTransferMark.size());
  if (!text.starts_with(kPhaseMark)) return;
  if (phase_ != text.substr(kPhaseMark.size())) transfer_.clear();
  phase_ = text.substr(kPhaseMark.size());
  if (shown_) fmt::print(stderr, "\r\x1b[K{} …", phase_);
}

void Listener::clear() const {
  if (shown_ && !phase_.empty()) fmt::print(stderr, "\r\x1b[K");
}

std::optional<Measurement> Listener::hung(const std::string& why) const {
  Result<Measurement> found = measurement_from(parse_json(sofar_));
  Wrong wrong;
  wrong.kind = WrongKind::hung;
  wrong.detail = why;
  std::istringstream words(transfer_);
  if (!found || !(words >> wrong.test >> wrong.from >> wrong.to)) return std::nullopt;
  found->wrong.push_back(wrong);
  return std::move(*found);
}

void Listener::restart() {
  transfer_.clear();
  sofar_.clear();
}

void SoakLog::print_to(std::FILE* out, std::function<std::vector<std::string>()> kernel_log) {
  out_ = out;
  kernel_log_ = std::move(kernel_log);
}

void SoakLog::add(const nlohmann::json& sample) {
  constexpr double kLineSeconds = 60;
  auto read = soak_sample_from(sample);
  if (!read) return;
  const auto minute = [](const SoakSample& one) { return static_cast<long>(one.seconds / kLineSeconds); };
  const bool due = printed_ == 0 || minute(*read) > minute(soak_.samples[printed_ - 1]);
  soak_.samples.push_back(std::move(*read));
  if (due) print();
}

void SoakLog::print() {
  if (out_ == nullptr || soak_.samples.size() == printed_) return;
  if (kernel_log_)
    for (const std::string& fault : kernel_log_()) fmt::print(out_, "kernel: {}\n", plain(fault));
  fmt::print(out_, "{}\n", soak_line(soak_, printed_));
  std::fflush(out_);
  printed_ = soak_.samples.size();
}

Measurement SoakLog::complete(Measurement found, std::string_view ended) {
  print();
  soak_.minutes = found.soak ? found.soak->minutes : 0;
  soak_.ended = ended;
  found.soak = std::move(soak_);
  return found;
}

}  // namespace p2pd::bench
