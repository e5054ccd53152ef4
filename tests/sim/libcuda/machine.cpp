// SPDX-License-Identifier: MIT
#include "tests/sim/libcuda/machine.hpp"

#include <algorithm>
#include <fstream>
#include <string_view>

#include "tests/sim/json_object.hpp"

namespace p2pd::sim {

using namespace bench::cuda;
using nlohmann::json;

namespace {

constexpr int kMostDevices = 32;  // an access mask has as many bits
constexpr int kMiBShift = 20;

constexpr std::pair<std::string_view, Wrong> kWrongs[] = {
    {"wrong-byte", Wrong::wrong_byte},
    {"dead-direction", Wrong::dead_direction},
    {"lost-stores", Wrong::lost_stores},
    {"private-mirror", Wrong::private_mirror},
    {"alias", Wrong::alias},
    {"misroute", Wrong::misroute},
    {"stale", Wrong::stale},
    {"late", Wrong::late},
    {"fast", Wrong::fast},
    {"slow", Wrong::slow},
    {"hang", Wrong::hang},
    {"xid", Wrong::xid},
    {"no-peer", Wrong::no_peer},
    {"refuse", Wrong::refuse},
    {"atomics-wrong", Wrong::atomics_wrong},
    {"atomics-fault", Wrong::atomics_fault},
    {"managed-fault", Wrong::managed_fault},
    {"ipc", Wrong::ipc},
    {"busy", Wrong::busy},
    {"gone", Wrong::gone},
};

/// `found` with the values of this object; for a new link `found` is zeros.
Link read_link(Object& object, Link found) {
  const bool whole = found.gb_s == 0;
  const auto rate = object.positive("gb_s");
  if (whole) {
    found.gb_s = object.needed(rate, "gb_s");
    found.latency_ns = object.needed(object.positive("latency_ns"), "latency_ns");
    found.staged_latency_ns = 10 * found.latency_ns;
  }
  if (rate) {
    found.gb_s = found.load_gb_s = found.store_gb_s = *rate;
    found.both_gb_s = 2 * *rate;
    if (whole) found.staged_gb_s = *rate / 2;
  }
  found.latency_ns = object.positive("latency_ns").value_or(found.latency_ns);
  found.both_gb_s = object.positive("both_gb_s").value_or(found.both_gb_s);
  found.staged_gb_s = object.positive("staged_gb_s").value_or(found.staged_gb_s);
  found.staged_latency_ns = object.positive("staged_latency_ns").value_or(found.staged_latency_ns);
  found.load_gb_s = object.positive("load_gb_s").value_or(found.load_gb_s);
  found.store_gb_s = object.positive("store_gb_s").value_or(found.store_gb_s);
  return found;
}

CUuuid read_uuid(const Object& object, const std::string& text) {
  CUuuid uuid{};
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
    object.broken("uuid is not 32 hex digits");
  for (std::size_t i = 0; i < 16; ++i) uuid.bytes[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return uuid;
}

DeviceModel read_device(Object object) {
  DeviceModel device;
  device.name = object.needed(object.text("name"), "name");
  device.uuid = read_uuid(object, object.needed(object.text("uuid"), "uuid"));
  device.address = object.needed(object.text("address"), "address");
  if (device.address.size() != 12) object.broken("address is not like 0000:01:00.0");
  constexpr u64 kMostMib = 1ULL << 30;
  const u64 mib = object.needed(object.natural("memory_mib", kMostMib), "memory_mib");
  device.memory_bytes = mib << kMiBShift;
  device.free_bytes = object.natural("free_mib", mib).value_or(mib) << kMiBShift;
  device.multiprocessors = object.number("multiprocessors", 1024).value_or(1);
  device.compute_mode = object.number("compute_mode", 3).value_or(0);
  device.atomics = object.yes("atomics").value_or(false);
  device.managed = object.yes("managed").value_or(true);
  device.compressible = object.yes("compressible").value_or(true);
  const json sm = object.find("sm") != nullptr ? *object.find("sm") : json::array({8U, 0U});
  if (!sm.is_array() || sm.size() != 2 || !sm[0].is_number_unsigned() || !sm[1].is_number_unsigned())
    object.broken("sm is not like [8, 9]");
  device.major = sm[0].get<int>();
  device.minor = sm[1].get<int>();
  object.end();
  return device;
}

std::optional<Engine> read_engine(const Object& object, const std::string& name) {
  if (name == "copy") return Engine::copy;
  if (name == "store") return Engine::store;
  if (name == "load") return Engine::load;
  if (name != "any") object.broken("engine is not copy, store, load or any");
  return std::nullopt;
}

void read_fault(Object object, Machine& machine) {
  Fault& fault = machine.faults.emplace_back();
  const std::string kind = object.needed(object.text("kind"), "kind");
  const auto row = std::ranges::find(kWrongs, std::string_view(kind), &std::pair<std::string_view, Wrong>::first);
  if (row == std::end(kWrongs)) object.broken("has an unknown kind \"" + kind + "\"");
  fault.wrong = row->second;
  fault.from = object.number("from", machine.count() - 1);
  fault.to = object.number("to", machine.count() - 1);
  fault.engine = read_engine(object, object.text("engine").value_or("any"));
  if (fault.wrong == Wrong::lost_stores || fault.wrong == Wrong::private_mirror) fault.engine = Engine::store;
  fault.graph = object.yes("graph").value_or(false);
  fault.compressible = object.yes("compressible").value_or(false);
  fault.at = object.natural("at").value_or(0);
  if (fault.wrong == Wrong::alias && fault.at == 0) object.broken("alias wants \"at\", the bytes after which it wraps");
  fault.after = object.natural("after").value_or(0);
  const auto other = object.number("other", machine.count() - 1);
  fault.other = fault.wrong == Wrong::misroute ? object.needed(other, "other") : other.value_or(0);
  const CUresult usual = fault.wrong == Wrong::ipc ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  fault.error = static_cast<CUresult>(object.number("error", CUDA_ERROR_UNKNOWN).value_or(usual));
  object.end();
}

std::pair<int, int> read_version(const Object& object, const std::string& text) {
  const std::size_t dot = text.find('.');
  constexpr std::string_view kDigits = "0123456789";
  const bool fits = dot != std::string::npos && dot > 0 && dot < 3 && text.size() - dot == 2 &&
                    text.find_first_not_of(kDigits) == dot &&
                    text.find_first_not_of(kDigits, dot + 1) == std::string::npos;
  if (!fits) object.broken("ptx_isa_most is not like 8.4");
  return {std::stoi(text), std::stoi(text.substr(dot + 1))};
}

/// As NVML prints it: "GPU-00000000-0000-0000-0000-000000000001".
std::string uuid_text(const CUuuid& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < 16; ++i) {
    const unsigned byte = static_cast<unsigned char>(uuid.bytes[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

std::unique_ptr<Machine> Machine::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot be read");
  return from(json::parse(file));
}

std::unique_ptr<Machine> Machine::from(const json& parsed) {
  Object object(parsed, "the machine");
  auto machine = std::make_unique<Machine>();
  machine->driver_version = object.number("driver_version", 1'000'000).value_or(machine->driver_version);
  machine->kernel_log = object.text("kernel_log").value_or("");
  machine->init_error = static_cast<CUresult>(object.number("init_error", CUDA_ERROR_UNKNOWN).value_or(CUDA_SUCCESS));
  machine->host_bytes = object.natural("host_mib", 1ULL << 20).value_or(1ULL << 20) << kMiBShift;
  machine->host_aliased = object.yes("host_aliased").value_or(false);
  machine->patience = object.natural("patience", 1000).value_or(1);
  if (const auto newest = object.text("ptx_isa_most")) machine->newest_ptx = read_version(object, *newest);
  for (Object& row : rows(object, "devices")) machine->devices.push_back(read_device(row));
  if (machine->count() > kMostDevices) object.broken("has too many devices");
  if (const json* link = object.find("link")) {
    Object row(*link, "link");
    machine->link = read_link(row, {});
    row.end();
  } else if (machine->count() > 1) {
    object.broken("has no link");
  }
  for (Object& row : rows(object, "links")) {
    const int from = row.needed(row.number("from", machine->count() - 1), "from");
    const int to = row.needed(row.number("to", machine->count() - 1), "to");
    machine->links[{from, to}] = read_link(row, machine->link);
    row.end();
  }
  for (Object& row : rows(object, "faults")) read_fault(row, *machine);
  object.end();
  return machine;
}

void Machine::show_only(std::string_view uuids) {
  std::vector<int> place(devices.size(), -1);  // the new number of each
  std::vector<DeviceModel> shown;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (uuids.find(uuid_text(devices[i].uuid)) == std::string_view::npos) continue;
    place[i] = static_cast<int>(shown.size());
    shown.push_back(devices[i]);
  }
  std::map<std::pair<int, int>, Link> kept;
  for (const auto& [pair, way] : links) {
    const int from = place[static_cast<std::size_t>(pair.first)], to = place[static_cast<std::size_t>(pair.second)];
    if (from >= 0 && to >= 0) kept[{from, to}] = way;
  }
  for (Fault& fault : faults)
    for (std::optional<int>* end : {&fault.from, &fault.to})
      if (*end) *end = place[static_cast<std::size_t>(**end)];  // -1, which is no device, if it is hidden
  links = std::move(kept);
  devices = std::move(shown);
}

const Link& Machine::link_of(int from, int to) const {
  const auto found = links.find({from, to});
  return found == links.end() ? link : found->second;
}

bool Fault::covers(int source, int destination) const {
  return from.value_or(source) == source && to.value_or(destination) == destination;
}

bool Fault::covers(int source, int destination, Engine by) const {
  return covers(source, destination) && engine.value_or(by) == by;
}

Fault* Machine::fault(Wrong wrong, int from, int to) {
  const auto found =
      std::ranges::find_if(faults, [&](const Fault& row) { return row.wrong == wrong && row.covers(from, to); });
  return found == faults.end() ? nullptr : &*found;
}

double Machine::haste(int from, int to, Engine engine) const {
  double factor = 1;
  for (const Fault& fault : faults) {
    if (!fault.covers(from, to, engine)) continue;
    if (fault.wrong == Wrong::fast) factor *= 10;
    if (fault.wrong == Wrong::slow) factor *= 0.3;
  }
  return factor;
}

bool Machine::can_access(int device, int peer) {
  return device != peer && fault(Wrong::no_peer, device, peer) == nullptr;
}

}  // namespace p2pd::sim
