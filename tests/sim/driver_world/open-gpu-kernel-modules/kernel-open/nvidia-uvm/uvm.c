// SPDX-License-Identifier: MIT OR GPL-2.0-or-later
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/moduleparam.h>

#include "nv-linux.h"

NV_MODULE_INFO("NVIDIA unified memory of the tests");

static bool uvm_disable_hmm;
module_param(uvm_disable_hmm, bool, 0444);

static const struct file_operations uvm_files = { .owner = THIS_MODULE };
static int uvm_major;

static int __init uvm_init(void)
{
	int error = nvUvmInterfaceRegisterUvmCallbacks(&uvm_major);

	if (error)
		return error;
	uvm_major = register_chrdev(0, "nvidia-uvm", &uvm_files);
	return uvm_major < 0 ? uvm_major : 0;
}

static void __exit uvm_exit(void)
{
	unregister_chrdev(uvm_major, "nvidia-uvm");
}

module_init(uvm_init);
module_exit(uvm_exit);
