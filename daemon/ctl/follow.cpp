// SPDX-License-Identifier: MIT
// A run of the service as it proceeds: each new finding as a line, and on a terminal a picture of the run below them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "base/json_members.hpp"
#include "base/terminal.hpp"
#include "ctl/service.hpp"
#include "engine/status.hpp"
#include "screen/print.hpp"

namespace p2pd::ctl {
namespace {

/// "45 s", "2 min 5 s", "1 h 3 min", "12 days"
std::string duration_text(std::int64_t seconds) {
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  if (seconds < 172'800) return fmt::format("{} h {} min", seconds / 3600, seconds % 3600 / 60);
  return fmt::format("{} days", seconds / 86'400);
}

using nlohmann::json;

constexpr int kEarlierRuns = 20;  // searched for the duration of each step

/// Seconds that each fix took in earlier runs, the newest time of each.
std::map<std::string, std::int64_t> earlier_times(const json& history) {
  std::map<std::string, std::int64_t> begun, took;
  for (const json& event : list_of(history, "events")) {
    const std::string type = text_of(event, "type"), step = text_of(event, "step");
    const std::optional<std::int64_t> time = unix_time(text_of(event, "time"));
    if (!time) continue;
    if (type == "fixing" || type == "proving") begun[step] = *time;
    if ((type == "fixed" || type == "proof") && begun.contains(step)) took[step] = *time - begun[step];
  }
  return took;
}

bool is_open(const json& step) {
  const std::string verdict = text_of(step, "verdict");
  return verdict != to_string(Verdict::pass) && verdict != to_string(Verdict::not_applicable);
}

/// Steps that the run has changed or may still change, and the goal.
std::vector<const json*> to_do(const json& status) {
  std::vector<const json*> steps;
  for (const json& step : list_of(status, "steps")) {
    const bool goal = text_of(step, "kind") == to_string(StepKind::goal);
    if (goal || is_changed(step) || (is_open(step) && !text_of(step, "fix").empty())) steps.push_back(&step);
  }
  return steps;
}

/// Picture of a run: its progress, what is being done, and what comes next.
class Picture {
 public:
  Picture(const json& status, const std::map<std::string, std::int64_t>& earlier, std::int64_t now)
      : status_(status), earlier_(earlier), now_(now), step_(field_of(status, "step")), steps_(to_do(status)) {}

  std::vector<std::string> lines() const {
    const std::string id = text_of(step_, "id"), doing = text_of(step_, "doing"), title = text_of(step_, "title");
    const std::string message = harmless(text_of(field_of(status_, "progress"), "message"));
    std::vector<std::string> out = {progress()};
    const std::string time = seconds_since(text_of(step_, "since"), id);
    if (doing == "waiting")
      out.push_back(fmt::format("  waiting{}: {}", time, message));
    else if (!id.empty())
      out.push_back(fmt::format("  {} {}{}{}{}", doing, id, title.empty() ? "" : ": ", title, time));
    if (doing != "waiting" && !message.empty()) out.push_back("    " + paint(Colour::dim, message));
    if (const std::vector<std::string> coming = next(); !coming.empty())
      out.push_back(fmt::format("  then {}", fmt::join(coming, ", ")));
    out.push_back(
        paint(Colour::dim, "  Ctrl-C detaches. If the machine hangs: power-cycle; p2pd continues or reverts."));
    return out;
  }

 private:
  /// "[#####---------------] 1 of 4 to do, 3 min 10 s"
  std::string progress() const {
    constexpr std::size_t kBar = 20;
    const auto done =
        static_cast<std::size_t>(std::ranges::count_if(steps_, [](const json* s) { return !is_open(*s); }));
    const std::size_t total = std::max<std::size_t>(steps_.size(), 1);
    const bool back = text_of(status_, "state") == to_string(RunState::reverting);
    const std::string so_far =
        back ? fmt::format("undoing; {} undone", list_of(status_, "undone").size())
             : fmt::format("[{:-<{}}] {} of {} to do", std::string(kBar * done / total, '#'), kBar, done, total);
    return fmt::format("{} {}{}{}", paint(Colour::bold, text_of(status_, "plan")), paint(Colour::blue, so_far),
                       seconds_since(text_of(status_, "started"), ""), back ? "" : left());
  }

  /// ", about 6 min left" if every step to do was done before.
  std::string left() const {
    std::int64_t sum = 0;
    for (const json* step : steps_) {
      if (!is_open(*step)) continue;
      const auto known = earlier_.find(text_of(*step, "id"));
      if (known == earlier_.end()) return "";
      sum += known->second;
    }
    return sum == 0 ? "" : fmt::format(", about {} left", duration_text(sum));
  }

  /// ", 3 min 10 s", and ", earlier 5 min" for a step that took some time before.
  std::string seconds_since(const std::string& since, const std::string& step) const {
    const std::optional<std::int64_t> from = unix_time(since);
    if (!from) return "";
    const auto before = earlier_.find(step);
    return ", " + duration_text(std::max<std::int64_t>(now_ - *from, 0)) +
           (before == earlier_.end() || before->second < 2
                ? ""
                : fmt::format(" (earlier {})", duration_text(before->second)));
  }

  std::vector<std::string> next() const {
    std::vector<std::string> names;
    const auto here = std::ranges::find(steps_, text_of(step_, "id"), [](const json* s) { return text_of(*s, "id"); });
    for (auto at = here == steps_.end() ? steps_.begin() : here + 1; at != steps_.end(); ++at)
      if (is_open(**at)) names.push_back(text_of(**at, "id"));
    if (text_of(status_, "state") == to_string(RunState::reverting)) names.clear();
    return names;
  }

  const json& status_;
  const std::map<std::string, std::int64_t>& earlier_;
  std::int64_t now_;
  const json& step_;
  std::vector<const json*> steps_;
};

/// Prints a run as it proceeds. A finding from before a fix is not new after it.
class Show {
 public:
  /// `ends`: also print the final state of a run.
  Show(const Options& options, bool ends, const json& history)
      : json_(options.json && options.watch),
        silent_(options.json),
        ends_(ends),
        live_(!silent_ && obeys_escapes(STDOUT_FILENO)),
        earlier_(earlier_times(history)) {}
  ~Show() { clear_lines(std::exchange(drawn_, 0)); }
  Show(const Show&) = delete;
  Show& operator=(const Show&) = delete;

  void look(const json& status) {
    if (json_ && std::exchange(last_, status) != status)
      fmt::print("{}\n", status.dump(-1, ' ', false, json::error_handler_t::replace));
    if (!silent_) show(status);
    std::fflush(stdout);
  }

 private:
  void show(const json& status) {
    clear_lines(std::exchange(drawn_, 0));
    for (const json& step : list_of(status, "steps")) {
      const std::string id = text_of(step, "id"), summary = text_of(step, "summary"),
                        found = text_of(step, "verdict") + summary;
      if (text_of(step, "verdict").empty() || std::exchange(found_[id], found) == found) continue;
      print_table({{mark_of(step), id, summary}});
    }
    if (!live_) tell_change(field_of(status, "step"));
    if (live_ && !at_rest(status)) drawn_ = print_lines(Picture(status, earlier_, std::time(nullptr)).lines());
    const std::string state = text_of(status, "state");
    if (ends_ && at_rest(status) && std::exchange(told_, state) != state)
      fmt::print("{}  {}\n", paint(Colour::bold, state), harmless(text_of(status, "reason")));
    if (!at_rest(status)) told_.clear();
  }
  /// Prints a line for each fix as it begins, without a terminal.
  void tell_change(const json& step) {
    const std::string doing = text_of(step, "doing"), now = text_of(step, "id") + " " + doing;
    if (std::exchange(doing_, now) != now && (doing == "fixing" || doing == "undoing"))
      print_table({{paint(Colour::blue, "…"), text_of(step, "id"), doing}});
  }

  bool json_, silent_, ends_, live_;
  std::map<std::string, std::int64_t> earlier_;
  std::size_t drawn_ = 0;  ///< lines of the picture
  json last_;
  std::map<std::string, std::string> found_;  ///< last printed verdict and summary of a step
  std::string doing_;                         ///< the current step, and its operation
  std::string told_;                          ///< last printed final state
};

}  // namespace

std::optional<std::int64_t> unix_time(const std::string& time) {
  std::tm parts{};
  const char* end = ::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return ::timegm(&parts);
}

Result<json> follow(Service& service, const Context& context, const std::function<bool(const json&)>& end) {
  const Options& options = context.options;
  Show show(options, options.watch, service.history(kEarlierRuns, 0).value_or(json()));
  json newest;
  const int stop_fd = stop_signals();
  int idle_looks = 0;
  TRY(service.follow(
      [&](const json& status) {
        newest = status;
        show.look(status);
        const bool abandoned =
            !options.watch && !status.value("at_work", false) && ++idle_looks > 10;  // the worker was stopped
        if (status.value("at_work", false)) idle_looks = 0;
        return end(status) || abandoned;
      },
      stop_fd));
  return newest;
}

Result<int> ask_service(const Context& context, const Request& request) {
  Service service = TRY(Service::open(context.options));
  TRY(service.ask(request));
  // a pause takes effect between two steps, and the current step may take long
  if (context.options.no_block || request.event == Event::pause)  // status reports the result
    return show_status(context, TRY(service.report()), {}, kDone);
  // a run that waits for a restart is about to change its state, and not at rest
  const bool turns_back = request.event == Event::cancel || request.event == Event::revert;
  int looks = 0;
  const json after = TRY(follow(service, context, [&](const json& status) {
    if (turns_back && text_of(status, "state") == "rebooting" && ++looks < 5) return false;
    return at_rest(status);
  }));
  Ending ending;
  ending.changed = std::ranges::any_of(list_of(after, "steps"), is_changed);
  ending.stopped = text_of(after, "state") == "walking" ||
                   (text_of(after, "state") == "reverting" && !after.value("reboot_required", false));
  return print_status(context, after, ending);
}

}  // namespace p2pd::ctl
