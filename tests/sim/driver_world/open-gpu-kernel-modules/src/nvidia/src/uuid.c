// SPDX-License-Identifier: MIT OR GPL-2.0-or-later
/* A UUID in NVIDIA's form: the same for a board in the same slot at every boot. */
#include "nv-kernel.h"

void nv_gpu_uuid(unsigned int address, unsigned int device, char uuid[NV_UUID_LENGTH])
{
	static const char form[NV_UUID_LENGTH] = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
	unsigned int i, state = (address << 16 | device) ^ 0x9e3779b9U;

	for (i = 0; i < NV_UUID_LENGTH; i++) {
		uuid[i] = form[i];
		if (form[i] != 'x')
			continue;
		state ^= state << 13;
		state ^= state >> 17;
		state ^= state << 5;
		uuid[i] = "0123456789abcdef"[state & 15];
	}
}
