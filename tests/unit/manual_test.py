#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Manual pages, journal catalogue and completions say what the programs and the formats say, all of it and no more.

P2PD_BUILD names the build directory whose bin/p2pctl is asked; build/dev unless told.
"""
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNITS, MAN, SCHEMA = ROOT / "units", ROOT / "units/man", ROOT / "config/schema"
BIN = pathlib.Path(os.environ.get("P2PD_BUILD") or ROOT / "build/dev").resolve() / "bin"
PAGES = ["p2pctl.1", "p2pd.plan.5", "org.p2pd1.5", "p2pd.8"]
MESSAGE_IDS = ROOT / "daemon/base/message_ids.hpp"
MADE_AT_RUN_TIME = {"p2pd-job.service"}
UNIT_KINDS = {".service", ".socket", ".timer", ".path", ".target"}


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"SKIP: no {program}")


def run(*argv, **more):
    return subprocess.run(list(map(str, argv)), stdin=subprocess.DEVNULL, capture_output=True,
                          **{"text": True, "timeout": 60, **more})


# ---- pages: mdoc, read by its macros ----

@functools.cache
def page(name):
    return (MAN / name).read_text()


def part(name, section, subsection=None):
    """Lines of a section up to its first subsection, or of one of its subsections."""
    lines, inside = [], (None, None)
    for line in page(name).splitlines():
        heading = re.match(r"\.S([hs]) (.*)", line)
        if heading:
            inside = (heading[2], None) if heading[1] == "h" else (inside[0], heading[2])
        elif inside == (section, subsection):
            lines.append(line)
    if not lines:
        raise AssertionError(f"{name}: no section {section} {subsection or ''}")
    return lines


def whole(name, section):
    """Lines of a section, those of its subsections too."""
    lines = re.search(rf"^\.Sh {section}$(.*?)(?=^\.Sh |\Z)", page(name), re.M | re.S)[1]
    return [line for line in lines.splitlines() if not line.startswith(".Ss")]


def items(lines):
    """(head, text) of each item of the outermost lists; lists within are text."""
    found, depth = [], 0
    for line in lines:
        depth += line.startswith(".Bl")
        if line.startswith(".It ") and depth == 1:
            found.append((line[4:], []))
        elif depth and found:
            found[-1][1].append(line)
        depth -= line.startswith(".El")
    return [(head, "\n".join(text)) for head, text in found]


def keys(lines, macro="Cm"):
    """Names that items put after `macro`, each with the item's text."""
    table = {}
    for head, text in items(lines):
        if head.startswith(macro + " "):
            for name in head[len(macro) + 1:].split(" , "):
                table[name.split(" ")[0]] = text
    return table


def options_of(text):
    """-x and --long of the Fl macros of a text."""
    return {"-" + name for name in re.findall(r"\bFl (-?[A-Za-z][A-Za-z-]*)", text)}


def shell_words(text):
    """(verb, options) of each p2pctl command that a text shows."""
    text = text.replace("\\e\n", " ")
    return [(verb, {o for o in rest.split() if o.startswith("-")})
            for verb, rest in re.findall(r"\bp2pctl ([a-z][a-z-]*)((?: +[^\s\"'|&;,.][^\s\"'|&;]*)*)", text)]


# ---- the program: its help, as CLI11 prints it ----

class Help:
    """What `p2pctl [WORDS] --help` prints."""

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
            elif (verb := re.match(r"  ([a-z][a-z-]*)\s", line + " ")) and heading == "subcommands:":
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
    """Verb to what p2pctl.1 says of it."""
    found = {}
    for head, text in items(whole("p2pctl.1", "VERBS")):
        name = re.match(r"Cm ([a-z-]+(?: [a-z-]+)*)", head)[1]
        found[name] = head + "\n" + text
    return found


class Case(unittest.TestCase):
    def assert_within(self, some, all_, what="too much"):
        self.assertEqual(sorted(set(some) - set(all_)), [], what)


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
        for name, text in texts.items():
            shown = shell_words(text)
            self.assertTrue(shown or name == "org.p2pd1.5", name)
            for verb, options in shown:
                with self.subTest(f"{name}: {verb} {options}"):
                    self.assert_within([verb], verbs(), "no such verb")
                    self.assert_within(options, verbs()[verb], "no such option")

    def test_plans_that_are_shown(self):
        blocks = re.findall(r"^\.Bd [^\n]*\n(.*?)^\.Ed", "\n".join(part("p2pd.plan.5", "EXAMPLES")), re.M | re.S)
        self.assertEqual(len(blocks), 2)
        for block in blocks:
            plan = block if "name:" in block else "name: shown\ntitle: Shown\n" + block
            step = re.search(r"- state: (\S+)", block)
            with self.subTest(block), tempfile.TemporaryDirectory() as directory:
                file = pathlib.Path(directory) / "plan.yaml"
                file.write_text(plan)
                done = run(BIN / "p2pctl", "explain", step[1] if step else "gpus", "--plan", file)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def assert_completion(self, shell):
        """The script of a shell, which that shell parses and which names every verb."""
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

    @needs("zsh")  # package zsh
    def test_zsh_completion(self):
        self.assertRegex(self.assert_completion("zsh"), r"\A#compdef p2pctl\b")


