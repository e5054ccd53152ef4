// SPDX-License-Identifier: MIT
#include "engine/shared_file.hpp"

#include <algorithm>

#include "machine/boot/grub.hpp"
#include "machine/hardware/nccl.hpp"

namespace p2pd {
namespace {

struct Split {
  std::string others, block;
};

/// Nothing: a block has no end.
std::optional<Split> split(std::string_view text) {
  Split split;
  bool ours = false;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
    text.remove_prefix(line.size());
    const std::string_view words = line.substr(std::min(line.find_first_not_of('#'), line.size()));
    const bool comment = words.size() < line.size();
    ours |= comment && words.starts_with(" BEGIN p2pd");
    (ours ? split.block : split.others) += line;
    ours &= !(comment && words.starts_with(" END p2pd"));
  }
  return ours ? std::nullopt : std::optional(split);
}

}  // namespace

bool is_shared(std::string_view path) { return path == kNcclConf || path == kGrubCustom; }

std::optional<FileState> with_block_of(const FileState& old, const FileState& now) {
  const bool had_file = old.kind == FileState::Kind::regular;
  if (now.kind != FileState::Kind::regular || (!had_file && old.kind != FileState::Kind::absent)) return std::nullopt;
  const auto before = split(old.content), after = split(now.content);
  if (!before || !after) return std::nullopt;
  FileState merged = now;
  merged.content = after->others;
  if (!before->block.empty() && !merged.content.empty() && !merged.content.ends_with('\n')) merged.content += '\n';
  merged.content += before->block;
  return merged.content.empty() && !had_file ? FileState{} : merged;
}

}  // namespace p2pd
