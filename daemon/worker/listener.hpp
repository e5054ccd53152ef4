// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "base/descriptor.hpp"
#include "base/result.hpp"
#include "worker/mailbox.hpp"

namespace p2pd {

/// Socket of the worker, served by a thread of its own, so that the walk can be plain synchronous code. The thread
/// reads lines, posts them to the mailbox and writes the answers. It also waits for the stop signal.
///
/// Permitted clients: root, and the user that p2pd runs as. At most kConnections at once, kLine bytes a line.
class Listener {
 public:
  static constexpr std::size_t kLine = 4096;
  static constexpr std::size_t kConnections = 32;

  /// Takes the socket that systemd passed, else makes RUNTIME/walk.sock. `stop_fd`: a signalfd.
  static Result<std::unique_ptr<Listener>> open(Mailbox& mailbox, int stop_fd);
  /// Waits for the signal only.
  static std::unique_ptr<Listener> for_signals(Mailbox& mailbox, int stop_fd);
  ~Listener();

 private:
  Listener(Mailbox& mailbox, int stop_fd, Descriptor socket, bool own);
  void serve();

  Mailbox& mailbox_;
  int stop_fd_;
  Descriptor socket_;
  bool own_;  ///< the socket was made here, and is removed with the listener
  Descriptor quit_;
  std::thread thread_;
};

}  // namespace p2pd
