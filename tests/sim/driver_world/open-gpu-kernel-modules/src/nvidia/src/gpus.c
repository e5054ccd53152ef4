// SPDX-License-Identifier: MIT OR GPL-2.0-or-later
/* Names of the boards that the tests use; names and ids as in pci.ids, VBIOS versions as records of such boards show. */
#include "nv-kernel.h"

struct gpu {
	unsigned int device;
	const char *name, *vbios;
};
static const struct gpu gpus[] = {
	{ 0x2204, "NVIDIA GeForce RTX 3090", "94.02.42.00.b4" },
	{ 0x2684, "NVIDIA GeForce RTX 4090", "95.02.3c.40.b6" },
	{ 0x2b85, "NVIDIA GeForce RTX 5090", "98.02.2e.40.b4" },
	{ 0x2230, "NVIDIA RTX A6000", "94.02.5c.00.05" },
};
static const struct gpu unknown = { 0, "NVIDIA Graphics Device", "??.??.??.??.??" };

static const struct gpu *find(unsigned int device)
{
	unsigned int i;

	for (i = 0; i < sizeof(gpus) / sizeof(gpus[0]); i++)
		if (gpus[i].device == device)
			return &gpus[i];
	return &unknown;
}

const char *nv_gpu_name(unsigned int device)
{
	return find(device)->name;
}

const char *nv_gpu_vbios(unsigned int device)
{
	return find(device)->vbios;
}

/* A UUID in NVIDIA's form: the same for a board in the same slot at every boot. */
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
