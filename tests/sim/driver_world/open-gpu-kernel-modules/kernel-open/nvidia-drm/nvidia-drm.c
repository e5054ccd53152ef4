// SPDX-License-Identifier: MIT OR GPL-2.0-or-later
#include <linux/init.h>
#include <linux/moduleparam.h>

#include "nv-linux.h"

NV_MODULE_INFO("NVIDIA DRM of the tests");

static bool modeset;
module_param(modeset, bool, 0400);
MODULE_PARM_DESC(modeset, "Enable atomic kernel modesetting (1 = enable, 0 = disable (default))");

static int __init nv_drm_init(void)
{
	return nvKmsKapiGetFunctionsTable() && nvidia_gpu_count() ? 0 : -ENODEV;
}

static void __exit nv_drm_exit(void)
{
}

module_init(nv_drm_init);
module_exit(nv_drm_exit);
