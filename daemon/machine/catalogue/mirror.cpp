// SPDX-License-Identifier: MIT
#include "machine/catalogue/mirror.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "base/json.hpp"
#include "base/sha256.hpp"
#include "base/url.hpp"
#include "machine/catalogue/staging.hpp"
#include "machine/fetch/download.hpp"

namespace p2pd {
namespace {

using namespace std::chrono_literals;
using std::chrono::system_clock;

constexpr std::string_view kSchema = "p2pd.mirror/1";
constexpr std::string_view kSeen = "/mirror.json";            // below kCache: time of the newest manifest, by URL
constexpr std::size_t kManifestLimit = 4U << 20;              // bytes
constexpr std::size_t kKeyLimit = 64U << 10;                  // bytes
constexpr std::size_t kPathLimit = 300;                       // characters
constexpr std::uint64_t kFileLimit = std::uint64_t{2} << 30;  // bytes
constexpr std::chrono::seconds kStall = 15s;
constexpr std::chrono::seconds kManifestDeadline = 60s;
constexpr std::chrono::minutes kFileDeadline = 30min;
constexpr std::chrono::hours kClocksDiffer = 24h;  // at most, of two machines that are set up well

std::string to_text(MirrorTime time) { return fmt::format("{:%FT%TZ}", fmt::gmtime(system_clock::to_time_t(time))); }

std::optional<MirrorTime> to_time(const std::string& text) {
  std::tm parts{};
  const char* const end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return std::chrono::time_point_cast<std::chrono::seconds>(system_clock::from_time_t(::timegm(&parts)));
}

/// Checks for a relative path that stays below where it begins, in characters that no URL or tool misreads.
bool is_plain_path(std::string_view path) {
  if (path.empty() || path.size() > kPathLimit) return false;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    const auto plain = [](unsigned char c) {
      return std::isalnum(c) != 0 || std::string_view("._+~-").find(static_cast<char>(c)) != std::string_view::npos;
    };
    if (part.empty() || part.front() == '.' || !std::ranges::all_of(part, plain)) return false;
    at = end + 1;
  }
  return true;
}

Failure other_form(std::string_view what) {
  return fail(ErrorCode::invalid, fmt::format("its manifest {}", what), "Make it anew: \"p2pctl mirror make\".");
}

Result<MirrorManifest> parse_manifest(std::string_view text) {
  const nlohmann::json json = parse_json(text);
  if (!json.is_object() || json.value("schema", nlohmann::json()) != kSchema)
    return other_form(fmt::format("is not of schema {}", kSchema));
  const auto text_of = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto made = to_time(text_of("made")), until = to_time(text_of("valid_until"));
  const auto files = json.find("files");
  if (!made || !until || files == json.end() || !files->is_object()) return other_form("lacks its times or files");
  MirrorManifest manifest{*made, *until, {}};
  for (const auto& [path, file] : files->items()) {
    if (!is_plain_path(path)) return other_form(fmt::format("names a path that leaves the mirror: {:.80}", path));
    if (!file.is_object() || !file.contains("size") || !file["size"].is_number_unsigned() || !file.contains("sha256") ||
        !file["sha256"].is_string() || !is_sha256(file["sha256"].get_ref<const std::string&>()))
      return other_form(fmt::format("gives no size or SHA-256 of {}", path));
    const MirrorFile its{file["size"].get<std::uint64_t>(), file["sha256"].get<std::string>()};
    if (its.bytes == 0 || its.bytes > kFileLimit)
      return other_form(fmt::format("gives {} bytes as the size of {}", its.bytes, path));
    manifest.files.emplace(path, its);
  }
  return manifest;
}

/// Reads the trusted keys; only root may be able to change or replace them.
Result<std::vector<KeyFile>> trusted(const Host& host, const MirrorPlace& place) {
  std::vector<KeyFile> keys;
  for (const std::string& file : place.trusted_keys) {
    TRY_IN("trusted_keys", only_root_changes(host.files(), file));
    std::string pem = TRY_IN("trusted_keys", host.files().read(file, kKeyLimit));
    keys.push_back({file, std::move(pem)});
  }
  return keys;
}

nlohmann::json seen(const Host& host) {
  auto json = parse_json(host.files().read(std::string(kCache) + std::string(kSeen), kManifestLimit).value_or(""));
  return json.is_object() ? json : nlohmann::json::object();
}

/// Time of the newest manifest of this URL that was used.
std::optional<MirrorTime> newest_seen(const Host& host, const std::string& url) {
  const nlohmann::json all = seen(host);
  const auto found = all.find(url);
  return found != all.end() && found->is_string() ? to_time(found->get<std::string>()) : std::nullopt;
}

Result<void> check_times(const Host& host, const std::string& url, const MirrorManifest& manifest) {
  const auto now = system_clock::now();
  if (manifest.valid_until <= now)
    return fail(ErrorCode::invalid, "its manifest was valid until " + to_text(manifest.valid_until),
                "Make it anew: \"p2pctl mirror make\".");
  if (manifest.made > now + kClocksDiffer)
    return fail(ErrorCode::invalid,
                fmt::format("its manifest was made at {}, and here it is {}", to_text(manifest.made),
                            to_text(std::chrono::time_point_cast<std::chrono::seconds>(now))),
                "Check the clocks of both machines.");
  const auto newest = newest_seen(host, url);
  if (newest && manifest.made < *newest)
    return fail(ErrorCode::invalid,
                fmt::format("its manifest is of {}, older than one of {} that was used here", to_text(manifest.made),
                            to_text(*newest)),
                fmt::format("Make it anew; where the older one is meant, remove {}{}.", kCache, kSeen));
  return {};
}

}  // namespace