def schema(name):
    return json.loads((SCHEMA / f"{name}.schema.json").read_text())


def declared_parameters(folder):
    """Id of each probe or action to the names of its parameters."""
    shared = {}
    for header in sorted((ROOT / "daemon/base").glob("*.hpp")):
        for name, value in re.findall(r"constexpr Parameter (k\w+)(?:\[\])? = (.*?);\n", header.read_text(), re.S):
            shared[name] = set(re.findall(r'"(\w+)",\s*Parameter::Type', value))
    table = {}
    for path in sorted((ROOT / folder).glob("*.cpp")):
        if path.stem != "registry":
            text = path.read_text()
            own = set(re.findall(r'\{"(\w+)",\s*Parameter::Type', text))
            table[path.stem.replace("_", "-")] = own.union(*(shared[n] for n in shared if re.search(rf"\b{n}\b", text)))
    return table


class Formats(Case):
    """p2pd.plan.5, the schemas, and the tables of checks and fixes."""

    def assert_keys(self, lines, properties, required):
        documented = keys(lines)
        self.assertEqual(set(documented), set(properties))
        for key, rule in properties.items():
            with self.subTest(key):
                text = documented[key]
                if required is not None:
                    self.assertEqual(bool(re.search(r"^Required[.:]", text, re.M)), key in required)
                for value in rule.get("enum", []):
                    self.assertRegex(text, rf"\b{value}\b")
                for bound in [rule[b] for b in ("minimum", "maximum") if b in rule]:
                    self.assertRegex(text, rf"\b{bound}\b")
                if told := re.search(r"(\S+) unless told", rule.get("description", "")):
                    self.assertIn(f"Default: {told[1]}.", text)
                for inner in rule.get("properties", {}):
                    if key != "policy":  # has a part of its own
                        self.assertRegex(text, rf"\.Cm {inner}\b")

    def test_plan(self):
        plan = schema("plan")
        self.assert_keys(part("p2pd.plan.5", "PLAN"), plan["properties"], plan["required"])
        self.assert_keys(part("p2pd.plan.5", "PLAN", "Policy"), plan["properties"]["policy"]["properties"], [])
        step = plan["$defs"]["step"]
        self.assert_keys(part("p2pd.plan.5", "PLAN", "Steps"), step["properties"], step["required"])

    def test_configuration(self):
        self.assert_keys(part("p2pd.plan.5", "CONFIGURATION"), schema("config")["properties"], [])

    def test_catalogue(self):
        catalogue = schema("catalogue")
        self.assert_keys(part("p2pd.plan.5", "CATALOGUE"), catalogue["properties"], None)
        rule = catalogue["properties"]["compat_rules"]["additionalProperties"]["properties"]
        for key in rule:
            self.assertRegex(keys(part("p2pd.plan.5", "CATALOGUE"))["compat_rules"], rf"\.Cm {key}\b")
        entry = catalogue["$defs"]["entry"]
        self.assert_keys(part("p2pd.plan.5", "CATALOGUE", "Entries"), entry["properties"], entry["required"])

    def test_shipped_plans(self):
        named = keys(part("p2pd.plan.5", "DESCRIPTION"), "Sy")
        self.assertEqual(set(named), {p.stem for p in (ROOT / "config/plans").glob("*.yaml")})

    def test_checks_and_fixes(self):
        checks, fixes = keys(part("p2pd.plan.5", "PLAN", "Checks"), "Sy"), keys(part("p2pd.plan.5", "PLAN", "Fixes"), "Sy")
        probes, actions = declared_parameters("probes"), declared_parameters("actions")
        self.assertEqual(set(checks), set(probes))
        self.assertEqual(set(fixes), set(actions))
        for id_, names in probes.items():
            with self.subTest(check=id_):
                self.assertEqual({n for n in names if not re.search(rf"\b{n}\b", checks[id_])}, set())
        for id_, names in actions.items():
            with self.subTest(fix=id_):
                text = fixes[id_] + checks.get(id_, "")
                self.assertEqual({n for n in names if not re.search(rf"\b{n}\b", text)}, set())


