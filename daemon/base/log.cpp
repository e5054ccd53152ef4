// SPDX-License-Identifier: MIT
#include "base/log.hpp"

#include <spdlog/tweakme.h>  // Debian defines SPDLOG_FMT_EXTERNAL there
#ifndef SPDLOG_FMT_EXTERNAL
#define SPDLOG_FMT_EXTERNAL  // same fmt as in the other files
#endif
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/systemd_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "base/terminal.hpp"
#include "base/url.hpp"

namespace p2pd::log {
namespace {

thread_local std::vector<std::pair<std::string, std::string>> fields;

// Casts the level: both types have the same levels in the same order.
spdlog::level::level_enum of_spdlog(Level level) { return static_cast<spdlog::level::level_enum>(level); }

/// Sends records to journald with their fields, which spdlog's own sink does not have; to standard error if journald
/// does not accept them.
class JournalSink : public spdlog::sinks::systemd_sink_mt {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::string text(message.payload.data(), message.payload.size()),
        program(message.logger_name.data(), message.logger_name.size()),
        priority = std::to_string(syslog_level(message.level));
    std::vector<std::string> entries = {"MESSAGE=" + text, "PRIORITY=" + priority, "SYSLOG_IDENTIFIER=" + program};
    for (auto field = fields.rbegin(); field != fields.rend(); ++field) {
      const bool hidden =
          std::any_of(fields.rbegin(), field, [&](const auto& inner) { return inner.first == field->first; });
      if (!hidden) entries.push_back(field->first + "=" + field->second);
    }
    std::vector<iovec> parts;
    for (std::string& entry : entries) parts.push_back({entry.data(), entry.size()});
    if (::sd_journal_sendv(parts.data(), static_cast<int>(parts.size())) >= 0) return;
    const std::string line = "<" + priority + ">" + text + "\n";
    (void)!::write(STDERR_FILENO, line.data(), line.size());
  }
};

/// Compares standard error with the device and inode that systemd names; a redirected one does not match.
bool stderr_is_journal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat info {};
  if (stream == nullptr || ::fstat(STDERR_FILENO, &info) != 0) return false;
  return stream == std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
}

spdlog::sink_ptr stderr_sink() {
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(
      has_colours(STDERR_FILENO) ? spdlog::color_mode::always : spdlog::color_mode::never);
  sink->set_pattern("%n: %^%l%$: %v");
  return sink;
}

}  // namespace

Level level_called(std::string_view name) {
  const auto found = static_cast<Level>(spdlog::level::from_str(std::string(name)));  // off for another name
  return found == Level::off && name != "off" ? Level::info : found;
}

Level level() { return static_cast<Level>(spdlog::get_level()); }

void set_level(Level least) { spdlog::set_level(of_spdlog(least)); }

void write(Level level, std::string_view text) {
  const std::string shown = without_user_info(std::string(text));
  spdlog::log(of_spdlog(level), spdlog::string_view_t(shown.data(), shown.size()));
}

void start(std::string_view program, Level least) {
  auto logger = std::make_shared<spdlog::logger>(std::string(program),
                                                 stderr_is_journal() ? std::make_shared<JournalSink>() : stderr_sink());
  logger->set_level(of_spdlog(least));
  spdlog::set_default_logger(std::move(logger));
}

void listen(std::function<void(std::string_view)> listener) {
  class Listening : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {  // no lock: the listener may log
   public:
    explicit Listening(std::function<void(std::string_view)> hears) : hears_(std::move(hears)) {}

   protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
      hears_({message.payload.data(), message.payload.size()});
    }
    void flush_() override {}

   private:
    std::function<void(std::string_view)> hears_;
  };
  spdlog::default_logger()->sinks().push_back(std::make_shared<Listening>(std::move(listener)));
}

Field::Field(std::string name, std::string value) : name_(name) {
  fields.emplace_back(std::move(name), without_user_info(std::move(value)));
}

Field::~Field() {
  const auto last =
      std::find_if(fields.rbegin(), fields.rend(), [&](const auto& field) { return field.first == name_; });
  if (last != fields.rend()) fields.erase(std::next(last).base());
}

}  // namespace p2pd::log
