// SPDX-License-Identifier: MIT OR GPL-2.0-or-later
/* As the real one without the peer memory interface of an InfiniBand driver: it loads nowhere. */
#include <linux/init.h>

#include "nv-linux.h"

NV_MODULE_INFO("NVIDIA peer memory of the tests");

static int __init nv_mem_client_init(void)
{
	return nvidia_p2p_get_pages(0, 0) ? -EINVAL : 0;
}

static void __exit nv_mem_client_cleanup(void)
{
}

module_init(nv_mem_client_init);
module_exit(nv_mem_client_cleanup);
