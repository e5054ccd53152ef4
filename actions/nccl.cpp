// SPDX-License-Identifier: MIT
// nccl: makes NCCL use P2P as far as it is proven, by one block in /etc/nccl.conf.
// The block sets NCCL_P2P_LEVEL and no more, and is removed if NCCL's own choice is right. Other lines stay. A
// contradicting line that is not p2pd's is an error, and never changed: NCCL takes the first assignment. A user's
// ~/.nccl.conf takes precedence and is not touched. Writes /etc/nccl.conf. NCCL reads it when a program starts.
// Reference: NCCL, "Environment Variables"; machine/hardware/nccl.cpp.
#include "machine/hardware/nccl.hpp"

#include "base/action.hpp"

namespace p2pd {
namespace {

/// New content of the file; the old one if nothing needs to change. Error if a line that is not p2pd's contradicts.
Result<std::string> wanted(const Host& host) {
  const NcclPlan plan = TRY(nccl_plan(host));
  if (!plan.contradicting.empty() && !plan.unfit)
    return fail(ErrorCode::state, plan.contradiction() + " was not written by p2pd, which does not change it",
                "Remove that line.");
  if (plan.is_in_force()) return plan.conf.text;
  std::string text = plan.conf.foreign;
  if (!plan.block.empty() && !text.empty() && !text.ends_with('\n')) text += '\n';
  return text + plan.block;
}

Result<Description> describe(const Host& host, const Parameters&) {
  Description description;
  const std::string text = TRY(wanted(host));
  description.summary = text.empty() ? "remove /etc/nccl.conf" : "set NCCL_P2P_LEVEL in /etc/nccl.conf";
  description.files.push_back(
      {std::string(kNcclConf), text.empty() ? FileState::Kind::absent : FileState::Kind::regular, text});
  return description;
}

Result<void> apply(Host& host, const Parameters&) {
  std::string text = TRY(wanted(host));
  if (text == TRY(nccl_conf(host)).text) return {};
  return text.empty() ? host.remove(kNcclConf) : host.write(kNcclConf, std::move(text));
}

}  // namespace

extern const Action kNcclAction = {
    .id = "nccl",
    .topic = "nccl",
    .does = "sets NCCL_P2P_LEVEL in /etc/nccl.conf where NCCL does not use proven P2P by default",
    .describe = describe,
    .apply = apply,
};

}  // namespace p2pd
