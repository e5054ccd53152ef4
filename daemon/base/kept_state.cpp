// SPDX-License-Identifier: MIT
#include "base/kept_state.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace p2pd {

Result<std::string> begin_kept(Host& host, std::string_view place) {
  std::string kept = fmt::format("{}/{}", place, host.change());
  if (!host.files().exists(place)) {
    TRY(host.will_change(place, Restore::by_action));
    TRY(host.make_directory(place));
  }
  TRY(host.make_directory(
      kept));  // made before the change is recorded: without it, undo would take what an older p2pd kept
  TRY(host.will_change(place, Restore::by_action));
  return kept;
}

std::string kept_for_undo(const Host& host, std::string_view place) {
  std::string kept = fmt::format("{}/{}", place, host.change());
  return host.files().exists(kept) ? kept : std::string(place);
}

Result<void> clear_kept(Host& host, std::string_view place) {
  const std::string kept = kept_for_undo(host, place);
  if (kept == place) return host.remove_tree(place);
  for (const std::string& name : TRY(host.files().list(kept))) TRY(host.remove_tree(kept + "/" + name));
  const std::vector<std::string> all = TRY(host.files().list(place));
  const bool in_use = std::ranges::any_of(all, [&](const std::string& name) {
    const auto inside = host.files().list(fmt::format("{}/{}", place, name));
    return !inside || !inside->empty();
  });
  return in_use ? Result<void>() : host.remove_tree(place);
}

}  // namespace p2pd
