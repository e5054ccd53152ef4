// SPDX-License-Identifier: MIT
#include "base/yaml.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/parser.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/utf8.hpp"

namespace p2pd::yaml {
namespace {

constexpr std::size_t kTextLimit = 1U << 20;
constexpr int kDepthLimit = 32;
constexpr std::size_t kItemLimit = 1000;

/// Checks a document's events before any node is built: aliases may make cycles, and depth may exhaust the stack.
class Guard : public YAML::EventHandler {
 public:
  std::string complaint;
  int line = 0;

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) complain(mark, "a second document (---); expected one");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { complain(mark, "aliases (*name) are not allowed"); }
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    enter(mark);
  }
  void OnSequenceEnd() override { --depth_; }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    enter(mark);
  }
  void OnMapEnd() override { --depth_; }

 private:
  void enter(const YAML::Mark& mark) {
    if (++depth_ > kDepthLimit) {
      complain(mark, "nested deeper than 32 levels");
      throw YAML::ParserException(mark, complaint);  // caught in parse(): the parser has no other way to stop
    }
  }
  void complain(const YAML::Mark& mark, std::string what) {
    if (!complaint.empty()) return;
    complaint = std::move(what);
    line = mark.line + 1;
  }
  int depth_ = 0;
  int documents_ = 0;
};

/// Line (from 1) of the first byte that is not UTF-8; 0 if there is none.
int bad_utf8_line(std::string_view text) {
  int line = 1;
  while (!text.empty()) {
    if (text.front() == '\n') ++line;
    const std::size_t length = utf8_sequence(text);
    if (length == 0) return line;
    text.remove_prefix(length);
  }
  return 0;
}

std::string quoted(std::span<const std::string_view> names) { return fmt::format("{}", fmt::join(names, ", ")); }

}  // namespace

Result<Node> parse(std::string_view text, std::string_view file) {
  const auto refuse = [&](int line, std::string_view what) {
    return p2pd::fail(ErrorCode::invalid, fmt::format("{}:{}: {}", file, line, what));
  };
  if (text.size() > kTextLimit) return refuse(1, fmt::format("{} bytes; expected at most 1 MiB", text.size()));
  if (const int line = bad_utf8_line(text)) return refuse(line, "not UTF-8 text");
  if (text.find('\0') != std::string_view::npos) return refuse(1, "holds a NUL byte; expected text");
  try {
    std::istringstream events{std::string(text)};
    Guard guard;
    YAML::Parser parser(events);
    if (!parser.HandleNextDocument(guard)) return refuse(1, "empty; expected a YAML map");
    if (guard.complaint.empty()) parser.HandleNextDocument(guard);
    if (!guard.complaint.empty()) return refuse(guard.line, guard.complaint);
    const YAML::Node root = YAML::Load(std::string(text));
    if (root.IsNull()) return refuse(1, "empty; expected a YAML map");
    return Node(root, std::string(file), "");
  } catch (const YAML::Exception& e) {
    return refuse(e.mark.line + 1, e.msg);
  }
}

Error Node::error(std::string_view what) const {
  const std::string key = key_.empty() ? "" : key_ + ": ";
  return {ErrorCode::invalid, fmt::format("{}:{}: {}{}", file_, node_.Mark().line + 1, key, what), ""};
}

Node Node::child(const YAML::Node& node, std::string_view key) const {
  return {node, file_, key_.empty() ? std::string(key) : fmt::format("{}.{}", key_, key)};
}

Result<std::vector<std::string>> Node::names() const {
  if (!node_.IsMap()) return Failure(error("expected a map of names to values"));
  std::vector<std::string> names;
  for (const auto& item : node_) {
    const Node key = child(item.first, "");
    if (!item.first.IsScalar()) return Failure(error("expected plain words as keys"));
    if (std::find(names.begin(), names.end(), item.first.Scalar()) != names.end())
      return Failure(child(item.first, item.first.Scalar()).error("given twice"));
    names.push_back(item.first.Scalar());
  }
  return names;
}

Result<void> Node::keys(std::span<const std::string_view> known) const {
  const auto present = TRY(names());
  for (const auto& item : node_) {
    const std::string& name = item.first.Scalar();
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string hint = did_you_mean(name, known);
    return Failure(
        child(item.first, name).error("unknown key" + (hint.empty() ? "; expected one of " + quoted(known) : hint)));
  }
  return {};
}

