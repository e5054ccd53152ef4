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

/// How a changed file goes back on undo.
enum class Restore {
  bytes,      ///< to the bytes it had
  generated,  ///< to the bytes it had unless somebody generated it anew since; then the action's undo makes it again
  discarded,  ///< to nothing: what p2pd fetches or builds there goes with all that is in it, and is never read
  by_action,  ///< by the action's undo alone, as with dpkg's database: nothing is kept here but whose change it is
};

/// Hears of every change before it is made; the engine keeps what undo needs here.
class ChangeRecorder {
 public:
  virtual ~ChangeRecorder() = default;
  virtual Result<void> before_change(std::string_view path, Restore restore) = 0;
  /// Name of the change that is made or undone now, "RUN-STEP": the same in apply and undo, another in every run.
  virtual std::string change() const { return "0"; }
};

/// A machine seen through two seams: a root directory and a command runner.
///
/// Probes get `const Host&` and cannot change it: neither a Host nor the Root of one can be copied out of it. Every
/// change passes the recorder first.
class Host {
 public:
  Host(Root root, CommandRunner& runner, ChangeRecorder* recorder = nullptr)
      : root_(std::move(root)), runner_(&runner), recorder_(recorder) {}
  Host(Host&&) = default;
  Host& operator=(Host&&) = default;

  /// The same host for one look at it: what many probes read, such as the PCI bus, is read once.
  std::unique_ptr<const Host> snapshot() const;
  /// What `read` returns; a snapshot remembers it as `what`, and reads it no second time.
  template <class Value>
  Result<Value> once(std::string_view what, const std::function<Result<Value>()>& read) const {
    if (!memory_) return read();
    std::any& kept = (*memory_)[std::string(what)];
    if (!kept.has_value()) kept = read();
    return std::any_cast<const Result<Value>&>(kept);
  }

  /// GPUs that are not to take part in P2P, as a plan names them: see is_gpu_name().
  void leave_out_gpus(std::vector<std::string> names) { left_out_gpus_ = std::move(names); }
  const std::vector<std::string>& left_out_gpus() const { return left_out_gpus_; }

  const RootReader& files() const { return root_; }
  bool live() const { return root_.live(); }
  /// Readable once what takes long is to end, as CommandRunner::stop_fd().
  int stop_fd() const { return runner_->stop_fd(); }

  /// Content of a small text file without the final newline.
  Result<std::string> line(std::string_view path) const;
  /// What a directory holds; nothing where it cannot be read.
  std::vector<std::string> names(std::string_view path) const;
  /// Runs a command that only reads; whatever it exits with is an answer.
  Result<CommandResult> run_readonly(const Command& command) const { return runner_->run(command); }
  /// The same where only success is one; its standard output.
  Result<std::string> output_of(const Command& command) const;
  /// The same of a command whose answer is about one file: remembered until there is another one at that path.
  Result<std::string> cached_output_of(std::string_view file, const Command& command) const;
  /// True when `program` is an executable of this host's PATH.
  bool has_program(std::string_view program) const;

  /// Replaces a file's content; mode, owner and attributes stay, a new file gets `mode` and root:root.
  Result<void> write(std::string_view path, std::string content, mode_t mode = 0644, Restore restore = Restore::bytes);
  /// The same for a file that is p2pd's alone, whose first line says "Written by p2pd"; somebody else's file at that
  /// path is ErrorCode::invalid.
  Result<void> write_own(std::string_view path, std::string content);
  /// Makes `path` a symbolic link to `target`, durably, in place of a file or of another link; undo removes it.
  Result<void> link(std::string_view path, std::string target);
  Result<void> remove(std::string_view path);
  /// To be called before a command that changes `path`.
  Result<void> will_change(std::string_view path, Restore restore = Restore::bytes);
  /// Name of the change that an action makes or undoes now, for what its undo needs: see ChangeRecorder.
  std::string change() const { return recorder_ == nullptr ? "0" : recorder_->change(); }
  /// Runs a command that must succeed; its result.
  Result<CommandResult> run(const Command& command);

  // Of what is too big for write(): not recorded, so will_change() with Restore::discarded comes first.
  /// A new file of mode 0644 that starts with `content`, open for more of it; replaces one that is there.
  Result<Descriptor> create(std::string_view path, std::string content = {});
  Result<void> make_directory(std::string_view path);
  /// Removes a file, or a directory with all that is in it; fine when nothing is there.
  Result<void> remove_tree(std::string_view path) { return root_.remove_tree(path); }
  /// Gives what lies at `from` the name `to`, once all of it is on the disk.
  Result<void> move(std::string_view from, std::string_view to) { return root_.move(from, to); }

 private:
  Host(const Host&) = default;

  Root root_;
  CommandRunner* runner_;
  ChangeRecorder* recorder_;
  std::vector<std::string> left_out_gpus_;
  std::shared_ptr<std::map<std::string, std::any>> memory_;  ///< of a snapshot
  struct AboutFile {
    std::string version, answer;
  };
  std::shared_ptr<std::map<std::string, AboutFile>> about_files_ = std::make_shared<std::map<std::string, AboutFile>>();
};

}  // namespace p2pd
