# SPDX-License-Identifier: MIT OR GPL-2.0-or-later
NVIDIA_VERSION = @VERSION@
