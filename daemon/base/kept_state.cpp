// SPDX-License-Identifier: MIT
#include "base/kept_state.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace p2pd {

/// "7-cuda"; an older p2pd kept files in `place` itself, and directories with names of kernels: "6.8.0-60-generic".
static bool is_of_run(std::string_view name) { return name.find('-') < name.find('.'); }

Result<std::string> begin_kept(Host& host, std::string_view place) {
  std::string kept = fmt::format("{}/{}", place, host.change());
  if (!host.files().exists(place)) {
    TRY(host.will_change(place, Restore::by_action));
    TRY(host.make_directory(place));
  }
  TRY(host.make_directory(kept));  // precedes the record: without it, undo would take what an older p2pd kept
  TRY(host.will_change(place, Restore::by_action));
  return kept;
}

std::string kept_for_undo(const Host& host, std::string_view place) {
  std::string kept = fmt::format("{}/{}", place, host.change());
  return host.files().exists(kept) ? kept : std::string(place);
}

Result<void> clear_kept(Host& host, std::string_view place) {
  if (!host.files().exists(place)) return {};
  const std::string kept = kept_for_undo(host, place);
  const bool own = kept != place;
  for (const std::string& name : TRY(host.files().list(kept)))
    if (own) TRY(host.remove_tree(kept + "/" + name));
  const auto in_use = [&](const std::string& name) {
    const auto inside = host.files().list(fmt::format("{}/{}", place, name));
    return inside ? !inside->empty() && (own || is_of_run(name)) : own;
  };
  return std::ranges::any_of(TRY(host.files().list(place)), in_use) ? Result<void>() : host.remove_tree(place);
}

}  // namespace p2pd
