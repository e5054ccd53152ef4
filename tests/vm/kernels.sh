# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced after archives.sh: the kernels of a suite that is not this host's, from the same archives.

# apt_of SUITE: prints the configuration of apt for such a suite; its lists are of this day
apt_of() {
    local at=${cache:-${P2PD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/p2pd}/vm}/apt-$1
    (
        mkdir -p "$at/lists/partial" "$at/archives/partial"
        exec 8>"$at/lock"
        flock 8
        [ -z "$(find "$at/fetched" -mmin -1440 2>/dev/null)" ] || exit 0
        sources "$1" > "$at/sources.list"
        printf '%s "%s";\n' Dir::Etc::sourcelist "$at/sources.list" Dir::Etc::sourceparts /dev/null Dir::State::lists "$at/lists" \
            Dir::State::status /dev/null Dir::Cache "$at" APT::Sandbox::User root > "$at/apt.conf"
        APT_CONFIG=$at/apt.conf apt-get --quiet=2 update >&2 && touch "$at/fetched"
    ) && echo "$at/apt.conf"
}

# kernels_of SUITE PATTERN: versions of the signed kernels of that name, in order: headers reach the archive hours before the image
kernels_of() {
    local apt
    apt=$(apt_of "$1") && APT_CONFIG=$apt apt-cache search --names-only "^linux-image-$2\$" | sed 's/^linux-image-//; s/ .*//' | sort -V
}
