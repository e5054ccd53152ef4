// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/root.hpp"

namespace p2pd {

/// Checks for 40 hexadecimal digits in lower case, as git prints an id.
bool is_git_id(std::string_view text);

/// Id that git gives an object: SHA-1 of kind ("blob", "tree", "commit"), size and bytes, in hexadecimal.
std::string git_object_id(std::string_view kind, std::string_view bytes);

/// Id that git gives the content of `directory`: names, contents, links and executable bits, without any filter.
/// Ignores directories without a file, as git does. Error: something is not readable, or is no file or link.
Result<std::string> git_tree_id(const RootReader& files, const std::string& directory);

}  // namespace p2pd
