# SPDX-License-Identifier: MIT
"""The rules of the tree as tables: permitted includes, ids, CMake lists, licence lines, forbidden words; and their breaches."""
import fnmatch
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]

MACHINE = [f"machine/{room}" for room in ("hardware", "fetch", "catalogue", "boot", "modules", "packages", "driver")]


def rooms_of_daemon():
    """A room -> the rooms and headers that it may include, from the table of daemon/README.md."""
    for row in re.findall(r"^\| `([a-z/]+)` \|.*\|(.*)\|$", (ROOT / "daemon/README.md").read_text(), re.M):
        uses = [use for word in re.findall(r"`([^`]+)`", row[1]) for use in (MACHINE if word == "machine" else [word])]
        yield f"daemon/{row[0]}", (["base"] if row[0] != "base" else []) + uses


# a room -> the rooms whose headers it may include with quotes; the first row that fits counts
ROOMS = [
    *rooms_of_daemon(),
    ("daemon", ["base", *MACHINE, "record", "plan", "engine", "bus", "worker", "ctl", "probes/registry.hpp", "actions/registry.hpp"]),
    ("probes/bench", ["base", *MACHINE, "record"]),
    ("probes", ["base", *MACHINE]),
    ("actions", ["base", *MACHINE]),
    ("tests", ["base", "machine", "record", "plan", "engine", "bus", "worker", "report", "screen", "ctl", "probes", "actions"]),
]
HOMES = set(ROOMS[-1][1])  # first word of a header of ours
# Lines of C++ that a room may have. Anybody lowers a number; raise one only with its reason beside it.
BUDGET = {
    # p2pctl asks or refuses, has help, examples and exit codes for each verb, and says how sure it is of a driver: ctl, screen, driver.
    # base has what both programs' text needs (wrap, terminal), and files as they will be, so that plan --diff shows each once. Evidence
    # names the release that was built: catalogue, driver. wrap breaks no command in quotes: base
    # base has the reader and writer of structs, and machine/hardware the measurement: the bench had both to itself
    # a build for every version of a driver's packages, without a runfile; that a plan purges packages is said first: catalogue, driver,
    # probes, and some lines in actions, base, ctl, screen. What archives really hold (empty packages of an old branch, a runfile that is
    # known badly, a hold, old lists) and systems that are not tested: catalogue, driver, probes, and some lines in ctl, fetch, modules
    # the driver's answer comes through the host, asked ahead where a probe says that it asks: base, machine/hardware, probes. Lower case,
    # capitals, VRAM and the file with the driver's version have one place for all rooms: base, machine/hardware
    # systems beside Debian and Ubuntu: names of packages, Arch's images without a release, pins of proxmox-boot-tool: modules; guests of
    # Proxmox VE, and the commands for a person where no apt replaces the driver: driver, probes, and some lines in ctl, plan, record, screen
    # late_systemd.cpp, for a p2pctl that runs anywhere: daemon, and the verbs that it lacks: ctl
    # systemd-boot and the partitions of proxmox-boot-tool beside GRUB, whose half was in actions: boot, which also has the kernels' names and
    # pins, from modules; and a hook in modules and record
    # arguments that a person adds: as GRUB reads them, and what they cost, which was in actions: boot, and some lines in plan and screen
    "daemon": 146, "daemon/base": 4217, "daemon/bus": 1162, "daemon/ctl": 3861, "daemon/engine": 3723,
    "daemon/machine/boot": 3527, "daemon/machine/catalogue": 1954, "daemon/machine/driver": 3876, "daemon/machine/fetch": 1041,
    "daemon/machine/hardware": 3393, "daemon/machine/modules": 3570, "daemon/machine/packages": 2102,
    "daemon/plan": 1525, "daemon/record": 2171, "daemon/report": 1352, "daemon/screen": 1191, "daemon/worker": 1563,
    # tests by name (-t), with their list and what each needs; a hang is told apart from wrong data: bench
    "actions": 2453, "probes": 5315, "probes/bench": 9579,
}
GENERATED = {("daemon/late_systemd.cpp", "late_systemd.inc"), ("daemon/machine/catalogue/catalogue.cpp", "catalogue.inc"), ("daemon/machine/modules/module_build.cpp", "compat.inc"),
             ("daemon/machine/hardware/gpus.cpp", "gpus.inc"), ("daemon/machine/hardware/pcie_path.cpp", "host-bridges.inc"),
             ("daemon/machine/catalogue/kernel_table.cpp", "kernel-table.inc"),
             ("daemon/report/page.cpp", "report_page.html.inc"), ("daemon/report/page.cpp", "report_page.css.inc"), ("daemon/report/page.cpp", "report_page.js.inc"),
             ("daemon/base/signatures.cpp", "signatures.inc"), ("probes/bench/device/gpu.cpp", "kernels.inc")}

