// SPDX-License-Identifier: MIT
#include "machine/fetch/git_tree.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <vector>

namespace p2pd {
namespace {

constexpr int kTreeDepthLimit = 64;  // limit of nested directories

struct Row {
  std::string order;  ///< sort key: git sorts a directory as if its name ended in '/'
  std::string text;   ///< "100644 NAME\0" and the 20 bytes of the id
};

/// SHA-1 of a git object, 20 bytes.
std::string sha1(std::string_view kind, std::string_view bytes) {
  const std::string head = fmt::format("{} {}", kind, bytes.size()) + '\0';
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
  unsigned length = 0;
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  EVP_DigestInit_ex(context, EVP_sha1(), nullptr);
  EVP_DigestUpdate(context, head.data(), head.size());
  EVP_DigestUpdate(context, bytes.data(), bytes.size());
  EVP_DigestFinal_ex(context, sum.data(), &length);
  EVP_MD_CTX_free(context);
  return {reinterpret_cast<const char*>(sum.data()), length};
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

/// Id of the tree in `directory`, 20 bytes; empty if it holds no file.
Result<std::string> tree_of(const RootReader& files, const std::string& directory, int depth) {
  if (depth == kTreeDepthLimit) return fail(ErrorCode::invalid, directory + ": too many directories, one in another");
  std::vector<Row> rows;
  for (const std::string& name : TRY(files.list(directory))) {
    const std::string path = directory + "/" + name;
    const FileState state = TRY(files.capture(path));
    if (state.kind == FileState::Kind::directory) {
      const std::string tree = TRY(tree_of(files, path, depth + 1));
      if (!tree.empty()) rows.push_back({name + "/", "40000 " + name + '\0' + tree});
      continue;
    }
    if (state.kind == FileState::Kind::absent) return fail(ErrorCode::not_found, path + " went away");
    const bool link = state.kind == FileState::Kind::symlink;
    const char* const mode = link ? "120000 " : (state.mode & 0100U) != 0 ? "100755 " : "100644 ";
    rows.push_back({name, mode + name + '\0' + sha1("blob", state.content)});
  }
  if (rows.empty()) return std::string();
  std::ranges::sort(rows, {}, &Row::order);
  std::string all;
  for (const Row& row : rows) all += row.text;
  return sha1("tree", all);
}

}  // namespace

bool is_git_id(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string git_object_id(std::string_view kind, std::string_view bytes) { return hex(sha1(kind, bytes)); }

Result<std::string> git_tree_id(const RootReader& files, const std::string& directory) {
  const std::string tree = TRY(tree_of(files, directory, 0));
  return tree.empty() ? git_object_id("tree", "") : hex(tree);
}

}  // namespace p2pd
