// SPDX-License-Identifier: MIT
#pragma once

#include <systemd/sd-bus.h>

#include "base/result.hpp"

namespace p2pd {

/// Publishes org.freedesktop.LogControl1, with which "systemctl service-log-level" reads and sets the log level.
/// Reference: org.freedesktop.LogControl1(5).
Result<void> publish_log_control(sd_bus* bus);

}  // namespace p2pd