# headers of a library -> the only files of the programs that may include them
LIBRARIES = [
    ("yaml-cpp/*", ["daemon/base/yaml.*"]),
    ("pci/*", ["daemon/machine/hardware/pci.cpp"]),
    ("sqlite3*", ["daemon/engine/journal.cpp", "daemon/engine/journal_*.cpp", "daemon/engine/database.*"]),
    ("openssl/*", ["daemon/base/sha256.cpp", "daemon/machine/fetch/git_store.cpp", "daemon/machine/fetch/signature.cpp"]),
    ("systemd/sd-journal.h", ["daemon/base/log.cpp"]),
    ("systemd/sd-bus*", ["daemon/bus/*", "daemon/ctl/*"]),
    ("systemd/*", ["daemon/bus/*", "daemon/worker/*", "daemon/ctl/*", "daemon/*.cpp"]),
    ("CLI/*", ["daemon/ctl/*", "probes/bench/main.cpp"]),
    ("cuda*", ["probes/bench/*"]),
    ("nv*.h", ["probes/bench/*"]),
    ("catch2/*", []),
    ("spdlog/*", ["daemon/base/log.cpp"]),
    ("tl/*", ["*"]), ("fmt/*", ["*"]), ("nlohmann/*", ["*"]),
]
SYSTEM = re.compile(r"[a-z0-9_]+(\.h)?|(sys|linux|asm|net|netinet|arpa)/[a-z0-9_/-]+\.h")

SPDX = "SPDX-License-Identifier: MIT"
LOADED_INTO_QEMU = dict.fromkeys(("tests/vm/gpu/simulated_gpu.c", "tests/vm/gpu/simulated_ports.c"),
                                 "SPDX-License-Identifier: GPL-2.0-or-later")
NEEDS_SPDX = {".cpp", ".hpp", ".js", ".c", ".h", ".cu", ".cuh", ".py", ".sh", ".cmake", ".yaml", ".yml", ".service", ".timer", ".socket", ".path"}
# Spelled in two halves, so that this file does not hold them.
NOT_HERE = ["/wo" + "rk/", "deb." + "debian.org", "registry." + "npmjs"]
NOT_DONE = ["TO" + "DO", "FIX" + "ME"]
RECORDED = ["tests/machines/captured/*", "tests/golden/*"]  # output of real machines


def fits(path, patterns):
    """Matches like a shell: '*' in the last part of a pattern spans folders, except for "daemon/*.cpp"."""
    return any(fnmatch.fnmatch(path, p) and (p != "daemon/*.cpp" or path.count("/") == 1) for p in patterns)


def tracked(root):
    """Files that git tracks or would track, relative to root."""
    names = subprocess.run(["git", "-c", f"safe.directory={root}", "-C", root, "ls-files", "-z", "--cached", "--others",
                            "--exclude-standard"], check=True, capture_output=True, text=True).stdout
    return sorted(n for n in names.split("\0") if n and (root / n).is_file())


def text(root, name):
    return (root / name).read_text(encoding="utf-8", errors="replace")