bool Node::has(const std::string& key) const { return node_.IsMap() && node_[key].IsDefined(); }

Result<Node> Node::at(const std::string& key) const {
  if (!node_.IsMap()) return Failure(error("expected a map with the key \"" + key + "\""));
  if (!has(key)) return Failure(error("the key \"" + key + "\" is missing"));
  return child(node_[key], key);
}

Result<std::string> Node::text() const {
  if (!node_.IsScalar() || node_.Scalar().empty()) return Failure(error("expected text"));
  return node_.Scalar();
}

Result<std::int64_t> Node::integer(std::int64_t least, std::int64_t most) const {
  std::int64_t value = 0;
  const std::string word = node_.IsScalar() ? node_.Scalar() : "";
  const bool hex = word.starts_with("0x") && !word.starts_with("0x-");  // format of registry keys
  const char* const first = word.data() + (hex ? 2 : 0);
  const auto [end, code] = std::from_chars(first, word.data() + word.size(), value, hex ? 16 : 10);
  const bool whole = code == std::errc() && end == word.data() + word.size();
  if (!whole || value < least || value > most)
    return Failure(error(fmt::format("expected a whole number from {} to {}, found \"{}\"", least, most, word)));
  return value;
}

Result<std::vector<Node>> Node::list() const {
  if (!node_.IsSequence()) return Failure(error("expected a list"));
  if (node_.size() > kItemLimit)
    return Failure(error(fmt::format("{} items; expected at most {}", node_.size(), kItemLimit)));
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < node_.size(); ++i) nodes.push_back({node_[i], file_, fmt::format("{}[{}]", key_, i)});
  return nodes;
}

Result<std::vector<std::string>> Node::texts() const {
  std::vector<std::string> texts;
  for (const Node& node : TRY(list())) texts.push_back(TRY(node.text()));
  return texts;
}

Result<std::size_t> Node::choice(std::span<const std::string_view> names) const {
  const std::string word = node_.IsScalar() ? node_.Scalar() : "";
  const auto found = std::find(names.begin(), names.end(), word);
  if (found == names.end()) return Failure(error(fmt::format("expected one of {}, found \"{}\"", quoted(names), word)));
  return static_cast<std::size_t>(found - names.begin());
}

Result<nlohmann::json> Node::value(const Parameter& parameter) const {
  constexpr std::int64_t kMost = INT64_MAX;
  switch (parameter.type) {
    case Parameter::Type::boolean: {
      static constexpr std::string_view kNames[] = {"false", "true"};
      return nlohmann::json(TRY(choice(kNames)) == 1);
    }
    case Parameter::Type::integer: return nlohmann::json(TRY(integer(-kMost, kMost)));
    case Parameter::Type::string: return nlohmann::json(TRY(text()));
    case Parameter::Type::strings: return nlohmann::json(TRY(texts()));
    case Parameter::Type::object: break;
  }
  nlohmann::json object = nlohmann::json::object();
  for (const std::string& name : TRY(names())) {
    const Node item = child(node_[name], name);
    const std::string text = TRY(item.text());
    const nlohmann::json typed = item.scalar();
    object[name] = typed.is_number() ? typed : nlohmann::json(text);
  }
  return object;
}

nlohmann::json Node::scalar() const {
  if (node_.IsNull()) return nullptr;
  const std::string& word = node_.Scalar();
  if (node_.Tag() != "?") return word;  // quoted or tagged
  if (word == "true" || word == "false") return word == "true";
  const auto number = integer(INT64_MIN, INT64_MAX);
  if (!number) return word;
  return *number < 0 ? nlohmann::json(*number)
                     : nlohmann::json(static_cast<std::uint64_t>(*number));  // same type as from JSON parsers
}

Result<nlohmann::json> Node::json() const {
  if (node_.IsSequence()) {
    nlohmann::json array = nlohmann::json::array();
    for (const Node& item : TRY(list())) array.push_back(TRY(item.json()));
    return array;
  }
  if (!node_.IsMap()) return scalar();
  nlohmann::json object = nlohmann::json::object();
  TRY(names());
  for (const auto& item : node_) {
    const std::string& name = item.first.Scalar();
    object[name] = TRY(child(item.second, name).json());
  }
  return object;
}

}  // namespace p2pd::yaml
