/* SPDX-License-Identifier: MIT
 *
 * strncpy(), which Linux removed in 7.2: copies, and fills the rest with zeros.
 * Reference: strncpy(3); lib/string.c of Linux 6.12.
 */
#ifndef P2PD_STRNCPY_H
#define P2PD_STRNCPY_H
#if __has_include(<linux/kconfig.h>) /* not where kbuild asks the compiler, without the kernel's headers, what it can do */

#include <linux/string.h>

static inline char *strncpy(char *to, const char *from, __kernel_size_t size)
{
    for (__kernel_size_t i = 0; i < size; ++i) {
        to[i] = *from;
        if (*from)
            ++from;
    }
    return to;
}

#endif
#endif