def include_breaches(root, names):
    """"FILE:LINE: <header>: why" of each forbidden #include."""
    breaches = []
    for name in names:
        if not name.endswith((".cpp", ".hpp", ".c", ".h", ".cu", ".cuh")):
            continue
        for number, line in enumerate(text(root, name).splitlines(), 1):
            found = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
            if found:
                why = quoted_breach(name, found[2]) if found[1] == '"' else library_breach(name, found[2])
                if why:
                    breaches.append(f"{name}:{number}: {found[2]}: {why}")
    return breaches


def room_of(name):
    """The row of ROOMS that a file is in."""
    return next(((room, uses) for room, uses in ROOMS if name.startswith(room + "/")), ("", []))


def quoted_breach(name, header):
    if (name.startswith("tests/") and header.split("/")[0] not in HOMES) or (name, header) in GENERATED:
        return ""
    room, uses = room_of(name)
    allowed = [room.removeprefix("daemon/"), *uses] if room not in ("probes", "actions") else uses  # a check includes no other checks
    if any(header == place or header.startswith(place + "/") for place in allowed):
        return ""
    return f"may include {', '.join(uses) or 'nothing of other rooms'}"


def room_graph(root, names):
    """Room -> rooms whose headers it includes; a part of a room is the room."""
    places = {room.removeprefix("daemon/"): room for room, _ in ROOMS}
    graph = {room: set() for room, _ in ROOMS}
    for name in names:
        room, _ = room_of(name)
        if room and name.endswith((".cpp", ".hpp", ".cu", ".cuh")):
            for header in re.findall(r'^\s*#\s*include "([^"]+)/[^"/]+"', text(root, name), re.M):
                graph[room] |= {places[place] for place in (header, "/".join(header.split("/")[:2])) if places.get(place, room) != room}
    return graph


def layers(graph):
    """The rooms of a graph in rows, each of which uses only rows above; the rest is in a cycle."""
    rows, left = [], dict(graph)
    while row := sorted(room for room, uses in left.items() if not uses & left.keys()):
        rows.append(row)
        left = {room: uses for room, uses in left.items() if room not in row}
    return rows, left


def library_breach(name, header):
    if name.startswith("tests/") or SYSTEM.fullmatch(header) and not fits(header, [p for p, _ in LIBRARIES]):
        return ""
    places = next((places for pattern, places in LIBRARIES if fits(header, [pattern])), None)
    if places is None:
        return "a library without a row in the table"
    return "" if fits(name, places) else f"only in {', '.join(places) or 'tests/'}"


def unit_breaches(root, folder, kind):
    """Faults of the probes or actions: ids against file names, rows, opening comments."""
    breaches, seen = [], {}
    for path in sorted((root / folder).glob("*.cpp")):
        name, lines = f"{folder}/{path.name}", path.read_text().splitlines()
        wanted = path.stem.replace("_", "-")
        ids = re.findall(rf'\bconst {kind} (\w+)\s*=?\s*\{{\s*(?:\.id = )?"([^"]*)"', "\n".join(lines))
        if [i for _, i in ids] != [wanted]:
            breaches.append(f"{name}: holds {ids}; expected one {kind} called \"{wanted}\"")
        for variable, id_ in ids:
            if seen.setdefault(id_, name) != name:
                breaches.append(f"{name}: id \"{id_}\" is that of {seen[id_]}, too")
        comment = [line for line in lines[1:12] if line.startswith("//")]
        if not comment or not comment[0].startswith(f"// {wanted}: "):
            breaches.append(f"{name}: does not open with \"// {wanted}: what it is for\"")
        elif len(comment) > 8 or not any("Reference" in line for line in comment):
            breaches.append(f"{name}: opens with {len(comment)} lines; expected at most 8, one with \"Reference\"")
    return breaches


