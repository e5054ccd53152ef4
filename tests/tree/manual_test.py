#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Manual pages, README.md, completions and the journal's catalogue describe the programs and units, completely and no more."""
import functools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from manual import BIN, Case, items, keys, MAN, needs, page, part, ROOT, run, UNITS, whole

MESSAGE_IDS = ROOT / "daemon/worker/publisher.cpp"
PAGES = ["p2p-bench.1", "p2pctl.1", "p2pd.plan.5", "org.p2pd1.5", "p2pd.8"]
MADE_AT_RUN_TIME = {"p2pd-job.service"}
UNIT_KINDS = {".service", ".socket", ".timer", ".path", ".target"}


def options_of(text):
    """-x and --long of the Fl macros of a text."""
    return {"-" + name for name in re.findall(r"\bFl (-?[A-Za-z][A-Za-z-]*)", text)}


def shell_words(text):
    """(verb, options) of each p2pctl command that a text shows."""
    text = text.replace("\\e\n", " ")
    return [(verb, {o for o in rest.split() if o.startswith("-")})
            for verb, rest in re.findall(r"\bp2pctl ([a-z][a-z-]*)((?: +[^\s\"'|&;,.][^\s\"'|&;]*)*)", text)]


class Help:
    """Output of `p2pctl [WORDS] --help`."""

    def __init__(self, *words, program="p2pctl"):
        done = run(BIN / program, *words, "--help")
        if done.returncode:
            raise AssertionError(f"{program} {words}: {done.stderr}")
        self.options, self.verbs, heading = set(), [], ""
        for line in done.stdout.splitlines():
            if re.match(r"\S.*:$", line):
                heading = line.lower()
            elif option := re.match(r"\s+(-[\w-]+(?:,\s*-[\w-]+)*)", line):
                self.options |= set(re.split(r",\s*", option[1]))
            elif (verb := re.match(r"  ([a-z][a-z-]*)\s", line + " ")) and heading not in ("options:", "positionals:", "examples:"):
                self.verbs.append(verb[1])


@functools.cache
def verbs():
    """Verb, with its own verbs as words behind it, to its options."""
    table = {}

    def add(*words):
        shown = Help(*words)
        table[" ".join(words)] = shown.options
        for verb in shown.verbs:
            add(*words, verb)

    for verb in Help().verbs:
        add(verb)
    table["bench"] = table["bench"] | Help(program="p2p-bench").options
    return table


def verb_items():
    """Verb to its description in p2pctl.1."""
    found = {}
    for head, text in items(whole("p2pctl.1", "VERBS")):
        name = re.match(r"Cm ([a-z-]+(?: [a-z-]+)*)", head)[1]
        found[name] = head + "\n" + (page("p2p-bench.1") if name == "bench" else text)
    return found


class Pages(Case):
    def test_first_line(self):
        self.assertEqual(sorted(PAGES), sorted(p.name for p in MAN.iterdir()))
        for name in PAGES:
            with self.subTest(name):
                self.assertEqual(page(name).splitlines()[0], '.\\" SPDX-License-Identifier: MIT')

    @needs("mandoc")  # package mandoc
    def test_mandoc(self):
        for name in PAGES:
            with self.subTest(name):
                done = run("mandoc", "-T", "lint", "-W", "warning", MAN / name)
                self.assertEqual((done.returncode, done.stdout), (0, ""))

    @needs("groff")  # package groff-base
    def test_groff(self):
        for name in PAGES:
            with self.subTest(name):
                done = run("groff", "-mdoc", "-ww", "-z", MAN / name)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_references_among_pages(self):
        ours = {tuple(name.rsplit(".", 1)) for name in PAGES}
        names = {name for name, _ in ours}
        for name in PAGES:
            for referred in re.findall(r"^\.(?:It )?Xr (\S+) (\d)", page(name), re.M):
                if referred[0] in names or referred[0].startswith(("p2p", "org.p2p")):
                    with self.subTest(f"{name}: {referred}"):
                        self.assertIn(referred, ours)


