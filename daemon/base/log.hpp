// SPDX-License-Identifier: MIT
#pragma once

#include <spdlog/spdlog.h>
#include <functional>
#include <string>
#include <string_view>

namespace p2pd::log {

/// Logs to journald with native fields when standard error is the journal, else to standard error.
void start(std::string_view program, spdlog::level::level_enum level = spdlog::level::info);

/// From now on `listener` hears the text of each record, too. Its thread is the one that logs.
void listen(std::function<void(std::string_view)> listener);

/// While it lives, every record of its thread carries the field (journald name rules: A-Z, 0-9, _), for example
/// P2PD_STEP; an inner one of the same name hides the outer.
class Field {
 public:
  Field(std::string name, std::string value);
  ~Field();
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;

 private:
  std::string name_;
};

}  // namespace p2pd::log
