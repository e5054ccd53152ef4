// SPDX-License-Identifier: MIT
#include "base/host.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace p2pd {
namespace {

constexpr std::size_t kLineFileLimit = 1U << 20;  // bytes
constexpr std::array<std::string_view, 6> kProgramDirectories = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                                                 "/usr/bin",        "/sbin",          "/bin"};

/// Version of a file: another one for another file at the path, and after a write.
std::string version_of(const struct stat& file) {
  return fmt::format("{} {} {} {}.{} {}.{}", file.st_dev, file.st_ino, file.st_size, file.st_mtim.tv_sec,
                     file.st_mtim.tv_nsec, file.st_ctim.tv_sec, file.st_ctim.tv_nsec);
}

bool executable(const RootReader& files, std::string_view path) {
  const auto info = files.stat(path);
  return info && S_ISREG(info->st_mode) && (info->st_mode & 0111U) != 0;
}

}  // namespace

std::unique_ptr<const Host> Host::snapshot() const { return snapshot(alone_gpus_); }

std::unique_ptr<const Host> Host::snapshot(std::map<std::string, std::string> alone_gpus) const {
  std::unique_ptr<Host> copy(new Host(*this));
  copy->memory_ = std::make_shared<std::map<std::string, std::any>>();
  copy->alone_gpus_ = std::move(alone_gpus);
  return copy;
}

std::unique_ptr<const Host> Host::snapshot_after(PendingFiles files) const {
  std::unique_ptr<Host> copy(new Host(*this));
  copy->memory_ = std::make_shared<std::map<std::string, std::any>>();
  copy->root_.pending_ = std::move(files);
  return copy;
}

Result<std::string> Host::line(std::string_view path) const {
  std::string content = TRY(root_.read(path, kLineFileLimit));
  if (content.ends_with('\n')) content.pop_back();
  return content;
}

std::vector<std::string> Host::names(std::string_view path) const {
  return root_.list(path).value_or(std::vector<std::string>());
}

Result<std::string> Host::output_of(const Command& command) const {
  CommandResult result = TRY(run_readonly(command));
  TRY(require_success(command, result));
  return std::move(result.output);
}

Result<std::string> Host::cached_output_of(std::string_view file, const Command& command) const {
  std::string version = version_of(TRY(root_.stat(file)));
  AboutFile& known = (*about_files_)[command.text()];
  if (known.version != version) {
    known.answer = TRY(output_of(command));
    known.version = std::move(version);
  }
  return known.answer;
}

bool Host::has_program(std::string_view program) const {
  if (program.empty()) return false;
  if (program.front() == '/') return executable(root_, program);
  if (program.find('/') != std::string_view::npos) return false;
  return std::any_of(kProgramDirectories.begin(), kProgramDirectories.end(), [&](std::string_view directory) {
    return executable(root_, std::string(directory) + "/" + std::string(program));
  });
}

Result<void> Host::write(std::string_view path, std::string content, mode_t mode, Restore restore) {
  FileState state = TRY(root_.capture(path));
  switch (state.kind) {
    case FileState::Kind::symlink:
      return fail(ErrorCode::invalid,
                  std::string(path) + " is a symbolic link to " + state.content + "; p2pd does not write through links",
                  "Replace the link by a regular file, or remove it.");
    case FileState::Kind::directory:
      return fail(ErrorCode::invalid, std::string(path) + " is a directory, not a file", "Remove it or rename it.");
    case FileState::Kind::regular:
      if (state.content == content) return {};
      break;
    case FileState::Kind::absent:
      state.kind = FileState::Kind::regular;
      state.mode = mode;
      state.uid = ::geteuid();
      state.gid = ::getegid();
      break;
  }
  state.content = std::move(content);
  TRY(will_change(path, restore));
  return root_.put(path, state);
}

Result<void> Host::write_own(std::string_view path, std::string content) {
  const FileState there = TRY(root_.capture(path));
  const std::string_view first = std::string_view(there.content).substr(0, there.content.find('\n'));
  if (there.kind == FileState::Kind::regular && first.find("Written by p2pd") == first.npos)
    return fail(ErrorCode::invalid, std::string(path) + " is in the way: p2pd did not write it",
                "Move it to another name, then try again.");
  return write(path, std::move(content));
}

Result<void> Host::write_attribute(std::string_view path, std::string_view value) {
  if (attribute_value(TRY(root_.read(path))) == value) return {};
  TRY(will_change(path, Restore::attribute));
  return root_.write_attribute(path, value);
}

Result<void> Host::link(std::string_view path, std::string target) {
  TRY(will_change(path, Restore::discarded));
  return root_.put(path, {FileState::Kind::symlink, std::move(target), 0777, ::geteuid(), ::getegid(), {}});
}

Result<void> Host::remove(std::string_view path) {
  if (TRY(root_.capture(path)).kind == FileState::Kind::absent) return {};
  TRY(will_change(path));
  return root_.remove(path);
}

Result<void> Host::will_change(std::string_view path, Restore restore) {
  if (recorder_ == nullptr) return {};
  for (const std::string& directory : TRY(root_.missing_parents(path))) {
    TRY(recorder_->before_change(directory, Restore::bytes));
  }
  return recorder_->before_change(path, restore);
}

Result<Descriptor> Host::create(std::string_view path, std::string content) {
  TRY(root_.put(path, {FileState::Kind::regular, std::move(content), 0644, ::geteuid(), ::getegid(), {}}));
  Descriptor file(::open(TRY(root_.real_path(path)).c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return fail_errno(path);
  return file;
}

Result<void> Host::make_directory(std::string_view path) {
  return root_.put(path, {FileState::Kind::directory, {}, 0755, ::geteuid(), ::getegid(), {}});
}

Result<CommandResult> Host::run(const Command& command) {
  CommandResult result = TRY(runner_->run(command));
  TRY(require_success(command, result));
  return result;
}

}  // namespace p2pd
