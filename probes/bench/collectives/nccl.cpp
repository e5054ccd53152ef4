// SPDX-License-Identifier: MIT
#include "probes/bench/collectives/nccl.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "machine/fetch/signature.hpp"
#include "probes/bench/report/text.hpp"

namespace p2pd::bench::nccl {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kName = "libnccl.so.2";
constexpr std::string_view kWheel = "nvidia/nccl/lib";  // of the wheels that PyTorch needs
constexpr std::string_view kEnvironments[] = {"usr/lib/python3*/dist-packages", "usr/local/lib/python3*/dist-packages",
                                              "usr/local/lib/python3*/site-packages",
                                              "opt/*/lib/python3*/site-packages"};

/// Paths where a library may be, in the order of the dynamic linker; wheels come last.
std::vector<std::string> candidates(CommandRunner& runner, const std::string& system) {
  std::vector<std::string> paths;
  const char* directories = std::getenv("LD_LIBRARY_PATH");
  std::istringstream words(directories != nullptr ? directories : "");
  for (std::string word; std::getline(words, word, ':');)
    if (!word.empty()) paths.push_back(fmt::format("{}/{}", word, kName));
  const auto cache = runner.run({.argv = {"ldconfig", "-p"}});
  std::istringstream lines(cache ? cache->output : "");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t arrow = line.find(" => ");
    if (arrow != line.npos && line.find(fmt::format("\t{} ", kName)) == 0) paths.push_back(line.substr(arrow + 4));
  }
  for (const std::string_view environment : kEnvironments) {
    glob_t found{};
    if (::glob(fmt::format("{}/{}/{}/{}", system, environment, kWheel, kName).c_str(), 0, nullptr, &found) == 0)
      paths.insert(paths.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
  }
  return paths;
}

}  // namespace

Result<Functions> load(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(ErrorCode::not_found, plain(::dlerror()));
  Functions functions;
#define F(result, symbol, ...)                                                                \
  functions.symbol = reinterpret_cast<decltype(functions.symbol)>(::dlsym(library, #symbol)); \
  if (functions.symbol == nullptr) return fail(ErrorCode::not_found, path + " has no " #symbol);
  P2PD_NCCL_FUNCTIONS(F)
#undef F
  return functions;
}

Library find_library(CommandRunner& runner, const std::string& configured, const std::string& system, bool as_root) {
  Library library;
  std::vector<std::string> seen;
  for (const std::string& path : configured.empty() ? candidates(runner, system) : std::vector{configured}) {
    std::error_code error;
    const std::string file = fs::canonical(path, error).string();
    if (error && configured.empty()) continue;
    if (std::ranges::find(seen, file) != seen.end()) continue;
    seen.push_back(file);
    const Result<void> safe = error || !as_root ? Result<void>() : only_root_changes(file);
    const std::string why = error                               ? error.message()
                            : !fs::is_regular_file(file, error) ? "not a file"
                            : safe                              ? ""
                                                                : safe.error().message;
    if (!why.empty()) {
      library.notes.push_back(fmt::format("not loaded: {}: {}", path, why));
    } else if (library.path.empty()) {
      library.path = file;
    } else {
      library.notes.push_back("also found, not used: " + file);
    }
  }
  if (!library.path.empty()) return library;
  library.why_not = "no libnccl found; nccl: PATH in p2pd.yaml names one";
  if (library.notes.empty()) return library;
  library.why_not = library.notes.front();
  library.notes.erase(library.notes.begin());
  return library;
}

}  // namespace p2pd::bench::nccl
