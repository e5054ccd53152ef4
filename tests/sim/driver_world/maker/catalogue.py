# SPDX-License-Identifier: MIT
"""Drop-ins for /etc/p2pd/catalogue.d with the pins of what was made (config/schema/catalogue.schema.json)."""

import json

from . import runfile

# drop-in -> ending of the branch. Only the first is for good; the others take its place to see p2pd refuse
DROP_INS = {"driver-world": "-p2p", "asks": "-p2p-asks", "fails-late": "-p2p-fails-late", "moved": "-p2p-moved"}


def entry(seen_at, branch, version, commit, made):
    digest, size = made
    return {
        "id": f"driver-world/{branch}", "note": "Made by tests/sim/driver_world.", "enabled": True, "fork": "driver-world",
        "repository": f"file://{seen_at}/git/open-gpu-kernel-modules.git", "branch": branch, "commit": commit,
        "commit_status": "verified_in_git", "base_version": version,
        "runfile": {"version": version, "path": runfile.path(version), "sha256": digest, "bytes": size},
        "architectures": {"Ampere": "reported", "Ada": "reported", "Blackwell": "reported"},
        "kernel": {"min": "5.13"}, "compiler": {"gcc_tested": [11, 12, 13]}, "compat": ["pci-resize-exclude-bars"],
        "module_options": {} if branch.endswith("-asks") else {"NVreg_EnableResizableBar": 1}, "registry_dwords_forbidden": {"RMForceP2PType": 1},
    }


def drop_ins(seen_at, pins, runfiles):
    """File name to text; `seen_at` is where the world lies for p2pd, `runfiles` version to SHA-256 and bytes."""
    found = {}
    for name, ending in DROP_INS.items():
        rows = [entry(seen_at, version + ending, version, pins[version + ending], made) for version, made in runfiles.items()]
        table = {"schema": "p2pd.catalogue/1", "runfile_hosts": [f"file://{seen_at}/http"], "entries": rows}
        found[f"{name}.json"] = json.dumps(table, indent=2) + "\n"
    return found
