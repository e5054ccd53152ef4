// SPDX-License-Identifier: MIT
// D-Bus messages with odd arguments, of any signature: what bus_fuzz.cpp sends.
#pragma once

#include <systemd/sd-bus.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace odd_messages {

inline constexpr std::string_view kBasics = "ybnqiuxtdsog";

/// Result of a call of libsystemd that must not fail.
inline int must(int result, const std::string& what) {
  if (result < 0) throw std::runtime_error(what + ": " + std::strerror(-result));
  return result;
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

  /// Adds a word that the service knows: some arguments are such words.
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
    } while (made.size() > 200);  // the limit of D-Bus is 255
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
  /// Length of the complete type at `at`.
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

}  // namespace odd_messages