def cmake_breaches(root, names):
    """Files that a CMakeLists names and that do not exist, and sources that none names."""
    breaches, named = [], set()
    for name in names:
        if pathlib.Path(name).name != "CMakeLists.txt":
            continue
        folder = pathlib.PurePosixPath(name).parent
        content = re.sub(r"#.*", "", text(root, name))
        content = content.replace("${CMAKE_CURRENT_SOURCE_DIR}/", "").replace("${CMAKE_SOURCE_DIR}/", "/")
        content = re.sub(r"\S*[$<]\{?\S*", " ", content)
        for word in re.findall(r"(?<![\w./*-])[\w./-]+\.(?:cpp|c|cu|yaml|json|service|timer|socket|path|py|in)(?![\w.-])", content):
            file = word[1:] if word.startswith("/") else (folder / word).as_posix()
            named.add(file)
            if not (root / file).is_file() and word != "registry.cpp":  # made by the build
                breaches.append(f"{name}: names {word}, which is not there")
    listed = [n for n in names if n.endswith("_test.py") or n.endswith(".cpp") and n.startswith(("tests/", "probes/bench/"))
              and not fnmatch.fnmatch(n, "tests/unit/*_test.cpp")]  # CMake globs these and the others
    return breaches + [f"{n}: no CMakeLists.txt names it" for n in listed if n not in named]


def word_breaches(root, names):
    """Sources without a licence line, and words that must not occur in the tree."""
    breaches = []
    for name in names:
        path = root / name
        if fits(name, RECORDED) and path.suffix not in {".md", ".cpp", ".py"}:
            continue
        content = text(root, name)
        is_source = path.suffix in NEEDS_SPDX or path.name == "CMakeLists.txt" or content.startswith("#!")
        licence = LOADED_INTO_QEMU.get(name, SPDX)
        if is_source and not content.startswith("{") and licence not in "\n".join(content.splitlines()[:3]):
            breaches.append(f"{name}: no \"{licence}\" in its first lines")
        for number, line in enumerate(content.splitlines(), 1):
            breaches += [f"{name}:{number}: \"{word}\"" for word in NOT_HERE if word in line]
            breaches += [f"{name}:{number}: {word}" for word in NOT_DONE if re.search(rf"\b{word}\b", line)]
    return breaches


def try_breaches(root, names):
    """TRY behind a comma in a braced list: GCC leaks the elements before it where TRY leaves the function."""
    found = []
    for name in names:
        if not name.endswith((".cpp", ".hpp")) or name.endswith("/result.hpp"):
            continue
        source = text(root, name)
        for match in re.finditer(r"\bTRY(_IN)?\(", source):
            depth, comma = 0, False
            for at in range(match.start() - 1, -1, -1):
                char = source[at]
                if char in ")}]":
                    depth += 1
                elif char in "({[" and depth:
                    depth -= 1
                elif char in "({[;":
                    if char == "{" and comma and not source[:at].rstrip().endswith(")"):
                        found.append(f"{name}:{source.count(chr(10), 0, match.start()) + 1}: TRY in a braced list leaks")
                    break
                elif char == "," and not depth:
                    comma = True
    return found


TAKES_A_CALLBACK = (r"\b(SD_BUS_(?:WRITABLE_)?PROPERTY|SD_BUS_METHOD\w*|sd_event_add_(?!signal)\w+|sd_bus_call\w*_async|sd_bus_add_filter|"
                    r"sd_bus_match_signal\w*|sd_bus_track_new)\(")


def callback_breaches(root, names):
    """Callbacks that systemd's C code calls without guarded<>: an exception would end p2pd."""
    found = []
    for name in names:
        if not name.startswith("daemon/") or not name.endswith((".cpp", ".hpp")):
            continue
        source = text(root, name)
        for match in re.finditer(TAKES_A_CALLBACK, source):
            end, depth = match.end(), 1
            while depth and end < len(source):
                depth += {"(": 1, ")": -1}.get(source[end], 0)
                end += 1
            if "guarded<" not in source[match.end():end]:
                found.append(f"{name}:{source.count(chr(10), 0, match.start()) + 1}: {match[1]} without guarded<>")
    return found


def all_breaches(root, names, changed=None):
    """Breaches of every rule; of the rules about one file at a time those of the file `changed` alone, if it is given."""
    each = [changed] if changed else names
    return (include_breaches(root, each) + word_breaches(root, each) + try_breaches(root, each) + callback_breaches(root, each) +
            unit_breaches(root, "probes", "Probe") + unit_breaches(root, "actions", "Action") + cmake_breaches(root, names))
