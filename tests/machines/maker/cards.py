# SPDX-License-Identifier: MIT
"""The NVIDIA cards of made machines: ids, BARs and capabilities as real listings have them."""

from .config_space import ENDPOINT, GIB, LEGACY_ENDPOINT, MIB, words
from .topology import IO, MEM32, MEM64, ROM, Function


class GpuModel:
    """`audio` None: a 3D controller, which has neither outputs nor an audio function; `wide`: its BAR0 has 64 bits, so that what
    NVIDIA calls BAR1 is register 2."""

    def __init__(self, device, name, audio, audio_name, speed, bar0, subsystem, largest_bar1, width=16, wide=False):
        self.device, self.name, self.audio, self.audio_name = device, name, audio, audio_name
        self.speed, self.bar0, self.subsystem, self.largest_bar1 = speed, bar0, subsystem, largest_bar1
        self.width, self.wide = width, wide

    def bars(self, bar1, assigned):
        if self.wide:
            return [(0, self.bar0, MEM64), (2, bar1, MEM64), (4, 32 * MIB, MEM64)]
        shown = [(5, 128, IO), (6, 512 << 10, ROM)] if self.audio else []
        return [(0, self.bar0, MEM32), *[(1, bar1, MEM64)] * assigned, (3, 32 * MIB, MEM64), *shown]


RTX3090 = GpuModel(0x2204, "GA102 [GeForce RTX 3090]", 0x1aef, "GA102 High Definition Audio Controller", 4, 16 * MIB,
                   (0x10de, 0x147d), 32 * GIB)
RTX4090 = GpuModel(0x2684, "AD102 [GeForce RTX 4090]", 0x22ba, "AD102 High Definition Audio Controller", 4, 16 * MIB,
                   (0x10de, 0x167c), 32 * GIB)
RTX5090 = GpuModel(0x2b85, "GB202 [GeForce RTX 5090]", 0x22e8, "GB202 High Definition Audio Controller", 5, 64 * MIB,
                   (0x10de, 0x2057), 32 * GIB)


RTX2080TI = GpuModel(0x1e04, "TU102 [GeForce RTX 2080 Ti]", 0x10f7, "TU102 High Definition Audio Controller", 3, 16 * MIB,
                     (0x10de, 0x12a4), 256 * MIB)
RTXA6000 = GpuModel(0x2230, "GA102GL [RTX A6000]", 0x1aef, "GA102 High Definition Audio Controller", 4, 16 * MIB,
                    (0x10de, 0x1459), 64 * GIB)
RTXPRO6000 = GpuModel(0x2bb1, "GB202GL [RTX PRO 6000 Blackwell Workstation Edition]", 0x22e8, "GB202 High Definition Audio Controller",
                      5, 64 * MIB, (0x10de, 0x204b), 128 * GIB)
GT1030 = GpuModel(0x1d01, "GP108 [GeForce GT 1030]", 0x0fb8, "GP108 High Definition Audio Controller", 3, 16 * MIB,
                  (0x1043, 0x85f4), 256 * MIB, width=4)
A100 = GpuModel(0x20b5, "GA100 [A100 PCIe 80GB]", None, None, 4, 16 * MIB, (0x10de, 0x1533), 128 * GIB)
A100_SXM = GpuModel(0x20b2, "GA100 [A100 SXM4 80GB]", None, None, 4, 16 * MIB, (0x10de, 0x1463), 128 * GIB)
L40S = GpuModel(0x26b9, "AD102GL [L40S]", None, None, 4, 16 * MIB, (0x10de, 0x1851), 64 * GIB)
H100_SXM = GpuModel(0x2330, "GH100 [H100 SXM5 80GB]", None, None, 5, 16 * MIB, (0x10de, 0x16c1), 128 * GIB, wide=True)


def gpu(model, bar1=32 * GIB, width=16, current=None, rebar=True, driver="nvidia", class_code=0x030000,
        audio_driver="snd_hda_intel", short=False, assigned=True, slot="00", clique=None):
    """A card: display function and audio function, or a 3D controller alone. `rebar` False: a vBIOS without the capability; `assigned` False:
    firmware found no address for BAR1; `clique`: a hypervisor put the card into that GPUDirect clique.

    `short`: Resizable BAR lies far lower than on the real card and what follows is left out, for a dump of a third the size.
    """
    link = (model.speed, model.width)
    current = current or (model.speed, min(width, model.width))
    first = 2 if model.wide else 1

    def display(space):
        space.power_management(0x60)
        space.msi(0x68)
        space.express(0x78, LEGACY_ENDPOINT if model.audio else ENDPOINT, *link, current=current)
        space.capability(0xb4, 0x09, bytes([0x14]))
        if clique is not None:  # hw/vfio/pci-quirks.c of QEMU: eight bytes, "P2P"
            space.capability(0xc8, 0x09, bytes([8]) + b"P2P" + bytes([clique << 3]))
        space.extended(0x100, 0x02, 1)
        space.extended(0x250, 0x18, 1)
        space.extended(0x258, 0x1e, 1)
        space.extended(0x128, 0x04, 1)
        space.advanced_errors(0x420)
        if not short:
            space.extended(0x600, 0x0b, 1, words((4, 0x02410001)))
            space.extended(0x900, 0x19, 1)
        if rebar:
            sizes = [64 * MIB << n for n in range((model.largest_bar1 // (64 * MIB)).bit_length())]
            space.resizable_bars(0x450 if short else 0xbb0, [(0, model.bar0, model.bar0), (first, bar1, *sizes),
                                                               (first + 2, 32 * MIB, 32 * MIB)])
        if not short:
            space.extended(0xc1c, 0x26, 1)
            space.extended(0xd00, 0x27, 1)
            space.extended(0xe00, 0x25, 1)

    def audio(space):
        space.power_management(0x60, pme=False)
        space.msi(0x68)
        space.express(0x78, ENDPOINT, *link, current=current)

    display_function = Function(f"{slot}.0", 0x10de, model.device, class_code if model.audio else 0x030200, "NVIDIA Corporation " + model.name,
                                driver, 0xa1, model.subsystem, model.bars(bar1, assigned), link, current, display,
                                multifunction=bool(model.audio), extended=True)
    if model.audio is None:
        return [display_function]
    return [display_function,
            Function(f"{slot}.1", 0x10de, model.audio, 0x040300, "NVIDIA Corporation " + model.audio_name, audio_driver, 0xa1,
                     model.subsystem, [(0, 16 << 10, MEM32)], link, current, audio, multifunction=True)]
