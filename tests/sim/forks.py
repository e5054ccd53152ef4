# SPDX-License-Identifier: MIT
"""NVIDIA's repository of open modules and a fork of it, in the small: real git, sources of a few lines, tags and branches."""
import os
import pathlib
import subprocess

CONTEXT = "".join(f"int line_{n};\n" for n in range(12))
NV_PCI, BAR1 = "kernel-open/nvidia/nv-pci.c", "src/nvidia/bar1.c"


def git(directory, *words, **options):
    """Output of git, run without the user's configuration."""
    command = ["git", "-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "init.defaultBranch=main",
               "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false", "-c", "advice.detachedHead=false", "-C", str(directory), *map(str, words)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return subprocess.run(command, check=True, capture_output=True, text=True, **options,
                          env={**environment, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}).stdout.strip()


def write(path, content):
    """Text, bytes, ("link", target), ("program", text), or None: it goes."""
    kind, content = content if isinstance(content, tuple) else ("file", content)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(content)
    elif content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o755 if kind == "program" else 0o644)


def release(version, told=""):
    """Files of NVIDIA's release; `told`: what this one has more, far from what the fork changes."""
    return {"version.mk": f"NVIDIA_VERSION = {version}\n\n# more\n", "README.md": "# modules\n", "Makefile": "all:\n",
            "kernel-open/conftest.sh": "# tests of headers\n", NV_PCI: CONTEXT + told, BAR1: f"{CONTEXT}int override;\n"}


def patch(on=CONTEXT):
    """Files that a fork changes: C files, and a text."""
    return {NV_PCI: on.replace("line_0", "line_0 = 1"), BAR1: f"{CONTEXT}int override = 0x11;\n", "README.md": "# modules, patched\n"}


class Repository:
    """A repository at `path`, with a working tree: the one that is there, or a new one."""

    def __init__(self, path, of=None):
        self.path = pathlib.Path(path)
        self.url = f"file://{self.path}"
        if self.path.exists():
            return
        self.path.mkdir(parents=True)
        git(self.path, "init", "--quiet")
        if of:
            git(self.path, "fetch", "--quiet", "--tags", of.path)

    def commit(self, files, branch=None, on=None):
        """A commit of `files` on a commit (None: on none), as `branch` where one is named."""
        git(self.path, "checkout", "--quiet", "--force", *(("--detach", on) if on else ("--orphan", "orphan")))
        if not on:
            git(self.path, "rm", "-r", "--quiet", "--force", "--ignore-unmatch", ".")
        for name, content in files.items():
            write(self.path / name, content)
        git(self.path, "add", "--all", "--force")
        git(self.path, "commit", "--quiet", "--allow-empty", "--message", "x")
        head = git(self.path, "rev-parse", "HEAD")
        if branch:
            git(self.path, "update-ref", f"refs/heads/{branch}", head)
        if not on:  # no branch is checked out
            git(self.path, "checkout", "--quiet", "--detach")
            git(self.path, "update-ref", "-d", "refs/heads/orphan")
        return head

    def release(self, version, told="", annotated=False):
        """A commit of NVIDIA's with its tag."""
        commit = self.commit(release(version, told))
        git(self.path, "tag", *(("--annotate", "--message", "x") if annotated else ()), version, commit)
        return commit

    def file(self, commit, name):
        return git(self.path, "show", f"{commit}:{name}") + "\n"

    def bundle(self, path, commit):
        path.parent.mkdir(parents=True, exist_ok=True)
        git(self.path, "update-ref", "refs/heads/bundled", commit)
        git(self.path, "bundle", "create", path, "refs/heads/bundled")
        git(self.path, "update-ref", "-d", "refs/heads/bundled")