@unittest.skipUnless((BIN / "p2pctl").exists() or "P2PD_BUILD" in os.environ, f"SKIP: no {BIN}/p2pctl")
class Program(Case):
    """p2pctl.1 and the help of p2pctl."""

    def test_verbs(self):
        self.assertEqual(set(verb_items()), set(verbs()))

    def test_options(self):
        common = set().union(*(options_of(head) for head, _ in items(part("p2pctl.1", "OPTIONS"))))
        self.assert_within(common, Help().options.union(*verbs().values()), "in the page, not in any help")
        for verb, text in verb_items().items():
            with self.subTest(verb):
                printed = verbs().get(verb, set())
                self.assert_within(options_of(text), printed, "in the page, not in the help")
                self.assert_within(printed, options_of(text) | common, "in the help, not in the page")

    def test_no_other_option_is_named(self):
        self.assert_within(options_of(page("p2pctl.1")), Help().options.union(*verbs().values()))

    def test_commands_that_are_shown(self):
        texts = {name: page(name) for name in PAGES}
        texts["p2pd.catalog"] = (UNITS / "p2pd.catalog").read_text()
        for file in ("README.md", "packaging/debian/NEWS", "packaging/debian/p2pd.bug-script", ".github/ISSUE_TEMPLATE/machine.yaml"):
            texts[file] = (UNITS.parent / file).read_text()
        for name, text in texts.items():
            shown = shell_words(text)
            self.assertTrue(shown or name in ("org.p2pd1.5", "p2p-bench.1"), name)
            for verb, options in shown:
                with self.subTest(f"{name}: {verb} {options}"):
                    self.assert_within([verb], verbs(), "no such verb")
                    self.assert_within(options, verbs()[verb], "no such option")

    def test_plans_that_are_shown(self):
        blocks = re.findall(r"^\.Bd [^\n]*\n(.*?)^\.Ed", "\n".join(part("p2pd.plan.5", "EXAMPLES")), re.M | re.S)
        self.assertEqual(len(blocks), 2)
        for block in blocks:
            plan = block if "name:" in block else "name: shown\ntitle: Shown\n" + block
            step = re.search(r"- gate: (\S+)", block)
            with self.subTest(block), tempfile.TemporaryDirectory() as directory:
                file = pathlib.Path(directory) / "plan.yaml"
                file.write_text(plan)
                done = run(BIN / "p2pctl", "explain", step[1] if step else "gpus", "--plan", file)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def assert_completion(self, shell):
        """The completion script for a shell: the shell parses it, and it names every verb."""
        done = run(BIN / "p2pctl", "completion", shell)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        script = done.stdout
        parsed = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, timeout=60)
        self.assertEqual((parsed.returncode, parsed.stdout, parsed.stderr), (0, "", ""))
        for verb in verbs():
            for word in verb.split():
                self.assertRegex(script, rf"(?<![\w-]){re.escape(word)}(?![\w-])")
        return script

    @needs("bash")
    def test_bash_completion(self):
        self.assertRegex(self.assert_completion("bash"), r"(?m)^\s*complete .*\bp2pctl\b")

    @needs("fish")
    def test_fish_completion(self):
        self.assertRegex(self.assert_completion("fish"), r"(?m)^complete -c p2pctl ")

    @needs("zsh")  # package zsh
    def test_zsh_completion(self):
        self.assertRegex(self.assert_completion("zsh"), r"\A#compdef p2pctl\b")


class Service(Case):
    """p2pd.8 and the units."""

    def test_units(self):
        shipped = {p.name for p in UNITS.iterdir() if p.suffix in UNIT_KINDS}
        named = {n for n in re.findall(r"\bPa ([\w.@-]+)", page("p2pd.8")) if pathlib.PurePath(n).suffix in UNIT_KINDS}
        self.assert_within(shipped, named, "not in the page")
        self.assert_within(named - MADE_AT_RUN_TIME, shipped, "not shipped")


class Catalogue(Case):
    """units/p2pd.catalog: an entry for each message id, as journalctl takes it and the manual names it."""

    def setUp(self):
        self.text = (UNITS / "p2pd.catalog").read_text()
        parts = re.split(r"^-- ([0-9a-f]{32})\n", self.text, flags=re.M)
        self.entries = dict(zip(parts[1::2], parts[2::2]))
        self.assertEqual(len(self.entries), len(parts) // 2, "an id is there twice")

    def test_entries(self):
        for id_, entry in self.entries.items():
            with self.subTest(id_):
                head, _, body = entry.partition("\n\n")
                fields = dict(line.split(": ", 1) for line in head.splitlines())
                self.assertEqual(set(fields), {"Subject", "Defined-By", "Documentation"})
                self.assertEqual(fields["Defined-By"], "p2pd")
                self.assertIn('"p2pctl ', body)
                self.assertLessEqual(max(map(len, body.splitlines())), 80)

    def test_fields_are_replaced(self):
        # journalctl knows only names of letters and '_': it would print @P2PD_STEP@ unchanged
        for name in re.findall(r"@(\w+)@", "".join(self.entries.values())):
            self.assertRegex(name, r"\A[A-Z_]+\Z")

    def test_manual(self):
        self.assertEqual(set(keys(part("p2pd.8", "JOURNAL"), "Li")), set(self.entries))

    @unittest.skipUnless(MESSAGE_IDS.exists(), f"SKIP: no {MESSAGE_IDS.name}")
    def test_ids(self):
        declared = re.findall(r'\b(k\w+)\s*=\s*"([0-9a-f]{32})"', MESSAGE_IDS.read_text())
        self.assertEqual(sorted(re.findall(r"^# (k\w+)\n-- ([0-9a-f]{32})$", self.text, re.M)), sorted(declared))

    @needs("journalctl")  # package systemd
    def test_journalctl_takes_it(self):
        with tempfile.TemporaryDirectory() as root:
            catalog = pathlib.Path(root) / "usr/lib/systemd/catalog"
            catalog.mkdir(parents=True)
            (pathlib.Path(root) / "var/lib/systemd/catalog").mkdir(parents=True)
            shutil.copy(UNITS / "p2pd.catalog", catalog)
            done = run("journalctl", "--update-catalog", "--root", root)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            listed = run("journalctl", "--list-catalog", "--root", root).stdout
        self.assertEqual({line.split()[0] for line in listed.splitlines()}, set(self.entries))


if __name__ == "__main__":
    unittest.main()
