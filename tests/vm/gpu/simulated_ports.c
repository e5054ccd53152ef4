// SPDX-License-Identifier: GPL-2.0-or-later
/* intel-root-port, amd-root-port, switch-upstream, switch-downstream: the ports above the cards of simulated_gpu.c, in the same object:
 * QEMU's ports, named as real ones, fast, and with ACS.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "hw/pci/pci.h"
#include "hw/pci/pcie.h"
#include "qom/object.h"

void simulated_set_link(uint8_t *express, uint32_t speed, uint32_t width);

#define PORT_SPEED	4	/* 16 GT/s */
#define PORT_WIDTH	16
#define ACS_AT		0x148

struct port {
	const char *name, *parent;
	uint16_t vendor, device;
};
static const struct port ports[] = {
	{ "intel-root-port", "pcie-root-port", 0x8086, 0x347a },
	{ "amd-root-port", "pcie-root-port", 0x1022, 0x1483 },
	{ "switch-upstream", "x3130-upstream", 0x10b5, 0x8747 },
	{ "switch-downstream", "xio3130-downstream", 0x10b5, 0x8747 },
};

typedef void Realize(PCIDevice *pci, Error **error);
static Realize *upstream_realize, *downstream_realize;
static DeviceReset slow_reset, root_reset;
static PCIConfigWriteFunc *root_write;

/* QEMU's ports of a switch have links of 2.5 GT/s and one lane */
static void fast_port(Realize *slow, PCIDevice *pci, Error **errp)
{
	ERRP_GUARD();

	slow(pci, errp);
	if (!*errp)
		simulated_set_link(pci->config + pci->exp.exp_cap, PORT_SPEED, PORT_WIDTH);
}

static void fast_upstream(PCIDevice *pci, Error **error)
{
	fast_port(upstream_realize, pci, error);
}

static void fast_downstream(PCIDevice *pci, Error **error)
{
	fast_port(downstream_realize, pci, error);
	if (!pci->exp.acs_cap)
		pcie_acs_init(pci, ACS_AT);
}

static void downstream_reset(DeviceState *device)
{
	slow_reset(device);
	pcie_acs_reset((PCIDevice *)device);
}

static void name_port(PCIDevice *pci, uint16_t vendor, uint16_t device)
{
	pci_config_set_vendor_id(pci->config, vendor);
	pci_config_set_device_id(pci->config, device);
}

/* SeaBIOS reserves what a port asks for only if the port has QEMU's own ids: it has them until its window is set */
static void root_port_reset(DeviceState *device)
{
	root_reset(device);
	if (pci_find_capability((PCIDevice *)device, PCI_CAP_ID_VNDR))
		name_port((PCIDevice *)device, PCI_VENDOR_ID_REDHAT, PCI_DEVICE_ID_REDHAT_PCIE_RP);
}

static void root_port_write(PCIDevice *pci, uint32_t at, uint32_t value, int length)
{
	const PCIDeviceClass *class = PCI_DEVICE_GET_CLASS(pci);

	root_write(pci, at, value, length);
	if (ranges_overlap(at, length, PCI_PREF_LIMIT_UPPER32, 4))
		name_port(pci, class->vendor_id, class->device_id);
}

static void port_class_init(ObjectClass *class, void *row)
{
	const struct port *port = row;
	PCIDeviceClass *pci = PCI_DEVICE_CLASS(class);

	pci->vendor_id = port->vendor;
	pci->device_id = port->device;
	if (g_str_has_suffix(port->name, "-upstream")) {
		upstream_realize = pci->realize;
		pci->realize = fast_upstream;
	} else if (g_str_has_suffix(port->name, "-downstream")) {
		downstream_realize = pci->realize;
		pci->realize = fast_downstream;
		slow_reset = DEVICE_CLASS(class)->reset;
		DEVICE_CLASS(class)->reset = downstream_reset;
	} else {
		root_write = pci->config_write;
		pci->config_write = root_port_write;
		root_reset = DEVICE_CLASS(class)->reset;
		DEVICE_CLASS(class)->reset = root_port_reset;
	}
}

static void __attribute__((constructor)) register_ports(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(ports); i++) {
		const TypeInfo port = { .name = ports[i].name, .parent = ports[i].parent, .class_init = port_class_init, .class_data = (void *)&ports[i] };

		type_register(&port);
	}
}
