# SPDX-License-Identifier: MIT
"""Power cuts, computed afterwards: contents of a disk after a power failure at any instant of its log of writes and flushes.

QEMU logs every write and flush of a guest's disk, in order (blklogwrites, the format of Linux's dm-log-writes). The
disk after a cut is the disk at power-on, with all that a flush had made durable by then, and some of the later writes, chosen by
seed: a disk with a volatile cache promises no more. So one run of a scenario gives any number of cuts, at any instant of it.
"""
import itertools
import struct

SECTOR = 512
SYSTEM_PARTITIONS = 8192 << 11  # the sector at which they begin: see disk.sh
MAGIC = 0x6A736677736872
FLUSH, FUA, DISCARD = 1, 2, 4


class Write:
    """One entry of the log; `at` is the offset of its data in the log file."""

    def __init__(self, number, sector, count, flags, at):
        self.number, self.sector, self.count, self.flags, self.at = number, sector, count, flags, at

    @property
    def length(self):
        return 0 if self.flags & DISCARD else self.count * SECTOR


class WriteLog:
    """The log up to `size` bytes of its file; later writes are ignored."""

    def __init__(self, path, size):
        self.path, self.entries = path, []
        with open(path, "rb") as file:
            magic, version, _, sector = struct.unpack("<QQQI", file.read(28))
            if magic != MAGIC or version != 1 or sector != SECTOR:
                raise ValueError(f"{path} is no log of writes")
            at = SECTOR
            while at + SECTOR <= size:
                file.seek(at)
                place, count, flags, _ = struct.unpack("<QQQQ", file.read(32))
                entry = Write(len(self.entries), place, count, flags, at + SECTOR)
                if entry.count == 0 and not flags or entry.at + entry.length > size:
                    break  # incomplete last entry
                self.entries.append(entry)
                at = entry.at + entry.length

    def flushes(self):
        return [entry.number for entry in self.entries if entry.flags & FLUSH]

    def with_content(self, needle):
        """Numbers of the writes whose data contains these bytes."""
        found = []
        with open(self.path, "rb") as file:
            for entry in self.entries:
                file.seek(entry.at)
                if entry.length and needle in file.read(entry.length):
                    found.append(entry.number)
        return found

    def replay(self, disk, until, dice):
        """Turns `disk`, a raw copy of its state at power-on, into its state after a cut right before entry `until`."""
        durable = max((number for number in self.flushes() if number < until), default=-1)
        with open(self.path, "rb") as log, open(disk, "r+b") as raw:
            for entry in self.entries[:until]:
                lasts = entry.number < durable or entry.flags & FUA or dice.random() < 0.5
                if not entry.length or not lasts:
                    continue
                log.seek(entry.at)
                raw.seek(entry.sector * SECTOR)
                raw.write(log.read(entry.length))


def variables_at(kept, log, at):
    """The firmware's variables of a kept scenario as they were at entry `at` of its log of writes; None: its firmware has none."""
    offset = log.entries[at].at if at < len(log.entries) else kept.joinpath("writes").stat().st_size
    copies = sorted((int(path.suffix[1:]), path) for path in kept.glob("variables.*"))
    return next((path for length, path in reversed(copies) if length <= offset), copies[0][1] if copies else None)


# ---- instants --------------------------------------------------------------------------------------------------------

def boundaries(log, number):
    """Instants right before and right after the flush that makes a write durable."""
    after = [flush for flush in log.flushes() if flush > number][:1]
    return [instant for flush in after for instant in (flush, flush + 1)]


def instant(log, moments, number, dice):
    """Instant `number` of a log; the kinds take turns, no instant comes twice: (entry of the log, description).

    `moments`: length of the log as each step began and ended, by description: both sides of every step.
    """
    kinds = {
        "grub.cfg": [at for number in log.with_content(b"### BEGIN /etc/grub.d/00_header ###") for at in boundaries(log, number)],
        "permanent arguments": [at for number in log.with_content(b"undone by `p2pctl revert`.\noptions ") for at in boundaries(log, number)],
        "trial entry": [at for number in log.with_content(b"p2pd trial: ") for at in boundaries(log, number)],
        # not the distribution's own copy on a system partition: FAT has no order of writes until all of it is there, as a step ends
        "initrd": [at for number in log.with_content(b"\x02\x21\x4c\x18") if log.entries[number].sector < SYSTEM_PARTITIONS
                   for at in boundaries(log, number)],
        "database": [at for number in log.with_content(b"SQLite format 3\x00") for at in boundaries(log, number)],
        "step": [max(entry.number for entry in log.entries if entry.at <= offset) + 1 for offset in moments.values()],
        "any": [entry.number for entry in log.entries],
    }
    names = {max((entry.number for entry in log.entries if entry.at <= offset), default=0) + 1: what for what, offset in moments.items()}
    drawn, there = set(), set().union(*kinds.values())
    if number > len(there):
        raise ValueError(f"cut {number}: the log has {len(there)} instants")
    for kind, places in itertools.cycle([(kind, sorted(set(places))) for kind, places in kinds.items()]):
        left = [at for at in places if at not in drawn]
        if left:
            at = dice.choice(left)
            drawn.add(at)
            if len(drawn) == number:
                return at, f"{kind} {names.get(at, '')}".strip()
