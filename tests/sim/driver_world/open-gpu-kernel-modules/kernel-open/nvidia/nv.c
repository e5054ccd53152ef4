// SPDX-License-Identifier: MIT OR GPL-2.0-or-later
/* nvidia.ko: a PCI driver of 10de display functions, /proc/driver/nvidia, and device files that hold the module. */
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "nv.h"

NV_MODULE_INFO("NVIDIA GPU driver of the tests: binds, tells, computes nothing");
MODULE_ALIAS_CHARDEV_MAJOR(NV_MAJOR);

static int nv_open(struct inode *inode, struct file *file)
{
	unsigned int minor = iminor(inode);

	return minor == NV_CONTROL || minor < nvidia_gpu_count() ? 0 : -ENODEV;
}

/* The control device tells what this module was compiled with: no name or version tells one build from another */
static ssize_t nv_read(struct file *file, char __user *to, size_t length, loff_t *at)
{
	char told[16];
	int bytes = scnprintf(told, sizeof(told), "p2p 0x%02x\n", nv_p2p_override());

	return iminor(file_inode(file)) == NV_CONTROL ? simple_read_from_buffer(to, length, at, told, bytes) : -EINVAL;
}

/* "hang", written to a GPU's file, is a job on a GPU that hangs: the writer waits here, and no signal ends that */
static ssize_t nv_write(struct file *file, const char __user *from, size_t length, loff_t *at)
{
	char word[4];

	if (iminor(file_inode(file)) == NV_CONTROL || length < sizeof(word) || copy_from_user(word, from, sizeof(word)) ||
	    memcmp(word, "hang", sizeof(word)))
		return -EINVAL;
	for (;;) {
		set_current_state(TASK_UNINTERRUPTIBLE);
		schedule();
	}
}

/* Whoever has one of the files open holds the module: rmmod then says "in use" */
static const struct file_operations nv_files = { .owner = THIS_MODULE, .open = nv_open, .read = nv_read, .write = nv_write };

unsigned int nvidia_gpu_count(void)
{
	return nv_gpus();
}
EXPORT_SYMBOL(nvidia_gpu_count);

int nvidia_get_rm_ops(unsigned int *p2p_override)
{
	*p2p_override = nv_p2p_override();
	return 0;
}
EXPORT_SYMBOL(nvidia_get_rm_ops);

int nvUvmInterfaceRegisterUvmCallbacks(void *callbacks)
{
	return callbacks ? 0 : -EINVAL;
}
EXPORT_SYMBOL(nvUvmInterfaceRegisterUvmCallbacks);

int nvidia_p2p_get_pages(u64 address, u64 length)
{
	return -ENOSYS;
}
EXPORT_SYMBOL(nvidia_p2p_get_pages);

static int __init nvidia_init_module(void)
{
	int error = register_chrdev(NV_MAJOR, "nvidia", &nv_files);

	if (error)
		return error;
	pr_info("nvidia-nvlink: Nvlink Core is being initialized, major device number %d\n", NV_MAJOR);
	error = nv_procfs_init();
	if (error)
		goto no_proc;
	error = pci_register_driver(&nv_pci_driver);
	if (error)
		goto no_driver;
	if (!nv_gpus()) {
		pr_err("NVRM: No NVIDIA GPU found.\n");
		error = -ENODEV;
		goto no_gpu;
	}
	pr_info("NVRM: loading %s\n", nv_id);
	return 0;

no_gpu:
	pci_unregister_driver(&nv_pci_driver);
no_driver:
	nv_procfs_exit();
no_proc:
	unregister_chrdev(NV_MAJOR, "nvidia");
	return error;
}

static void __exit nvidia_exit_module(void)
{
	pci_unregister_driver(&nv_pci_driver);
	nv_procfs_exit();
	unregister_chrdev(NV_MAJOR, "nvidia");
}

module_init(nvidia_init_module);
module_exit(nvidia_exit_module);
