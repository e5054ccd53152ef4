// SPDX-License-Identifier: MIT
// bus_fuzz [--calls N] [--seed S] [--window W] [--name NAME] [PATH]...: calls every method of a bus service with odd
// arguments.
//
// Methods are those that introspection of PATH lists, standard interfaces included, and made-up names. Half of the
// calls have the right signature and odd values, half a random signature. They are sent without waiting, up to W at
// once, to the bus at DBUS_SYSTEM_BUS_ADDRESS. Prints a line for each method: the number of calls answered, and the
// number refused with each error. Exit 1: the service disconnected, or did not answer in time.
#include <systemd/sd-bus.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "odd_messages.hpp"

namespace {

using odd_messages::Maker;
using odd_messages::must;

constexpr std::uint64_t kAnswerDeadline = 60'000'000;  // µs
constexpr std::string_view kProperties = "org.freedesktop.DBus.Properties";

struct Options {
  std::uint64_t calls = 1000;  ///< of each method
  std::uint64_t seed = 1;
  std::uint64_t window = 256;
  std::string name = "org.p2pd1";
  std::vector<std::string> paths;
};

struct Unref {
  void operator()(sd_bus* bus) const { sd_bus_flush_close_unref(bus); }
  void operator()(sd_bus_message* message) const { sd_bus_message_unref(message); }
};
using Bus = std::unique_ptr<sd_bus, Unref>;
using Message = std::unique_ptr<sd_bus_message, Unref>;

/// A method, and the results of its calls.
struct Method {
  std::string path, interface, name, signature;
  std::uint64_t sent = 0, replies = 0, unasked = 0;  ///< unasked: sent with "no reply expected"
  std::map<std::string, std::uint64_t> errors = {};
};

/// The value of `attribute` in an XML tag, which is that of sd-bus or of libdbus: no entities, no spaces about "=".
std::string attribute_of(const std::string& tag, const std::string& attribute) {
  const std::size_t at = tag.find(" " + attribute + "=");
  if (at == std::string::npos) return {};
  const std::size_t begin = at + attribute.size() + 3;
  return tag.substr(begin, tag.find(tag[begin - 1], begin) - begin);
}

/// Calls `told` for each tag of an introspection text.
void each_tag(const std::string& text, const std::function<void(const std::string&)>& told) {
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos) return;
    told(text.substr(at, end - at));
  }
}

class Fuzzer {
 public:
  explicit Fuzzer(const Options& options) : options_(options), maker_(options.seed) {
    sd_bus* bus = nullptr;
    must(sd_bus_open_system(&bus), "the bus");
    bus_.reset(bus);
    const std::string rule =
        "type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='" + options_.name + "'";
    must(sd_bus_add_match(bus, nullptr, rule.c_str(), on_owner, this), "the match for the owner");
    ping();
    for (const std::string& path : options_.paths) discover(path);
    if (methods_.empty()) throw std::runtime_error("introspection tells of no method");
    methods_.push_back({"", "", "(what there is not)", ""});
  }

  void run() {
    for (Method& method : methods_) {
      std::uint64_t window = options_.window;
      for (std::uint64_t count = 0; count < options_.calls; ++count) {
        // a caller with many pending calls is refused before these are read: uses a small window now and then
        if (count % 500 == 0) window = maker_.one_in(3) ? 4 : options_.window;
        if (in_flight_ >= window) drain(window / 2);
        send(method);
      }
      drain(0);
      print(method);
    }
    ping();
  }

 private:
  void discover(const std::string& path) {
    sd_bus_error error{};
    sd_bus_message* answer = nullptr;
    const int status = sd_bus_call_method(bus_.get(), options_.name.c_str(), path.c_str(),
                                          "org.freedesktop.DBus.Introspectable", "Introspect", &error, &answer, "");
    if (status < 0)
      throw std::runtime_error("introspection of " + path + ": " +
                               (error.message != nullptr ? error.message : std::strerror(-status)));
    const Message owned(answer);
    const char* text = nullptr;
    must(sd_bus_message_read(answer, "s", &text), "introspection");
    std::string interface;
    bool in_method = false;
    each_tag(text, [&](const std::string& tag) {
      const std::string name = attribute_of(tag, "name");
      const std::string kind = tag.substr(1, tag.find_first_of(" />", 1) - 1);
      if (kind == "method" || kind == "signal" || kind == "property") in_method = kind == "method";
      if (kind == "interface") interface = name;
      if (kind == "interface" || kind == "method" || kind == "property") maker_.learn(name);
      if (kind == "property") properties_.emplace_back(interface, name);
      if (kind == "method") methods_.push_back({path, interface, name, ""});
      if (kind == "arg" && in_method && attribute_of(tag, "direction") != "out")
        methods_.back().signature += attribute_of(tag, "type");
    });
  }

