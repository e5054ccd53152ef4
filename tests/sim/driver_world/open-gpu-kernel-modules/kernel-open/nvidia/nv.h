/* SPDX-License-Identifier: MIT OR GPL-2.0-or-later */
/* Between the files of nvidia.ko. */
#ifndef NV_H
#define NV_H

#include <linux/list.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>

#include "nv-linux.h"
#include "nv-kernel.h"

struct nv_gpu {
	struct pci_dev *dev;
	unsigned int minor;
	struct proc_dir_entry *folder;	/* /proc/driver/nvidia/gpus/ADDRESS */
};

extern struct pci_driver nv_pci_driver;
unsigned int nv_gpus(void);

unsigned int nv_resizable_bar(void);

int nv_procfs_init(void);
void nv_procfs_exit(void);
int nv_procfs_add_gpu(struct nv_gpu *gpu);
void nv_procfs_remove_gpu(struct nv_gpu *gpu);

#endif
