// SPDX-License-Identifier: MIT
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/parameters.hpp"
#include "base/result.hpp"

namespace p2pd::yaml {

/// A node of a YAML document with its position: file, line and key.
class Node {
 public:
  Node(const YAML::Node& node, std::string file, std::string key)
      : node_(node), file_(std::move(file)), key_(std::move(key)) {}

  Node(const Node&) = default;
  Node& operator=(const Node&) = delete;  // assigning a YAML::Node would change the document

  /// Makes the Error "FILE:LINE: KEY: what".
  Error error(std::string_view what) const;
  bool is_null() const { return node_.IsNull(); }

  /// Checks that it is a map with these keys only; the Error names the nearest known key.
  Result<void> keys(std::span<const std::string_view> known) const;
  /// Child, which must exist.
  Result<Node> at(const std::string& key) const;
  bool has(const std::string& key) const;
  Result<std::vector<std::string>> names() const;

  Result<std::string> text() const;
  Result<std::int64_t> integer(std::int64_t least, std::int64_t most) const;
  Result<std::vector<Node>> list() const;
  Result<std::vector<std::string>> texts() const;
  /// The value as JSON of the type that `parameter` declares.
  Result<nlohmann::json> value(const Parameter& parameter) const;
  /// Converts all of it to JSON, by YAML's core schema: true, false, null, ~ and whole numbers (decimal or 0x) have
  /// their type; quoted and other values are text. Error: a list too long, a key that is no text or given twice.
  Result<nlohmann::json> json() const;
  /// Index of its text in `names`.
  Result<std::size_t> choice(std::span<const std::string_view> names) const;

 private:
  nlohmann::json scalar() const;
  Node child(const YAML::Node& node, std::string_view key) const;

  YAML::Node node_;
  std::string file_;
  std::string key_;
};

/// Parses one document; refuses text that is empty, larger than 1 MiB, not UTF-8, or has aliases (cycles, bombs).
Result<Node> parse(std::string_view text, std::string_view file);

}  // namespace p2pd::yaml
