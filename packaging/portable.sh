#!/bin/sh
# SPDX-License-Identifier: MIT
# Starts the program of this name in bin/, and says what this machine lacks if it cannot.
case $0 in */*) self=$0 ;; *) self=./$0 ;; esac
[ ! -L "$self" ] || self=$(readlink -f "$self")
libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || libc="no glibc"
minor=${libc#glibc 2.}
if [ "$minor" = "$libc" ] || [ "${minor%%.*}" -lt 31 ]; then
    echo "${self##*/}: this machine has $libc, and glibc 2.31 is needed: use Debian 11, Ubuntu 20.04, or newer" >&2
    exit 1
fi
exec "${self%/*}/bin/${self##*/}" "$@"
