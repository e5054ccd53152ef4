# SPDX-License-Identifier: MIT
"""config/kernel-table.yaml: reading and writing it, and the table of README.md that is made of it."""

import pathlib
import re

import yaml

HERE = pathlib.Path(__file__).resolve().parents[2]
FILE = HERE / "config/kernel-table.yaml"
README = HERE / "README.md"
HEAD = """# SPDX-License-Identifier: MIT
# What became of building the interface layer of each release for real kernels, with the kernel's own compiler. Made by
# tests/kernels/table; "p2pctl catalogue" prints it, and which kernels a build of the catalogue takes is told from it.
#   builds            as it is
#   builds with RULE  with the compat headers of these rules of catalogue.yaml
#   fails: LINE       the first error
"""


def by_version(name):
    return [int(part) for part in name.split(".")]


def read():
    return yaml.safe_load(FILE.read_text())


def write(table):
    releases = {name: table["releases"][name] for name in sorted(table["releases"], key=by_version)}
    for row in releases.values():
        row["kernels"] = {name: row["kernels"][name] for name in sorted(row["kernels"], key=by_version)}
    kernels = {name: table["kernels"][name] for name in sorted(table["kernels"], key=by_version)}
    text = yaml.safe_dump({"schema": "p2pd.kernel-table/1", "kernels": kernels, "releases": releases}, sort_keys=False, width=250, allow_unicode=True)
    FILE.write_text(HEAD + "\n" + text)


def cell(outcome):
    for beginning, text in {"builds with ": "with a compat header", "builds": "yes", "fails: ": "no"}.items():
        if outcome.startswith(beginning):
            return text
    return "not tried"


def markdown(table):
    """Releases by kernels, oldest first."""
    kernels = sorted(table["kernels"], key=by_version)
    rows = [["release", *(f"{name} ({table['kernels'][name]['distribution']})" for name in kernels)], ["---"] * (len(kernels) + 1)]
    for release in sorted(table["releases"], key=by_version):
        outcomes = table["releases"][release]["kernels"]
        rows.append([release, *(cell(outcomes.get(name, "")) for name in kernels)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def in_readme():
    """The table as README.md has it: what begins with its first heading."""
    return "".join(re.findall(r"^\| release \|.*\n(?:\|.*\n)*", README.read_text(), re.MULTILINE))


def put_in_readme(table):
    old = in_readme()
    if not old:
        raise ValueError(f'{README} has no table that begins with "| release |"')
    README.write_text(README.read_text().replace(old, markdown(table)))


def compat_flags(rules, used, directory):
    """KCFLAGS for the compat headers of the rules `used`, which lie in `directory`, as module_make.cpp has them."""
    forced = [f"-include {directory}/{rules[name]['include']}" for name in used if rules[name]["header"] != "include/" + rules[name]["include"]]
    return [*forced, f"-I {directory}"] if used else []
