# SPDX-License-Identifier: MIT
"""Machines with cards that can be no peers of the others: one fell off the bus, the rest are alone or of other groups."""

from .cards import GT1030, RTX3090, RTX4090, RTX5090, RTXA6000
from .cases import IVHD, card, epyc, mapped, port
from .config_space import MIB
from .driver_answer import answers, driver_says, informations
from .installed import installed, kernel_log, load_lines, nouveau_loaded
from .machines import IDLE, Machine, excluding

FOUR = [f"0000:0{bus}:00.0" for bus in (1, 2, 3, 4)]
SLOTS = ("01.1", "03.1", "05.1", "07.1")


def four(cards):
    return epyc(*(port(slot, one, number=number) for number, (slot, one) in enumerate(zip(SLOTS, cards), 1)))


def one_lost():
    cards = [card() for _ in FOUR]
    for function in cards[3]:
        function.lost = True
    xid = "3|NVRM: Xid (PCI:0000:04:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    return Machine(
        "rtx4090-x4-one-lost", "Four RTX 4090, patched driver, one fell off the bus",
        "cases.md fallen-off-bus-egpu-5070, xid79-comma-fraction-timestamp; issue 3/9 (one bad card of four)", four(cards), "identity",
        installed() | IVHD | informations(*((address, RTX4090) for address in FOUR))
        | driver_says(*((address, RTX4090) for address in FOUR[:3])) | kernel_log(*load_lines(), *mapped(), xid), "gpu-inventory",
        "the card at 04:00.0 does not answer until power is cycled", ["NVML no longer lists a card that is lost"], False, outlook="person",
        excluding=excluding([FOUR[3]], "provable", None, "the driver says OK to every pair of the other three; the Xid is of the card that is left out"))


def one_small():
    cards = [card(RTX3090), card(RTX3090), card(RTX3090), card(RTX3090, bar1=256 * MIB, rebar=False)]
    return Machine(
        "rtx3090-x4-one-small-bar1", "Four RTX 3090, patched driver, one with an early vBIOS",
        "field-notes.md section 1, hard limits (early 3090 vBIOS caps BAR1 at 256 MiB: aikitoria issue 22); issue 3/9 (one bad card of four)",
        four(cards), "identity", installed() | IVHD | kernel_log(*load_lines(), *mapped())
        | answers(*((address, RTX3090) for address in FOUR), refused=FOUR[3:], small=FOUR[3:]), None,
        "the card at 04:00.0 has no Resizable BAR capability: it is alone, and the driver says OK to every pair of the other three", (), False,
        excluding=excluding([FOUR[3]], "provable", None, "a plan that names the card says the same"))


def display_card():
    small = card(GT1030, bar1=256 * MIB, rebar=False, driver="nouveau", current=(IDLE, 4))
    slots = [port("01.1", card()), port("03.1", card(), number=2), port("05.1", small, number=3, current=(IDLE, 4))]
    files = {path: text for path, text in installed().items() if not path.endswith("disable-nouveau.conf")}
    nouveau = nouveau_loaded()
    files |= nouveau | {"proc/modules": files["proc/modules"] + nouveau["proc/modules"], "etc/modules-load.d/nvidia.conf": "nvidia\n"}
    screen = "sys/class/drm/card0"
    files |= {screen + "/device": ("link", "../../../bus/pci/devices/0000:03:00.0"), screen + "-HDMI-A-1/status": "connected\n",
              screen + "-HDMI-A-1/enabled": "enabled\n", "sys/bus/pci/devices/0000:03:00.0/boot_vga": "1\n"}
    log = kernel_log("nouveau 0000:03:00.0: NVIDIA GP108 (138000a1)", "nouveau 0000:03:00.0: fb: 2048 MiB GDDR5",
                     "nvidia-nvlink: Nvlink Core is being initialized, major device number 235", *load_lines(), *mapped())
    return Machine(
        "rtx4090-x2-gt1030", "Two RTX 4090, patched driver, and a GT 1030 for the display, which nouveau drives",
        "issue 3/9 (a 1030 for the display), field-notes.md section 1 (the forks are open modules, which know no Pascal)", epyc(*slots),
        "identity", files | IVHD | log | answers(*((address, RTX4090) for address in FOUR[:2])), None,
        "no driver gives P2P with a Pascal card: it is alone, and the driver says OK to both ways of the other two",
        ["nouveau of Linux 6.1 knows no Ada, so that it took the GT 1030 alone"], False,
        excluding=excluding(["10de:1d01"], "provable", None, "a plan that names the card says the same"))


def three_groups():
    """An A6000 is of the 3090s' generation: three of Ampere, two of Ada, two of Blackwell."""
    models = (RTX5090, RTX5090, RTX4090, RTX4090, RTX3090, RTX3090, RTXA6000)
    addresses = [f"0000:0{bus}:00.0" for bus in range(1, 8)]
    ports = [port(f"{slot:02x}.1", card(model, bar1=model.largest_bar1), number=slot, link=(model.speed, 16), current=(IDLE, 16))
             for slot, model in enumerate(models, 1)]
    return Machine(
        "rtx5090-x2-rtx4090-x2-rtx3090-x2-a6000", "Two RTX 5090, two RTX 4090, two RTX 3090 and an RTX A6000, patched driver",
        "public tests of such a machine: P2P between the cards of each generation", epyc(*ports), "identity",
        installed() | IVHD | kernel_log(*load_lines()) | answers(*zip(addresses, models), refused_between=lambda one, other:
            generation(models[addresses.index(one)]) != generation(models[addresses.index(other)])), None,
        "CUDA gives peer access within each generation: the pairs of each are proven, those across are not expected", (), False)


def generation(model):
    return {RTX5090: "Blackwell", RTX4090: "Ada"}.get(model, "Ampere")


def left_out_cases():
    return [one_lost(), one_small(), display_card(), three_groups()]
