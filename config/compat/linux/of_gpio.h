/* SPDX-License-Identifier: MIT
 *
 * <linux/of_gpio.h>, which Linux removed in 7.1, for sources that include it.
 *
 * What it declared is for boards with a device tree; of_get_named_gpio() says what the old header said without one.
 * Reference: include/linux/of_gpio.h of Linux 6.12, its part for kernels without CONFIG_OF_GPIO.
 */
#ifndef P2PD_OF_GPIO_H
#define P2PD_OF_GPIO_H
#if __has_include(<linux/kconfig.h>) /* not where kbuild asks the compiler, without the kernel's headers, what it can do */

#include <linux/errno.h>
#include <linux/of.h>

static inline int of_get_named_gpio(const struct device_node *np, const char *name, int index)
{
    return -ENOSYS;
}

#endif
#endif