MirrorPlace mirror_of(const Parameters& parameters) {
  MirrorPlace place{parameters.value("mirror", std::string()),
                    parameters.value("trusted_keys", std::vector<std::string>())};
  place.url.erase(place.url.find_last_not_of('/') + 1);
  return place;
}

Result<void> check_mirror(const MirrorPlace& place) {
  if (!place) return {};
  TRY(check_mirrors({place.url}));
  if (place.trusted_keys.empty())
    return fail(ErrorCode::invalid, "mirror: without trusted_keys nothing of it would be used");
  for (const std::string& file : place.trusted_keys)
    if (!file.starts_with('/'))
      return fail(ErrorCode::invalid, fmt::format("trusted_keys: '{}' is not an absolute path", file));
  return {};
}

Result<std::string> signed_manifest(const MirrorManifest& manifest, const KeyFile& key) {
  nlohmann::json files = nlohmann::json::object();
  for (const auto& [path, file] : manifest.files) files[path] = {{"size", file.bytes}, {"sha256", file.sha256}};
  const nlohmann::json json = {{"schema", kSchema},
                               {"made", to_text(manifest.made)},
                               {"valid_until", to_text(manifest.valid_until)},
                               {"files", std::move(files)}};
  const std::string text = json.dump(1) + "\n";
  return fmt::format("{} {}\n{}", kSchema, to_base64(TRY(sign(key, text))), text);
}

Result<MirrorManifest> read_manifest(std::string_view text, const std::vector<KeyFile>& keys) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view head = text.substr(0, end), json = text.substr(std::min(end + 1, text.size()));
  if (!head.starts_with(kSchema) || head.size() <= kSchema.size() + 1)
    return other_form(fmt::format("does not begin with {} and a signature", kSchema));
  const std::string signature = from_base64(std::string(head.substr(kSchema.size() + 1))).value_or("");
  TRY(verify(keys, signature, json));
  return parse_manifest(json);
}

Result<Mirror> Mirror::open(const Host& host, const MirrorPlace& place, std::chrono::seconds deadline) {
  TRY(check_mirror(place));
  const std::vector<KeyFile> keys = TRY(trusted(host, place));
  const std::string text = TRY(fetch_text(host, {.url = place.url + std::string(kMirrorManifest),
                                                 .limit_bytes = kManifestLimit,
                                                 .sha256 = {},
                                                 .deadline = deadline,
                                                 .stall = std::min(kStall, deadline)}));
  MirrorManifest manifest = TRY(read_manifest(text, keys));
  TRY(check_times(host, place.url, manifest));
  return Mirror(place.url, std::move(manifest));
}

Result<Mirror> Mirror::open(Host& host, const MirrorPlace& place) {
  Mirror mirror = TRY(open(std::as_const(host), place, kManifestDeadline));
  TRY(mirror.remember(host));
  return mirror;
}

Result<void> Mirror::fetch(Host& host, const std::string& path, const std::string& file) const {
  const auto found = manifest_.files.find(path);
  if (found == manifest_.files.end()) return fail(ErrorCode::not_found, "it has no " + path);
  const MirrorFile& wanted = found->second;
  const Downloaded done = TRY(fetch_file(host,
                                         {.url = url_ + "/" + path,
                                          .limit_bytes = wanted.bytes,
                                          .sha256 = wanted.sha256,
                                          .deadline = kFileDeadline,
                                          .stall = kStall},
                                         file));
  if (done.bytes == wanted.bytes) return {};
  return fail(ErrorCode::invalid,
              fmt::format("{} has {} bytes, and its manifest says {}", path, done.bytes, wanted.bytes));
}

Result<void> Mirror::remember(Host& host) const {
  nlohmann::json all = seen(host);
  if (all.value(url_, nlohmann::json()) == to_text(manifest_.made)) return {};
  all[url_] = to_text(manifest_.made);
  return host.write(std::string(kCache) + std::string(kSeen), all.dump(1) + "\n", 0644, Restore::discarded);
}

}  // namespace p2pd