class Bus(Case):
    """org.p2pd1.5 and units/org.p2pd1.xml."""

    @classmethod
    def setUpClass(cls):
        cls.interface = xml.etree.ElementTree.parse(UNITS / "org.p2pd1.xml").find("interface")
        cls.name = "org.p2pd1.5"

    def test_interface(self):
        self.assertIn(f".Sy {self.interface.get('name')}", page(self.name))

    def test_properties(self):
        shown = dict(re.fullmatch(r"Va (\w+) Pq Li (\S+)", head).groups()
                     for head, _ in items(part(self.name, "PROPERTIES")))
        self.assertEqual(shown, {p.get("name"): p.get("type") for p in self.interface.findall("property")})

    def test_announced(self):
        told = {p.get("name"): p.find("annotation").get("value") for p in self.interface.findall("property")
                if p.find("annotation") is not None}
        self.assertEqual(told, {"Version": "const", "Gpus": "false"}, "the page says so")

    def members(self, kind):
        table = {}
        for member in self.interface.findall(kind):
            table[member.get("name")] = [("out " if a.get("direction") == "out" else "") + f"{a.get('type')} {a.get('name')}"
                                         for a in member.findall("arg")]
        return table

    def shown(self, section):
        words = [shlex.split(head) for head, _ in items(part(self.name, section))]
        return {w[1]: w[2:] for w in words if w[0] == "Fn"}

    def test_methods_and_signals(self):
        self.assertEqual(self.shown("METHODS"), self.members("method"))
        self.assertEqual(self.shown("SIGNALS"), self.members("signal"))

    def test_errors(self):
        documented = set(keys(part(self.name, "ERROR NAMES"), "Sy"))
        named = {name for file in (ROOT / "daemon/bus").glob("*.cpp")
                 for name in re.findall(r'"(org\.p2pd1\.Error\.\w+)"', file.read_text())}
        self.assertEqual({n for n in documented if n.startswith("org.p2pd1.")}, named)

    def test_status_document(self):
        source = (ROOT / "daemon/engine/status.cpp").read_text() + (ROOT / "daemon/walk/publisher.cpp").read_text()
        documented = set(re.findall(r"\.(?:It )?Cm (\w+)", "\n".join(part(self.name, "STATUS DOCUMENT"))))
        documented |= {n for head, _ in items(part(self.name, "STATUS DOCUMENT")) for n in re.findall(r"\w+", head)[1:]}
        self.assert_within([n for n in documented if f'"{n}"' not in source], [])
        made = re.search(r"^json status_of\(.*?^}", source, re.M | re.S)[0]
        self.assert_within(re.findall(r'\{"(\w+)", ', made), documented, "not in the page")

    def test_actions(self):
        policy = xml.etree.ElementTree.parse(UNITS / "org.p2pd1.policy")
        self.assertEqual(set(keys(part(self.name, "AUTHORIZATION"), "Sy")), {a.get("id") for a in policy.iter("action")})

    def test_words(self):
        def words(file, name):
            table = re.search(rf"{name}\[\] = \{{(.*?)\}}", (ROOT / file).read_text(), re.S)[1]
            return set(re.findall(r'"([\w-]+)"', table))

        states = words("daemon/engine/transitions.cpp", "kStates")
        self.assertEqual(set(re.findall(r"^\.Ql (\S+)", keys(part(self.name, "PROPERTIES"), "Va")["State"], re.M)), states)
        self.assertEqual(set(keys(part("p2pd.8", "RUN STATES"), "Sy")), states)
        signals = "\n".join(part(self.name, "SIGNALS"))
        for status in words("daemon/engine/journal.cpp", "kStatus"):
            self.assertRegex(signals, rf"\.Ql {status}\b")


class Service(Case):
    """p2pd.8 and the units."""

    def test_units(self):
        shipped = {p.name for p in UNITS.iterdir() if p.suffix in UNIT_KINDS}
        named = {n for n in re.findall(r"\bPa ([\w.@-]+)", page("p2pd.8")) if pathlib.PurePath(n).suffix in UNIT_KINDS}
        self.assert_within(shipped, named, "not in the page")
        self.assert_within(named - MADE_AT_RUN_TIME, shipped, "not shipped")


class Catalogue(Case):
    """units/p2pd.catalog."""

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
        # journalctl knows only names of letters and '_': @P2PD_STEP@ would stay as it is
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
