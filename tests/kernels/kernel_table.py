# SPDX-License-Identifier: MIT
"""config/kernel-table.yaml: reading and writing it, and the ranges of README.md that are made of it."""

import pathlib
import re

import yaml

HERE = pathlib.Path(__file__).resolve().parents[2]
FILE = HERE / "config/kernel-table.yaml"
README = HERE / "README.md"
HEAD = """# SPDX-License-Identifier: MIT
# Results of building the interface layer of each release for real kernels, with the kernel's own compiler. Made by
# tests/kernels/table; "p2pctl catalogue" prints it and chooses the builds for a kernel by it.
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


def ranges(table):
    """Rows of Markdown: kernels for which the same releases build, of those tried, and these; "A to B" if each listed release between them does."""
    releases = sorted(table["releases"], key=by_version)
    rows = {}  # (releases tried, those that build) to kernels
    for kernel in sorted(table["kernels"], key=by_version):
        said = {name: table["releases"][name]["kernels"][kernel] for name in releases if kernel in table["releases"][name]["kernels"]}
        builds = tuple(name for name in said if said[name].startswith("builds"))
        rows.setdefault((tuple(said), builds), []).append(f"{kernel} ({table['kernels'][kernel]['distribution']})")
    lines = [["Linux", "driver releases that build for it"], ["---", "---"]]
    for (tried, builds), kernels in rows.items():
        runs = []
        for name in builds:
            if runs and releases.index(name) == releases.index(runs[-1][-1]) + 1:
                runs[-1].append(name)
            else:
                runs.append([name])
        text = ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs) or "none"
        lines.append([", ".join(kernels), text + ("" if len(tried) == len(releases) else f" ({len(tried)} of {len(releases)} tried)")])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def in_readme():
    """The ranges in README.md: the table that begins with their heading."""
    return "".join(re.findall(r"^\| Linux \|.*\n(?:\|.*\n)*", README.read_text(), re.MULTILINE))


def put_in_readme(table):
    old = in_readme()
    if not old:
        raise ValueError(f'{README} has no table that begins with "| Linux |"')
    README.write_text(README.read_text().replace(old, ranges(table)))


def compat_flags(rules, used, directory):
    """KCFLAGS for the compat headers of the rules `used`, which lie in `directory`, as module_make.cpp has them."""
    forced = [f"-include {directory}/{rules[name]['include']}" for name in used if rules[name]["header"] != "include/" + rules[name]["include"]]
    return [*forced, f"-I {directory}"] if used else []
