/* SPDX-License-Identifier: MIT
 *
 * pci_resize_resource() with the three arguments it had before Linux 6.19.
 *
 * From 6.19 on, and in the stable kernels that it was backported to, a fourth argument is the mask of BARs that keep
 * their place while this one is resized; 0 is none. The header that declares the function comes first, because the
 * macro must not meet its declaration. A macro is not expanded in itself, so the inner name is the function.
 * Reference: include/linux/pci.h and drivers/pci/rebar.c of Linux 6.19.
 */
#ifndef P2PD_PCI_RESIZE_EXCLUDE_BARS_H
#define P2PD_PCI_RESIZE_EXCLUDE_BARS_H
#if __has_include(<linux/kconfig.h>) /* not where kbuild asks the compiler, without the kernel's headers, what it can do */

#include <linux/pci.h>

#define pci_resize_resource(dev, resno, size) pci_resize_resource(dev, resno, size, 0)

#endif
#endif
