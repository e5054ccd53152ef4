// SPDX-License-Identifier: MIT
#pragma once

#include <any>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/command.hpp"
#include "base/descriptor.hpp"
#include "base/result.hpp"
#include "base/root.hpp"

namespace p2pd {

/// Way in which undo restores a changed file.
enum class Restore {
  bytes,      ///< writes the old bytes back
  generated,  ///< writes the old bytes back unless the file was generated again since; then the action's undo generates
              ///< it
  attribute,  ///< writes the old value back if the one that p2pd wrote is still in force: a reboot resets it
  discarded,  ///< removes it with all its content, which p2pd fetched or built; the old content is never read
  by_action,  ///< leaves it to the action's undo, as with dpkg's database: only the change that it belongs to is kept
};

/// Receives every change before it is made; the engine keeps what undo needs here.
class ChangeRecorder {
 public:
  virtual ~ChangeRecorder() = default;
  virtual Result<void> before_change(std::string_view path, Restore restore) = 0;
  /// Name of the change that is made or undone now, "RUN-STEP": the same in apply and undo, another in every run.
  virtual std::string change() const { return "0"; }
  /// True if `path` is as p2pd left it: undo then writes the old content back, also of a generated file.
  virtual bool is_as_left(std::string_view /*path*/) const { return false; }
};

/// A machine seen through two seams: a root directory and a command runner.
///
/// Probes get `const Host&` and cannot change it: neither a Host nor the Root of one can be copied out of it. The
/// recorder receives every change first.
class Host {
 public:
  Host(Root root, CommandRunner& runner, ChangeRecorder* recorder = nullptr)
      : root_(std::move(root)), runner_(&runner), recorder_(recorder) {}
  Host(Host&&) = default;
  Host& operator=(Host&&) = default;

  /// Copies the host for one look at it: data that many probes read, such as the PCI bus, is read once.
  std::unique_ptr<const Host> snapshot() const;
  /// The same with these GPUs alone: see set_alone_gpus().
  std::unique_ptr<const Host> snapshot(std::map<std::string, std::string> alone_gpus) const;
  /// The same once these files are written.
  std::unique_ptr<const Host> snapshot_after(PendingFiles files) const;
  /// Returns the result of `read`; a snapshot remembers it as `what`, and reads it only once.
  template <class Value>
  Result<Value> once(std::string_view what, const std::function<Result<Value>()>& read) const {
    if (!memory_) return read();
    std::any& kept = (*memory_)[std::string(what)];
    if (!kept.has_value()) kept = read();
    return std::any_cast<const Result<Value>&>(kept);
  }

  /// Excludes GPUs from P2P, by their names in a plan: see is_gpu_name().
  void leave_out_gpus(std::vector<std::string> names) { left_out_gpus_ = std::move(names); }
  const std::vector<std::string>& left_out_gpus() const { return left_out_gpus_; }
  /// GPUs that can have no peer, by address, with the reason.
  void set_alone_gpus(std::map<std::string, std::string> reasons) { alone_gpus_ = std::move(reasons); }
  const std::map<std::string, std::string>& alone_gpus() const { return alone_gpus_; }
  /// Requires that all other GPUs are peers of each other: none is alone, and there are no groups.
  void require_all_gpus(bool all) { requires_all_gpus_ = all; }
  bool requires_all_gpus() const { return requires_all_gpus_; }

  /// Sets what waits for the loaded driver, which is asked ahead: see ask_driver().
  void set_driver(std::function<Result<CommandResult>()> answer) { driver_ = std::move(answer); }
  const std::function<Result<CommandResult>()>& driver() const { return driver_; }

  const RootReader& files() const { return root_; }
  bool live() const { return root_.live(); }
  /// Descriptor that is readable once long operations must end.
  int stop_fd() const { return runner_->stop_fd(); }

  /// Content of a small text file without the final newline.
  Result<std::string> line(std::string_view path) const;
  /// Names in a directory; empty if it cannot be read.
  std::vector<std::string> names(std::string_view path) const;
  /// Runs a command that only reads; any exit status is an answer.
  Result<CommandResult> run_readonly(const Command& command) const { return runner_->run(command); }
  /// Does the same, but requires success; returns standard output.
  Result<std::string> output_of(const Command& command) const;
  /// Does the same for a command about one file; remembers the answer until the file at that path changes.
  Result<std::string> cached_output_of(std::string_view file, const Command& command) const;
  /// Checks that `program` is an executable of this host's PATH.
  bool has_program(std::string_view program) const;

  /// Replaces a file's content; mode, owner and attributes stay, a new file gets `mode` and this process's user.
  Result<void> write(std::string_view path, std::string content, mode_t mode = 0644, Restore restore = Restore::bytes);
  /// Does the same for a file of p2pd's own, whose first line says "Written by p2pd"; a foreign file at that
  /// path is ErrorCode::invalid.
  Result<void> write_own(std::string_view path, std::string content);
  /// Writes a value to an existing attribute of procfs or sysfs, unless it is in force: see Root::write_attribute().
  Result<void> write_attribute(std::string_view path, std::string_view value);
  /// Makes `path` a symbolic link to `target`, durably; replaces a file or another link. Undo removes it.
  Result<void> link(std::string_view path, std::string target);
  Result<void> remove(std::string_view path);
  /// Must be called before a command that changes `path`.
  Result<void> will_change(std::string_view path, Restore restore = Restore::bytes);
  /// Name of the change that an action makes or undoes now, for what its undo needs: see ChangeRecorder.
  std::string change() const { return recorder_ == nullptr ? "0" : recorder_->change(); }
  bool is_as_left(std::string_view path) const { return recorder_ != nullptr && recorder_->is_as_left(path); }
  /// Runs a command that must succeed; returns its result.
  Result<CommandResult> run(const Command& command);

  // Content too big for write(): these do not record it, so will_change() with Restore::discarded comes first.
  /// Makes a file of mode 0644 that starts with `content`, open for appending; replaces an existing one.
  Result<Descriptor> create(std::string_view path, std::string content = {});
  Result<void> make_directory(std::string_view path);
  /// Removes a file, or a directory with all its content; succeeds if nothing is there.
  Result<void> remove_tree(std::string_view path) { return root_.remove_tree(path); }
  /// Renames `from` to `to`, once all of it is on the disk.
  Result<void> move(std::string_view from, std::string_view to) { return root_.move(from, to); }

 private:
  Host(const Host&) = default;

  Root root_;
  CommandRunner* runner_;
  ChangeRecorder* recorder_;
  std::vector<std::string> left_out_gpus_;
  std::map<std::string, std::string> alone_gpus_;
  bool requires_all_gpus_ = false;
  std::function<Result<CommandResult>()> driver_;            ///< null: nobody has asked
  std::shared_ptr<std::map<std::string, std::any>> memory_;  ///< set in a snapshot
  struct AboutFile {
    std::string version, answer;
  };
  std::shared_ptr<std::map<std::string, AboutFile>> about_files_ = std::make_shared<std::map<std::string, AboutFile>>();
};

}  // namespace p2pd
