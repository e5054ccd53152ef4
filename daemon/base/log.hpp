// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>

namespace p2pd::log {

enum class Level { trace, debug, info, warning, error, critical, off };

/// Level by its name, as here and in p2pd.yaml; info for another name.
Level level_called(std::string_view name);

/// Logs to journald with native fields when standard error is the journal, else to standard error.
void start(std::string_view program, Level least = Level::info);

/// Least level that is written.
Level level();
void set_level(Level least);

void write(Level level, std::string_view text);

template <class... Arguments>
void write(Level level, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write(level, std::string_view(fmt::vformat(format, fmt::make_format_args(arguments...))));
}
template <class... Arguments>
void info(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write(Level::info, format, std::forward<Arguments>(arguments)...);
}
template <class... Arguments>
void warning(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write(Level::warning, format, std::forward<Arguments>(arguments)...);
}
template <class... Arguments>
void error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write(Level::error, format, std::forward<Arguments>(arguments)...);
}

/// Passes the text of each later record to `listener`, in the thread that logs.
void listen(std::function<void(std::string_view)> listener);

/// Adds the field to every record of its thread while it lives (journald name rules: A-Z, 0-9, _), for example
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
