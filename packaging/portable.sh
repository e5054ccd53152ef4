#!/bin/sh
# SPDX-License-Identifier: MIT
# Starts the program of this name in bin/; says what is missing where it cannot start.
self=$(readlink -f "$0")
program=${self%/*}/bin/${self##*/}
libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || libc="no glibc"
minor=${libc#glibc 2.}
if [ "$(uname -m)" != x86_64 ] || [ "${minor%%.*}" -lt 31 ] 2>/dev/null || [ "$minor" = "$libc" ]; then
    echo "${self##*/}: this machine has $libc on $(uname -m), and glibc 2.31 on x86_64 is needed: use Debian 11, Ubuntu 20.04, or newer" >&2
    exit 1
fi
exec "$program" "$@"
