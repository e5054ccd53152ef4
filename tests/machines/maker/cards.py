# SPDX-License-Identifier: MIT
"""The NVIDIA cards of made machines: ids, BARs and capabilities as real listings have them."""

from .config_space import ENDPOINT, GIB, LEGACY_ENDPOINT, MIB, words
from .topology import IO, MEM32, MEM64, ROM, Function


class GpuModel:
    def __init__(self, device, name, audio, audio_name, speed, bar0, subsystem, largest_bar1):
        self.device, self.name, self.audio, self.audio_name = device, name, audio, audio_name
        self.speed, self.bar0, self.subsystem, self.largest_bar1 = speed, bar0, subsystem, largest_bar1


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


def gpu(model, bar1=32 * GIB, width=16, current=None, rebar=True, driver="nvidia", class_code=0x030000,
        audio_driver="snd_hda_intel", short=False, assigned=True):
    """A GeForce card: display function and audio function. `rebar` False: a vBIOS without the capability; `assigned` False:
    firmware found no address for BAR1.

    `short`: Resizable BAR lies far lower than on the real card and what follows is left out, for a dump of a third the size.
    """
    link = (model.speed, 16)
    current = current or (model.speed, width)

    def display(space):
        space.power_management(0x60)
        space.msi(0x68)
        space.express(0x78, LEGACY_ENDPOINT, *link, current=current)
        space.capability(0xb4, 0x09, bytes([0x14]))
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
            space.resizable_bars(0x450 if short else 0xbb0, [(0, model.bar0, model.bar0), (1, bar1, *sizes), (3, 32 * MIB, 32 * MIB)])
        if not short:
            space.extended(0xc1c, 0x26, 1)
            space.extended(0xd00, 0x27, 1)
            space.extended(0xe00, 0x25, 1)

    def audio(space):
        space.power_management(0x60, pme=False)
        space.msi(0x68)
        space.express(0x78, ENDPOINT, *link, current=current)

    return [
        Function("00.0", 0x10de, model.device, class_code, "NVIDIA Corporation " + model.name, driver, 0xa1, model.subsystem,
                 [(0, model.bar0, MEM32), *[(1, bar1, MEM64)] * assigned, (3, 32 * MIB, MEM64), (5, 128, IO), (6, 512 << 10, ROM)], link,
                 current, display, multifunction=True, extended=True),
        Function("00.1", 0x10de, model.audio, 0x040300, "NVIDIA Corporation " + model.audio_name, audio_driver, 0xa1,
                 model.subsystem, [(0, 16 << 10, MEM32)], link, current, audio, multifunction=True)]
