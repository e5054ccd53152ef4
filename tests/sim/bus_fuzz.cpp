// SPDX-License-Identifier: MIT
// bus_fuzz [--calls N] [--seed S] [--window W] [--name NAME] [PATH]...: calls every method of a bus service with odd
// arguments.
//
// What there is to call is what introspection of PATH tells, the standard interfaces too, and what there is not: names
// made up. Half of the calls have the right signature and odd values, half a random signature. They are sent without
// waiting, up to W at once, to the bus that DBUS_SYSTEM_BUS_ADDRESS names. Prints a line for each method: how many
// calls were answered, and how many refused by which error. Exit 1: the service went away, or owed an answer for too
// long.
#include <systemd/sd-bus.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t kAnswerDeadline = 60'000'000;  // µs
constexpr std::string_view kProperties = "org.freedesktop.DBus.Properties";
constexpr std::string_view kBasics = "ybnqiuxtdsog";

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

/// Of a call of libsystemd that must not fail.
int must(int result, const std::string& what) {
  if (result < 0) throw std::runtime_error(what + ": " + std::strerror(-result));
  return result;
}

/// A method, and what came of calling it.
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

/// Makes messages; everything that is random comes from here.
class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t limit) {
    return std::uniform_int_distribution<std::uint64_t>(0, limit - 1)(random_);
  }
  bool one_in(std::uint64_t count) { return below(count) == 0; }
  template <class Container>
  const auto& one_of(const Container& rows) {
    return rows[below(std::size(rows))];
  }

  /// A word that means something to the service: arguments are such words now and then.
  void learn(const std::string& word) { words_.push_back(word); }

  std::string text() {
    if (one_in(3)) return one_of(words_);
    if (one_in(400)) return std::string(1 + below(60'000), one_in(2) ? 'x' : '/');
    static constexpr std::string_view kPieces[] = {
        "\x01", "\x1b[2J",    "\x7f", "\n",    "%s%n",  "..", "/",
        "ä",    "\U0001F980", "\"",   "\\",    "{",     "}",  "\"}\n{\"do\":\"revert\"}",
        "plan", " ",          "-",    "$(id)", "\u202e"};
    std::string made;
    for (std::uint64_t count = below(6); count > 0; --count)
      made += one_in(2) ? std::string(one_of(kPieces)) : std::string(1 + below(20), static_cast<char>(' ' + below(95)));
    return made;
  }

  /// One complete type.
  std::string type(int depth) {
    const std::uint64_t kind = depth > 3 ? 0 : below(10);
    if (kind == 6) return "v";
    if (kind == 7) return "a" + type(depth + 1);
    if (kind == 8) return "(" + types(1, depth + 1) + ")";
    if (kind == 9) return "a{" + std::string(1, one_of(kBasics)) + type(depth + 1) + "}";
    return std::string(1, one_of(kBasics));
  }
  std::string types(std::uint64_t least, int depth) {
    std::string made;
    do {
      made.clear();
      for (std::uint64_t count = least + below(4); count > 0; --count) made += type(depth);
    } while (made.size() > 200);  // 255 is all that D-Bus takes
    return made;
  }

  void append(sd_bus_message* message, const std::string& signature, int depth = 0) {
    for (std::size_t at = 0; at < signature.size();) {
      const std::size_t length = length_of(signature, at);
      append_one(message, signature.substr(at, length), depth);
      at += length;
    }
  }

 private:
  /// How long the complete type at `at` is.
  static std::size_t length_of(const std::string& signature, std::size_t at) {
    if (signature[at] == 'a') return 1 + length_of(signature, at + 1);
    if (signature[at] != '(' && signature[at] != '{') return 1;
    std::size_t end = at;
    for (int open = 0; end < signature.size(); ++end) {
      if (signature[end] == '(' || signature[end] == '{') ++open;
      if ((signature[end] == ')' || signature[end] == '}') && --open == 0) break;
    }
    return end - at + 1;
  }

  void append_one(sd_bus_message* message, const std::string& type, int depth) {
    const char first = type[0];
    if (first == 'v') return append_variant(message, depth);
    if (first == 'a') {
      const std::string content = type.substr(1);
      must(sd_bus_message_open_container(message, 'a', content.c_str()), "array");
      for (std::uint64_t count = depth > 4 ? 0 : one_in(200) ? below(500) : below(4); count > 0; --count)
        append_one(message, content, depth + 1);
    } else if (first == '(' || first == '{') {
      const std::string content = type.substr(1, type.size() - 2);
      must(sd_bus_message_open_container(message, first == '(' ? 'r' : 'e', content.c_str()), "struct");
      append(message, content, depth + 1);
    } else {
      return append_basic(message, first);
    }
    must(sd_bus_message_close_container(message), "end of a container");
  }

  void append_variant(sd_bus_message* message, int depth) {
    const std::string content = depth > 5 ? "b" : one_in(20) ? "v" : one_in(3) ? "b" : one_in(3) ? "s" : type(depth);
    must(sd_bus_message_open_container(message, 'v', content.c_str()), "variant");
    append_one(message, content, depth + 1);
    must(sd_bus_message_close_container(message), "end of a variant");
  }

  void append_basic(sd_bus_message* message, char type) {
    if (type == 's') return append_string(message, type, text());
    if (type == 'o') return append_string(message, type, std::string(one_of(kPaths)));
    if (type == 'g') return append_string(message, type, types(0, 1));
    static constexpr std::uint64_t kNumbers[] = {0,
                                                 1,
                                                 2,
                                                 7,
                                                 0x7f,
                                                 0x80,
                                                 0xffff,
                                                 0x7fffffff,
                                                 0x80000000,
                                                 0xffffffff,
                                                 0x7fffffffffffffff,
                                                 0x8000000000000000,
                                                 0xffffffffffffffff};
    const std::uint64_t number = one_in(2) ? one_of(kNumbers) : random_();
    if (type == 'b') {
      const int truth = number & 1;
      must(sd_bus_message_append_basic(message, type, &truth), "boolean");
    } else {
      must(sd_bus_message_append_basic(message, type, &number),
           "number");  // little-endian: the low bytes are the smaller type
    }
  }
  static void append_string(sd_bus_message* message, char type, const std::string& text) {
    must(sd_bus_message_append_basic(message, type, text.c_str()), "string");
  }

  static constexpr std::string_view kPaths[] = {
      "/", "/org/p2pd1", "/org", "/org/p2pd1/run/7", "/org/freedesktop/DBus", "/a/_/0"};
  std::mt19937_64 random_;
  std::vector<std::string> words_{
      "",       "..",          "../x",   "../../etc/passwd",         "/etc/p2pd/plans/work.yaml",
      "reboot", "geforce-p2p", "verify", "org.freedesktop.DBus.Peer"};
};
static_assert(std::endian::native == std::endian::little);

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
        // who has many questions open is refused before anybody looks at them: now and then only a few
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
  std::string gone_;  ///< why this cannot go on; empty: it can
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
