/* SPDX-License-Identifier: MIT OR GPL-2.0-or-later */
/* What nv-kernel.o and nv-modeset-kernel.o offer to the kernel modules. No header of the kernel, none of libc. */
#ifndef NV_KERNEL_H
#define NV_KERNEL_H

extern const char nv_id[];	/* "NVIDIA UNIX Open Kernel Module for x86_64  570.86.11  Release Build  (...)  DATE" */
extern const char nv_version[];

const char *nv_gpu_name(unsigned int device);		/* by PCI device id; never null */
const char *nv_gpu_vbios(unsigned int device);
unsigned int nv_p2p_override(void);			/* 1:0 read, 5:4 write: what the peer-to-peer builds force */

#define NV_UUID_LENGTH 41				/* "GPU-" and 36 characters, and the null */
void nv_gpu_uuid(unsigned int address, unsigned int device, char uuid[NV_UUID_LENGTH]);

unsigned int nv_kms_kapi_version(void);

#endif
