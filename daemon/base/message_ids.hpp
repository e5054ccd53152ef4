// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

/// MESSAGE_ID of each kind of entry about a run in the journal; units/p2pd.catalog explains each to a person.
namespace p2pd::message_id {

inline constexpr std::string_view kRunStarted = "8e2f6a4b0c7d4e1f9a3b5c6d7e8f9012";
inline constexpr std::string_view kStepChanged = "1f4b7c2e5a8d4069b3c6e9f2a5d8b014";
inline constexpr std::string_view kBlocked = "5c9d3e7f1a2b4c68905d6e7f8a9b0c13";
inline constexpr std::string_view kRebooting = "7a1c3e5f9b2d4068a4c6e8f0b2d4f617";
inline constexpr std::string_view kLimited = "5c1f6e0d2b7a4f398d8e7a91c3b5d604";
inline constexpr std::string_view kReady = "b3d5f7091a2c4e6f8091a2b3c4d5e6f8";
inline constexpr std::string_view kFailed = "c4e6081a3b5d4f7092a4b6c8d0e2f419";
inline constexpr std::string_view kReverted = "d5f7192b4c6e408193a5b7c9d1e3f50a";

}  // namespace p2pd::message_id
