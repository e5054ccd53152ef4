// SPDX-License-Identifier: MIT OR GPL-2.0-or-later
#include <linux/init.h>

#include "nv-linux.h"
#include "nv-kernel.h"

NV_MODULE_INFO("NVIDIA mode setting of the tests");

unsigned int nvKmsKapiGetFunctionsTable(void)
{
	return nv_kms_kapi_version();
}
EXPORT_SYMBOL(nvKmsKapiGetFunctionsTable);

static int __init nvkms_init(void)
{
	unsigned int p2p_override;

	return nvidia_get_rm_ops(&p2p_override);
}

static void __exit nvkms_exit(void)
{
}

module_init(nvkms_init);
module_exit(nvkms_exit);
