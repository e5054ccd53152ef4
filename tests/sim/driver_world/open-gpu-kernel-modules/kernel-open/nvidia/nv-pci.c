// SPDX-License-Identifier: MIT OR GPL-2.0-or-later
/* Binding to GPUs, and the resize of BAR1 where the option asks for it. */
#include <linux/dma-mapping.h>
#include <linux/slab.h>

#include "nv.h"

#define NV_BAR1 1	/* the second resource: the window into video memory */
#define NV_BAR3 3	/* in the same window of the port above, which Linux makes anew only when it is empty */

static unsigned int gpu_count;

unsigned int nv_gpus(void)
{
	return gpu_count;
}

/* As large as the board offers; a window too small for that leaves the size that was there */
static void nv_resize_bar1(struct pci_dev *dev)
{
#if defined(NV_PCI_REBAR_GET_POSSIBLE_SIZES_PRESENT)
	u32 sizes = pci_rebar_get_possible_sizes(dev, NV_BAR1);
	int size = sizes ? __fls(sizes) : 0, error;
	u16 command;

	if (!sizes || !nv_resizable_bar() || pci_resource_len(dev, NV_BAR1) == 1ULL << (size + 20))
		return;
	pci_read_config_word(dev, PCI_COMMAND, &command);
	pci_write_config_word(dev, PCI_COMMAND, command & ~PCI_COMMAND_MEMORY);
	pci_release_resource(dev, NV_BAR1);
	pci_release_resource(dev, NV_BAR3);
	error = pci_resize_resource(dev, NV_BAR1, size);
	if (error)
		pci_err(dev, "NVRM: BAR1 stays: resize to %llu MiB says %d\n", 1ULL << size, error);
	pci_assign_unassigned_bus_resources(dev->bus);
	pci_write_config_word(dev, PCI_COMMAND, command);
#endif
}

static int nv_pci_probe(struct pci_dev *dev, const struct pci_device_id *id)
{
	struct nv_gpu *gpu = kzalloc(sizeof(*gpu), GFP_KERNEL);
	int error;

	if (!gpu)
		return -ENOMEM;
	gpu->dev = dev;
	gpu->minor = gpu_count;
	nv_resize_bar1(dev);
	error = pci_enable_device_mem(dev);
	if (error)
		goto no_device;
	/* below the 40 bits of an emulated CPU's addresses, as 47 are below the 52 of a server's */
	dma_set_mask_and_coherent(&dev->dev, DMA_BIT_MASK(39));
	error = nv_procfs_add_gpu(gpu);
	if (error)
		goto no_proc;
	pci_set_drvdata(dev, gpu);
	gpu_count++;
	if (nv_p2p_override())
		pci_info(dev, "NVRM: Static bar1 mapped offset 0x0 size 0x%llx\n", (u64)pci_resource_len(dev, NV_BAR1));
	return 0;

no_proc:
	pci_disable_device(dev);
no_device:
	kfree(gpu);
	return error;
}

static void nv_pci_remove(struct pci_dev *dev)
{
	struct nv_gpu *gpu = pci_get_drvdata(dev);

	nv_procfs_remove_gpu(gpu);
	pci_disable_device(dev);
	gpu_count--;
	kfree(gpu);
}

static const struct pci_device_id nv_pci_table[] = {
	{ PCI_DEVICE(0x10de, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_VGA << 8, .class_mask = ~0U },
	{ PCI_DEVICE(0x10de, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_3D << 8, .class_mask = ~0U },
	{ }
};
MODULE_DEVICE_TABLE(pci, nv_pci_table);

struct pci_driver nv_pci_driver = {
	.name = "nvidia",
	.id_table = nv_pci_table,
	.probe = nv_pci_probe,
	.remove = nv_pci_remove,
};
