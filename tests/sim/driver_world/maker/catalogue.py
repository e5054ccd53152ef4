# SPDX-License-Identifier: MIT
"""Drop-ins for /etc/p2pd/catalogue.d with the pins of what was made (config/schema/catalogue.schema.json)."""

import yaml

from . import runfile

# drop-in -> ending of the branch. Only the first is for good; the others take its place to see p2pd refuse. "keep" is like the first,
# and has the versions of the distribution's packages, too
DROP_INS = {"driver-world": "-p2p", "asks": "-p2p-asks", "fails-late": "-p2p-fails-late", "moved": "-p2p-moved"}


def release(version, commit, made):
    digest, size = made
    return {"commit": commit, "known": "verified", "cuda": "12.8", "kernel_min": "5.13", "compat": ["pci-resize-exclude-bars"],
            "runfile": {"path": runfile.path(version), "sha256": digest, "bytes": size, "known": "verified"}}


def patch(repository, branch, version, commit):
    return {
        "repository": repository, "branch": branch, "commit": commit, "known": "verified", "base": version,
        "architectures": {"Ampere": "reported", "Ada": "reported", "Blackwell": "reported"},
        "module_options": {} if branch.endswith("-asks") else {"NVreg_EnableResizableBar": 1}, "registry_dwords_forbidden": {"RMForceP2PType": 1},
    }


def drop_ins(seen_at, pins, runfiles, distributed):
    """File name to text; `seen_at` is where the world lies for p2pd, `runfiles` and `distributed` version to SHA-256 and bytes."""
    repository, found = f"file://{seen_at}/git/open-gpu-kernel-modules.git", {}
    rows = [(name, ending, runfiles) for name, ending in DROP_INS.items()] + [("keep", "-p2p", runfiles | distributed)]
    for name, ending, runfiles in rows:
        table = {
            "schema": "p2pd.catalogue/2", "runfile_hosts": [f"file://{seen_at}/http"], "releases_at": repository,
            "releases": {version: release(version, pins[version], made) for version, made in runfiles.items()},
            "patches": {f"driver-world/{version}{ending}": patch(repository, version + ending, version, pins[version + ending]) for version in runfiles},
        }
        found[f"{name}.yaml"] = "# Made by tests/sim/driver_world.\n" + yaml.safe_dump(table, sort_keys=False, width=250)
    return found
