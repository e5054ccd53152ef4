// SPDX-License-Identifier: MIT OR GPL-2.0-or-later
#include "nv-kernel.h"

unsigned int nv_kms_kapi_version(void)
{
	return 1;
}
