/* SPDX-License-Identifier: MIT OR GPL-2.0-or-later */
/* What the modules offer to each other. */
#ifndef NV_LINUX_H
#define NV_LINUX_H

#include <linux/module.h>
#include <linux/types.h>

#include "conftest/functions.h"

#define NV_MAJOR 195	/* /dev/nvidiaN, /dev/nvidiactl */
#define NV_CONTROL 255	/* minor of the latter */
#define NV_MODULE_INFO(text)                                                                                           \
	MODULE_LICENSE("Dual MIT/GPL");                                                                                \
	MODULE_DESCRIPTION(text);                                                                                      \
	MODULE_VERSION("@VERSION@")

/* nvidia.ko */
unsigned int nvidia_gpu_count(void);
int nvidia_get_rm_ops(unsigned int *p2p_override);
int nvUvmInterfaceRegisterUvmCallbacks(void *callbacks);
int nvidia_p2p_get_pages(u64 address, u64 length);

/* nvidia-modeset.ko */
unsigned int nvKmsKapiGetFunctionsTable(void);

#endif