  Message made(const Method& method) {
    std::string path = method.path, interface = method.interface, name = method.name;
    if (path.empty()) {
      static constexpr std::string_view kNames[] = {"Frobnicate", "apply", "Apply_", "Destroy", "SetState", "A"};
      static constexpr std::string_view kPlaces[] = {"/", "/org", "/org/p2pd1", "/org/p2pd1/", "/org/p2pd2"};
      path = maker_.one_of(kPlaces);
      if (path.size() > 1 && path.ends_with('/')) path += std::to_string(maker_.below(1000));
      interface = maker_.one_in(2) ? maker_.one_of(methods_).interface : "org.p2pd1.Other";
      name = maker_.one_of(kNames);
    }
    const bool whatever = interface.empty() || maker_.one_in(50);  // a call may leave its interface out
    sd_bus_message* message = nullptr;
    must(sd_bus_message_new_method_call(bus_.get(), &message, options_.name.c_str(), path.c_str(),
                                        whatever ? nullptr : interface.c_str(), name.c_str()),
         "a call");
    Message owned(message);
    must(sd_bus_message_set_allow_interactive_authorization(message, maker_.one_in(2)), "a flag");
    if (interface == kProperties && !properties_.empty() && maker_.one_in(3)) {
      const auto& [of, property] = maker_.one_of(properties_);
      must(sd_bus_message_append(message, "s", of.c_str()), "an interface");
      if (name != "GetAll") must(sd_bus_message_append(message, "s", property.c_str()), "a property");
      if (name == "Set") maker_.append(message, "v");
    } else {
      maker_.append(message, maker_.one_in(2) ? method.signature : maker_.types(0, 0));
    }
    return owned;
  }

  void send(Method& method) {
    const Message message = made(method);
    ++method.sent;
    if (maker_.one_in(100)) {
      must(sd_bus_message_set_expect_reply(message.get(), 0), "a flag");
      must(sd_bus_send(bus_.get(), message.get(), nullptr), "sending");
      ++method.unasked;
      return;
    }
    pending_.push_back({this, &method});
    const auto one = std::prev(pending_.end());
    one->self = one;
    must(sd_bus_call_async(bus_.get(), nullptr, message.get(), on_reply, &*one, kAnswerDeadline),
         "sending to " + method.name);
    ++in_flight_;
  }

  /// Reads until no more than `left` calls wait for their answer.
  void drain(std::uint64_t left) {
    while (in_flight_ > left) process();
  }
  void process() {
    const int done = must(sd_bus_process(bus_.get(), nullptr), "the bus");
    if (!gone_.empty()) throw std::runtime_error(gone_);
    if (done == 0) must(sd_bus_wait(bus_.get(), kAnswerDeadline), "the bus");
  }

  struct Pending {
    Fuzzer* fuzzer;
    Method* method;
    std::list<Pending>::iterator self = {};
  };

  static int on_reply(sd_bus_message* answer, void* data, sd_bus_error*) {
    const Pending one = *static_cast<Pending*>(data);
    one.fuzzer->pending_.erase(one.self);
    --one.fuzzer->in_flight_;
    const sd_bus_error* error = sd_bus_message_get_error(answer);
    if (error == nullptr) {
      ++one.method->replies;
      return 0;
    }
    const std::string name = error->name;
    ++one.method->errors[name];
    if (name == SD_BUS_ERROR_NO_REPLY || name == SD_BUS_ERROR_TIMEOUT || name == SD_BUS_ERROR_SERVICE_UNKNOWN ||
        name == SD_BUS_ERROR_NAME_HAS_NO_OWNER)
      one.fuzzer->gone_ = one.method->name + " was answered by " + name;
    return 0;
  }
  static int on_owner(sd_bus_message*, void* data, sd_bus_error*) {
    static_cast<Fuzzer*>(data)->gone_ = "the service went away";
    return 0;
  }

  void ping() {
    sd_bus_error error{};
    const int status = sd_bus_call_method(bus_.get(), options_.name.c_str(), options_.paths.front().c_str(),
                                          "org.freedesktop.DBus.Peer", "Ping", &error, nullptr, "");
    if (status < 0)
      throw std::runtime_error(
          options_.name + " does not answer: " + (error.message != nullptr ? error.message : std::strerror(-status)));
  }

  static void print(const Method& method) {
    std::printf("%s %s.%s(%s): %lu calls, %lu answered, %lu unasked", method.path.c_str(), method.interface.c_str(),
                method.name.c_str(), method.signature.c_str(), method.sent, method.replies, method.unasked);
    for (const auto& [name, count] : method.errors) std::printf(", %s %lu", name.c_str(), count);
    std::printf("\n");
    std::fflush(stdout);
  }

  Options options_;
  Maker maker_;
  Bus bus_;
  std::list<Pending> pending_;
  std::vector<Method> methods_;
  std::vector<std::pair<std::string, std::string>> properties_;  ///< interface, name
  std::uint64_t in_flight_ = 0;
  std::string gone_;  ///< reason why this cannot continue; empty: it can
};

Options options_of(const std::vector<std::string>& words) {
  Options options;
  const std::map<std::string, std::uint64_t*> numbers{
      {"--calls", &options.calls}, {"--seed", &options.seed}, {"--window", &options.window}};
  for (std::size_t at = 0; at < words.size(); ++at) {
    const auto number = numbers.find(words[at]);
    const bool option = words[at].starts_with("--");
    if (!option) {
      options.paths.push_back(words[at]);
    } else if (at + 1 == words.size() || (number == numbers.end() && words[at] != "--name")) {
      throw std::runtime_error("usage: bus_fuzz [--calls N] [--seed S] [--window W] [--name NAME] [PATH]...");
    } else if (number != numbers.end()) {
      *number->second = std::stoull(words[++at]);
    } else {
      options.name = words[++at];
    }
  }
  if (options.paths.empty()) options.paths = {"/org/p2pd1"};
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Fuzzer(options_of({argv + 1, argv + argc})).run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bus_fuzz: %s\n", error.what());
    return 1;
  }
}
