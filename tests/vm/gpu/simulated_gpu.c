// SPDX-License-Identifier: GPL-2.0-or-later
/* simulated-gpu: a PCI Express function for QEMU with the configuration space of an NVIDIA card, and nothing behind it.
 *
 * A shared object that is loaded into Debian's own QEMU (LD_PRELOAD); it is built against the headers of exactly that
 * version. Its BAR1 is 64 bit wide and can be resized through the capability that PCI Express has for it, up to `bar1-most`;
 * 0 there leaves the capability out, as firmware or an old vBIOS does. `bar1` 0 makes the audio function of a card.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qapi/error.h"
#include "qemu/module.h"
#include "hw/pci/pci.h"
#include "hw/pci/pcie.h"
#include "hw/pci/msi.h"
#include "hw/qdev-properties.h"
#include "qom/object.h"
#include "migration/vmstate.h"

#define TYPE_SIMULATED_GPU "simulated-gpu"

/* Drivers read the chip's name here, in BAR0 */
#define NV_PMC_BOOT_0	0x0
#define NV_PMC_BOOT_42	0xa00

#define MSI_AT		0x68
#define EXPRESS_AT	0x78
#define AER_AT		0x100
#define REBAR_AT	0x150
#define REBAR_SIZE	12
#define REBAR_SHIFT	20	/* sizes are powers of two, in MiB */
#define REBAR_LEAST	6	/* 64 MiB */
#define REBAR_MOST	28

typedef struct {
	PCIDevice pci;
	MemoryRegion bar0, bar1, bar3, bar5;
	uint16_t vendor, device, class, subvendor, subdevice;
	uint8_t revision, link_speed, link_width;
	uint64_t bar1_size, bar1_most;
	uint32_t boot_0, boot_42;
	bool rebar;
} Gpu;

static uint64_t bar0_read(void *opaque, hwaddr at, unsigned size)
{
	const Gpu *gpu = opaque;

	return at == NV_PMC_BOOT_0 ? gpu->boot_0 : at == NV_PMC_BOOT_42 ? gpu->boot_42 : 0;
}

static uint64_t nothing_read(void *opaque, hwaddr at, unsigned size)
{
	return 0;
}

static void nothing_written(void *opaque, hwaddr at, uint64_t value, unsigned size)
{
}

static const MemoryRegionOps bar0_ops = { .read = bar0_read, .write = nothing_written, .endianness = DEVICE_LITTLE_ENDIAN };
static const MemoryRegionOps nothing_ops = { .read = nothing_read, .write = nothing_written, .endianness = DEVICE_LITTLE_ENDIAN };

static void resize_bar1(Gpu *gpu, uint64_t size)
{
	PCIDevice *pci = &gpu->pci;
	uint64_t where = pci_get_quad(pci->config + PCI_BASE_ADDRESS_1) & ~(size - 1);

	pci->io_regions[1].size = size;
	memory_region_set_size(&gpu->bar1, size);
	pci_set_quad(pci->wmask + PCI_BASE_ADDRESS_1, ~(size - 1));
	pci_set_quad(pci->config + PCI_BASE_ADDRESS_1, where | PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH);
}

static uint64_t asked_size(const Gpu *gpu)
{
	return 1ULL << (REBAR_SHIFT + ((pci_get_long(gpu->pci.config + REBAR_AT + PCI_REBAR_CTRL) >> 8) & 0x3f));
}

static void config_write(PCIDevice *pci, uint32_t at, uint32_t value, int length)
{
	Gpu *gpu = (Gpu *)pci;

	pci_default_write_config(pci, at, value, length);
	if (gpu->rebar && ranges_overlap(at, length, REBAR_AT + PCI_REBAR_CTRL, 4) &&
	    asked_size(gpu) != pci->io_regions[1].size && asked_size(gpu) <= gpu->bar1_most)
		resize_bar1(gpu, asked_size(gpu));
}

static void identify(const Gpu *gpu, uint8_t *config)
{
	pci_config_set_vendor_id(config, gpu->vendor);
	pci_config_set_device_id(config, gpu->device);
	pci_config_set_class(config, gpu->class);
	pci_config_set_revision(config, gpu->revision);
	pci_set_word(config + PCI_SUBSYSTEM_VENDOR_ID, gpu->subvendor);
	pci_set_word(config + PCI_SUBSYSTEM_ID, gpu->subdevice);
	pci_config_set_interrupt_pin(config, 1);
}

static void add_bars(Gpu *gpu)
{
	const uint8_t wide = PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH;
	Object *owner = OBJECT(gpu);

	memory_region_init_io(&gpu->bar0, owner, &bar0_ops, gpu, "simulated-gpu-bar0", gpu->bar1_size ? 16 * MiB : 16 * KiB);
	pci_register_bar(&gpu->pci, 0, 0, &gpu->bar0);
	if (!gpu->bar1_size)
		return;
	memory_region_init_io(&gpu->bar1, owner, &nothing_ops, gpu, "simulated-gpu-bar1", gpu->bar1_size);
	pci_register_bar(&gpu->pci, 1, wide, &gpu->bar1);
	memory_region_init_io(&gpu->bar3, owner, &nothing_ops, gpu, "simulated-gpu-bar3", 32 * MiB);
	pci_register_bar(&gpu->pci, 3, wide, &gpu->bar3);
	memory_region_init_io(&gpu->bar5, owner, &nothing_ops, gpu, "simulated-gpu-bar5", 128);
	pci_register_bar(&gpu->pci, 5, PCI_BASE_ADDRESS_SPACE_IO, &gpu->bar5);
}

void simulated_set_link(uint8_t *express, uint32_t speed, uint32_t width);

/* Sets a link that runs at its full width and speed; simulated_ports.c uses it, too */
void simulated_set_link(uint8_t *express, uint32_t speed, uint32_t width)
{
	const uint32_t link = speed | width << 4;

	pci_set_long(express + PCI_EXP_LNKCAP, (pci_get_long(express + PCI_EXP_LNKCAP) & ~(PCI_EXP_LNKCAP_SLS | PCI_EXP_LNKCAP_MLW)) | link);
	pci_set_word(express + PCI_EXP_LNKSTA, link | PCI_EXP_LNKSTA_SLC | (pci_get_word(express + PCI_EXP_LNKSTA) & PCI_EXP_LNKSTA_DLLLA));
	pci_set_long(express + PCI_EXP_LNKCAP2, ((1U << speed) - 1) << 1);
}

/* A card completes AtomicOps, and may send them */
static void set_atomics(Gpu *gpu, uint8_t *express)
{
	pci_set_long(express + PCI_EXP_DEVCAP2, pci_get_long(express + PCI_EXP_DEVCAP2) | PCI_EXP_DEVCAP2_ATOMIC_COMP32 | PCI_EXP_DEVCAP2_ATOMIC_COMP64);
	pci_word_test_and_set_mask(gpu->pci.wmask + EXPRESS_AT + PCI_EXP_DEVCTL2, PCI_EXP_DEVCTL2_ATOMIC_REQ);
}

static uint32_t rebar_control(const Gpu *gpu)
{
	return 1 | 1 << 5 | (ctz64(gpu->bar1_size) - REBAR_SHIFT) << 8;	/* one resizable BAR: BAR1 */
}

static void add_rebar(Gpu *gpu)
{
	uint32_t sizes = 0;

	for (int bit = REBAR_LEAST; bit < REBAR_MOST && 1ULL << (REBAR_SHIFT + bit) <= gpu->bar1_most; bit++)
		sizes |= 1U << (4 + bit);
	pcie_add_capability(&gpu->pci, PCI_EXT_CAP_ID_REBAR, 1, REBAR_AT, REBAR_SIZE);
	pci_set_long(gpu->pci.config + REBAR_AT + PCI_REBAR_CAP, sizes);
	pci_set_long(gpu->pci.config + REBAR_AT + PCI_REBAR_CTRL, rebar_control(gpu));
	pci_set_long(gpu->pci.wmask + REBAR_AT + PCI_REBAR_CTRL, 0x3f00);
}

static void realize(PCIDevice *pci, Error **error)
{
	Gpu *gpu = (Gpu *)pci;

	identify(gpu, pci->config);
	add_bars(gpu);
	if (msi_init(pci, MSI_AT, 1, true, false, error) < 0 || pcie_endpoint_cap_init(pci, EXPRESS_AT) < 0 ||
	    pcie_aer_init(pci, PCI_ERR_VER, AER_AT, PCI_ERR_SIZEOF, error) < 0)
		return;
	simulated_set_link(pci->config + EXPRESS_AT, gpu->link_speed, gpu->link_width);
	set_atomics(gpu, pci->config + EXPRESS_AT);
	gpu->rebar = gpu->bar1_size && gpu->bar1_most;
	if (gpu->rebar)
		add_rebar(gpu);
}

/* Restores the size that the card has at power-on */
static void reset(DeviceState *device)
{
	Gpu *gpu = (Gpu *)device;

	if (!gpu->rebar)
		return;
	pci_set_long(gpu->pci.config + REBAR_AT + PCI_REBAR_CTRL, rebar_control(gpu));
	resize_bar1(gpu, gpu->bar1_size);
}

static int loaded(void *opaque, int version)
{
	Gpu *gpu = opaque;

	if (gpu->rebar) {
		resize_bar1(gpu, asked_size(gpu));
		pci_default_write_config(&gpu->pci, PCI_COMMAND, pci_get_word(gpu->pci.config + PCI_COMMAND), 2);	/* map it */
	}
	return 0;
}

static const VMStateDescription vmstate = {
	.name = TYPE_SIMULATED_GPU, .version_id = 1, .minimum_version_id = 1, .post_load = loaded,
	.fields = (VMStateField[]) { VMSTATE_PCI_DEVICE(pci, Gpu), VMSTATE_END_OF_LIST() },
};

static Property properties[] = {
	DEFINE_PROP_UINT16("vendor-id", Gpu, vendor, 0x10de),
	DEFINE_PROP_UINT16("device-id", Gpu, device, 0x2684),
	DEFINE_PROP_UINT16("class-id", Gpu, class, PCI_CLASS_DISPLAY_VGA),
	DEFINE_PROP_UINT16("sub-vendor-id", Gpu, subvendor, 0x10de),
	DEFINE_PROP_UINT16("sub-device-id", Gpu, subdevice, 0x167c),
	DEFINE_PROP_UINT8("revision", Gpu, revision, 0xa1),
	DEFINE_PROP_SIZE("bar1", Gpu, bar1_size, 256 * MiB),
	DEFINE_PROP_SIZE("bar1-most", Gpu, bar1_most, 32 * GiB),
	DEFINE_PROP_UINT32("boot-0", Gpu, boot_0, 0x192000a1),
	DEFINE_PROP_UINT32("boot-42", Gpu, boot_42, 0x192a1000),
	DEFINE_PROP_UINT8("link-speed", Gpu, link_speed, 4),	/* 16 GT/s */
	DEFINE_PROP_UINT8("link-width", Gpu, link_width, 16),
	DEFINE_PROP_END_OF_LIST(),
};

static void class_init(ObjectClass *class, void *unused)
{
	DeviceClass *device = DEVICE_CLASS(class);
	PCIDeviceClass *pci = PCI_DEVICE_CLASS(class);

	pci->realize = realize;
	pci->config_write = config_write;
	device->reset = reset;
	device->vmsd = &vmstate;
	device->desc = "configuration space of an NVIDIA card, for tests";
	device_class_set_props(device, properties);
	set_bit(DEVICE_CATEGORY_MISC, device->categories);
}

static InterfaceInfo interfaces[] = { { INTERFACE_PCIE_DEVICE }, {} };
static const TypeInfo type = {
	.name = TYPE_SIMULATED_GPU, .parent = TYPE_PCI_DEVICE, .instance_size = sizeof(Gpu),
	.class_init = class_init, .interfaces = interfaces,
};

static void __attribute__((constructor)) register_gpu(void)
{
	type_register_static(&type);
}
