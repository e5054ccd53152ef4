#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What is typed at p2pctl, and who is there: questions on a terminal, in a pipe and without input; help; exit statuses as in the manual
page; JSON against its schemas; completion in bash, zsh and fish; output that is closed or has no colours. P2PD_BUILD: the build directory."""
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import unittest

import jsonschema

from bench_case import machine
from catalogue_case import BRANCH, ENVIRONMENT, Forks
from cli_case import BUILD, Case, P2PCTL, plan_text, prove, SCHEMAS, STEP
from terminal import on_terminal, open_terminal
from tree import boot, picture, TESTS, write

sys.path.append(str(TESTS / "tree"))
from manual import items, MAN, needs, part  # noqa: E402

BENCH = str(BUILD / "bin/p2p-bench")
QUESTION, CLOSED = " [y/N] ", ["sh", "-c", '"$0" "$@" <&-']
NOBODY = ["p2pctl: this changes the machine, and nobody can be asked: no terminal, or --json", "  next: run it on a terminal, or with --yes"]
USES, BLOCKED = ["copies", "nccl"], "{gate: a, title: A, check: gpu-inventory, with: {at_least: 9}}"
FAILS = (STEP.replace("kernel-cmdline", "modprobe-options").replace("arguments: [iommu=pt]", "module: nvidia, options: {NVreg_EnableMSI: 1}"),
         "{gate: b, title: B, check: kernel-cmdline, with: {arguments: [nobody.gives=1]}, after: [a]}")


def typed(*words, **more):
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run([*map(str, words)], text=True, timeout=120, **{**streams, "env": ENVIRONMENT, **more})


def typed_unread(*words):
    """The same into a pipe that nobody reads."""
    read, write_to = os.pipe()
    os.close(read)
    done = typed(*words, stdout=write_to)
    os.close(write_to)
    return done.returncode, done.stderr


class Asks:
    """A verb that asks before it changes something: who answers, in which way, and what is changed then."""

    def seen(self):
        """The tree and the state; a reader changes the files of the database, not its rows."""
        if not self.state.exists():
            return picture(self.tree), None
        with contextlib.closing(sqlite3.connect(self.state / "state.db")) as journal:
            rows = list(journal.iterdump())
        return picture(self.tree), {name: one for name, one in picture(self.state).items() if not name.startswith("state.db")}, rows

    def command(self, *words):
        return [P2PCTL, *map(str, words), "--root", str(self.tree)]

    def assert_needs_a_person(self, *words):
        words, before = self.command(*words), self.seen()
        person, program = open_terminal()
        for way, argv, popen in (("no input", words, {}), ("typed ahead", words, {"input": "y\n", "stdin": None}), ("closed", [*CLOSED, *words], {}),
                                 ("output in a pipe", words, {"stdin": program}), ("JSON", [*words, "--json"], {"stdin": program})):
            with self.subTest(words=words[1:-2], way=way):
                done = typed(*argv, **popen)
                self.assertEqual((done.returncode, done.stderr.splitlines()), (2, NOBODY), done.stdout)
                self.assertEqual(json.loads(done.stdout)["code"] if way == "JSON" else done.stdout, "unconfirmed" if way == "JSON" else "")
                self.assertEqual(self.seen(), before)
        os.close(person)
        os.close(program)

    def assert_answers(self, *words, question):
        words = self.command(*words)
        answers = {**dict.fromkeys(("n\n", "no\n", "\n", "yess\n", "\x04"), (1, "Nothing was changed.", False)), "\x03": (-signal.SIGINT, "", False),
                   **dict.fromkeys(("y\n", "yes\n"), (0, "", True))}
        for answer, (code, says, changes) in answers.items():
            with self.subTest(words=words[1:-2], answer=answer):
                self.again()
                before = self.seen()
                status, text = on_terminal(words, answer, asked=QUESTION, env=ENVIRONMENT | {"NO_COLOR": "1"})
                self.assertRegex(text, question)
                self.assertEqual((status, says in text, self.seen() != before), (code, True, changes), text)
        for way, argv in (("no input", words), ("closed", [*CLOSED, *words]), ("JSON", [*words, "--json"])):
            with self.subTest(words=words[1:-2], way=way):
                self.again()
                before = self.seen()
                done = typed(*argv, "--yes")
                self.assertEqual((done.returncode, QUESTION in done.stdout, self.seen() != before), (0, False, True), done.stdout + done.stderr)


class Apply(Asks, Case):
    again = Case.fresh

    def test_apply(self):
        self.assert_needs_a_person("apply", self.plan)
        self.assert_answers("apply", self.plan, question=r"(?s) kernel +boot with iommu=pt.*Apply this\? \[y/N\] ")

    def test_nothing_to_change(self):
        self.assertNotIn(QUESTION, on_terminal(self.command("revert"))[1])
        self.apply_to_end()
        self.assertNotIn(QUESTION, on_terminal(self.command("apply", self.plan))[1])


class Undo(Asks, Case):
    def again(self):
        self.fresh()
        self.json("apply", self.plan)

    def test_revert_and_cancel(self):
        for verb in ("revert", "cancel"):
            self.again()
            self.assert_needs_a_person(verb)
            self.assert_answers(verb, question=r"run 1 of plan test +a(.|\n)*Undo them\?.* \[y/N\] ")


class Allow(Asks, Forks):
    def again(self):
        shutil.rmtree(self.tree / "etc/p2pd/catalogue.d", ignore_errors=True)
        self.pin(known="single-source")

    def test_allow(self):
        self.again()
        words = ["catalogue", "allow", "fork/x", "--runfile-host", self.web.url]
        self.assert_needs_a_person(*words)
        self.assert_answers(*words, question=r"(?s)\Afork/x\r\n.*2 files changed.*Use it on this machine, with these hashes\? \[y/N\] ")


class Add(Allow):
    test_allow = None

    def test_add(self):
        """The question comes before the build, which a machine record cannot run."""
        words = ["catalogue", "add", "--mirror", f"file://{self.scratch}", "--runfile-host", self.web.url, self.fork.path, BRANCH]
        self.again()
        self.assert_needs_a_person(*words)
        self.assert_answers(*words, "--no-build", question=r"(?s)\Amy-fork/.*Pin it and use it here, with these hashes\? \[y/N\] ")
        self.again()
        before = self.seen()
        status, text = on_terminal(self.command(*words), "n\n", asked=QUESTION, env=ENVIRONMENT | {"NO_COLOR": "1"})
        self.assertRegex(text, r"Pin it, build it \(minutes\), and use it here, with these hashes\? \[y/N\] ")
        self.assertEqual((status, "Nothing was changed." in text, self.seen()), (1, True, before), text)


class Help(unittest.TestCase):
    def test_every_verb(self):
        """Within 80 columns, with an example and values that have names; "help VERB" is the same."""
        verbs = re.findall(r"(?m)^  ([a-z][a-z-]+) ", typed(P2PCTL, "--help").stdout.split("Examples:")[0])
        self.assertGreater(len(verbs), 20)
        for words in ([], ["completion"], ["catalogue", "diff"], ["catalogue", "allow"], ["catalogue", "add"], ["mirror", "make"], *([verb] for verb in verbs)):
            with self.subTest(words=words):
                done, again = typed(P2PCTL, *words, "--help"), typed(P2PCTL, "help", *words)
                self.assertEqual((done.returncode, done.stderr, again.stdout), (0, "", done.stdout))
                self.assertEqual([line for line in done.stdout.splitlines() if len(line) > 80], [])
                self.assertNotRegex(done.stdout, r"\b(TEXT|U?INT|FLOAT|PATH|ENUM)\b| in \[")
                program = ["p2p-bench"] if words == ["bench"] else ["p2pctl", *words]
                self.assertIn(f"Usage: {' '.join(program)} ", done.stdout)
                self.assertRegex(done.stdout.split("\nExamples:\n")[1], rf"(?m)^  .*\b{' '.join(program)}\b")
        self.assertEqual(typed(P2PCTL).stdout, typed(P2PCTL, "--help").stdout)

    def test_version(self):
        for program, option in itertools.product((P2PCTL, BENCH), ("-V", "--version")):
            done = typed(program, option)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, rf"\A{os.path.basename(program)} \d+\.\d+\.\d+\n\Z")

    def test_words_that_are_wrong(self):
        for words, pattern in ((["frobnicate"], "^p2pctl: unknown verb"), (["help", "frobnicate"], "^p2pctl: unknown verb"), (["docter"], "did you mean \"doctor\""),
                               (["apply", "--frobnicate"], "^p2pctl: .*frobnicate"), (["--json"], "^p2pctl: .*--json"),
                               (["-H", "gpu7", "explain", "gpus"], "^p2pctl: -H: .*this machine only")):
            with self.subTest(words=words):
                done = typed(P2PCTL, *words)
                self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 2), done.stderr)
                self.assertRegex(done.stderr, pattern)
                self.assertRegex(done.stderr, r"\n  next: ")


PAGE = {int(head): re.sub(r"\s+", " ", re.sub(r"(?m)^\.\S+|\bFl ", " ", text)) for head, text in items(part("p2pctl.1", "EXIT STATUS"))}
FAILED, NEITHER = "the run failed", "status : neither ready nor limited, blocked or failed"
# state of the last run, its result, the exit status of `status`, and words of the manual page about that
STATES = [("ready", "ready", 0, "Success"), ("idle", "done", 0, "Success"), ("limited", "limited", 5, "Limited"), ("blocked", "", 4, "Blocked"),
          ("failed", "failed", 1, FAILED), ("idle", "reverted", 3, NEITHER), ("idle", "cancelled", 3, NEITHER), ("paused", "", 3, NEITHER),
          ("rebooting", "", 3, "a run is under way"), ("walking", "", 3, "a run is under way"), ("reverting", "", 3, "a run is under way")]


class Codes(Case):
    def assert_exits(self, code, words, *about):
        """With that status, also as JSON, which has it where `exit_status` is; `about`: the manual page says so."""
        done, program = (typed(P2PCTL, *words, *more, "--root", self.tree) for more in ((), ["--json"]))
        with self.subTest(words=words):
            self.assertEqual((done.returncode, program.returncode), (code, code), done.stdout + done.stderr)
            document = json.loads(program.stdout)
            self.assertEqual(document.get("exit_status", code), code)
            jsonschema.validate(document, SCHEMAS[document["schema"]])
            for text in about:
                self.assertIn(text, PAGE[code])

    def test_states(self):
        self.json("apply", self.plan)
        self.assertEqual({state for state, *_ in STATES}, set(SCHEMAS["p2pd.status/1"]["properties"]["state"]["enum"]))
        for state, result, code, about in STATES:
            with contextlib.closing(sqlite3.connect(self.state / "state.db")) as journal, journal:
                journal.execute("UPDATE runs SET state=?, result=?", [state, result])
            self.assert_exits(code, ["status"], about)

    def test_runs(self):
        """What leads to each state ends with the status of that state, or begins a restart."""
        rows = [(None, [(3, "status"), (0, "revert"), (1, "pause"), (1, "cancel")]),
                ([STEP], [(0, "apply"), (3, "status"), (0, "pause"), (3, "status"), (0, "resume"), (0, "cancel"), (3, "status")]),
                ([STEP], [(0, "apply"), (None, "boot"), (0, "apply"), (0, "status"), (0, "revert"), (None, "boot"), (0, "revert"), (3, "status")]),
                ([BLOCKED], [(4, "apply"), (4, "status"), (4, "retry"), (0, "cancel"), (3, "status")]),
                (FAILS, [(1, "apply"), (1, "status")])]
        for steps, verbs in rows:
            self.fresh()
            write(self.plan, plan_text(*steps or [STEP]))
            for number, (code, verb) in enumerate(verbs):
                with self.subTest(steps=steps, verb=verb, number=number):
                    if verb == "boot":
                        boot(self.tree)
                        continue
                    done = self.ctl(verb, *[self.plan] * (verb == "apply"), "--json")
                    self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                    self.assertEqual(json.loads(done.stdout).get("exit_status", 1), code)

    def test_machines(self):
        """doctor, and who asks whether P2P is proven."""
        rows = [("no-gpu", None, [(4, "doctor"), (4, "plan"), (3, "is-ready"), (3, "status"), (3, "env"), (4, "bench")]),
                (self.RECORD, None, [(2, "doctor"), (0, "plan"), (2, "plan", "--detailed-exitcode"), (3, "is-ready")]),
                ("rtx4090-x2-healthy", None, [(2, "doctor"), (3, "env"), (0, "verify")]),
                ("rtx4090-x2-healthy", False, [(0, "doctor"), (0, "is-ready"), (0, "env"), (0, "verify")]),
                ("rtx4090-x2-healthy", True, [(5, "doctor"), (5, "is-ready"), (0, "is-ready", "--for", "nccl"), (3, "is-ready", "--for", "atomics"), (0, "env")])]
        about = {(2, "doctor"): ["doctor and plan", "would change something, or prove P2P"], (2, "plan"): ["plan -detailed-exitcode"], (3, "is-ready"): ["is-ready : not ready"],
                 (3, "env"): ["env : not proven on this boot"], (4, "doctor"): ["Blocked: the operator must act first"], (4, "bench"): ["bench : there is nothing to prove"],
                 (5, "doctor"): ["for fewer uses than the plan wants"], (3, "status"): [NEITHER]}
        for record, limited, verbs in rows:
            self.use(record)
            if limited is not None:
                boot(self.tree)
                prove(self.tree, USES if limited else [*USES, "custom-all-reduce"], limited)
            for code, *words in verbs:
                with self.subTest(record=record, limited=limited):
                    self.assert_exits(code, words, *about.get((code, words[0]), []))

    def test_errors(self):
        self.assert_exits(1, ["explain", "gpu"], "An error, printed on standard error")
        self.apply_to_end()
        write(self.tree / "etc/default/grub.d/zz-p2pd.cfg", "mine\n")
        self.assert_exits(2, ["verify"], "verify : something was changed")
        self.assert_exits(2, ["revert"], "without a terminal and without -yes : nothing was changed")
        for words in (["catalogue", "--root", self.tree], ["plan", "--root", self.tree], ["--help"]):
            self.assertEqual(typed_unread(P2PCTL, *words), (141, ""))
        self.assertEqual(PAGE.keys(), {0, 1, 2, 3, 4, 5, 141})  # each is in a row above


MIRROR = {"p2pd.mirror-made/1"}  # of a mirror of builds, which a machine record has not


class Documents(Forks):
    """JSON of each verb, against the schema of its name."""
    IN_SOURCES = {name for file in (TESTS.parent / "daemon/ctl").glob("*.cpp") for name in re.findall(r'print_json\("(p2pd\.[a-z-]+/\d)"', file.read_text())}

    def measured(self):
        """Puts a proof into the state of an applied plan."""
        bench = json.loads((TESTS / "sim/two-gpus.report.json").read_text())
        with contextlib.closing(sqlite3.connect(self.state / "state.db")) as journal, journal:
            journal.execute("UPDATE steps SET finding=?", [json.dumps({"verdict": "pass", "summary": "", "facts": bench, "evidence": [], "next": ""})])
        write(self.state / "baseline.json", json.dumps(bench))
        prove(self.tree, USES)

    def test_every_verb(self):
        self.pin(known="single-source")
        fork, hosts = [self.fork.path, BRANCH], ["--runfile-host", self.web.url, "--mirror", f"file://{self.scratch}"]
        rows = [["doctor"], ["plan"], ["status"], ["history"], ["explain"], ["explain", "gpus"], ["explain", "nothing"], ["report"], ["metrics"], ["features"],
                ["env"], ["is-ready"], ["verify"], ["gain"], ["record", self.scratch / "record"], ["pause"], ["apply"], ["apply", "--frobnicate"],
                ["apply", self.plan, "--yes"], ["status"], ["history"], ["history", "--all"], ["pause"], ["resume"], ["retry"], self.measured, ["gain"], ["env"],
                ["is-ready"], ["status"], ["history"], ["report"], ["metrics"], ["verify"], ["revert", "--yes"], ["cancel", "--yes"], ["catalogue"],
                ["catalogue", "diff", "fork/x"], ["catalogue", "allow", "fork/x", "--yes"], ["catalogue", "add", *fork, *hosts, "--no-build", "--pin-only"],
                ["mirror", "make", self.scratch], ["bench"]]
        seen = set()
        for words in rows:
            if callable(words):
                words()
                continue
            with self.subTest(words=words):
                done = typed(P2PCTL, *words, "--json", "--root", self.tree)
                self.assertIn(done.returncode, range(6), done.stderr)
                self.assertNotIn("unexpected:", done.stderr)
                document = json.loads(done.stdout)
                seen.add(document["schema"])
                if schema := SCHEMAS.get(document["schema"]):
                    jsonschema.Draft202012Validator(schema).validate(document)
                self.assertEqual(document["schema"] == "p2pd.error/1", bool(done.stderr), done.stderr)
        self.assertEqual(self.IN_SOURCES - seen, MIRROR)
        self.assertEqual((seen | MIRROR) - SCHEMAS.keys(), set(re.findall(r"p2pd\.[a-z-]+/\d", "\n".join(part("p2pctl.1", "OPTIONS")))) - SCHEMAS.keys())

    def test_schemas(self):
        """Each format that a program names has one, or a manual page names it."""
        for schema in SCHEMAS.values():
            jsonschema.Draft202012Validator.check_schema(schema)
        sources = "".join(file.read_text() for folder in ("daemon", "probes") for file in (TESTS.parent / folder).rglob("*.?pp"))
        named = "".join(page.read_text() for page in MAN.iterdir())
        self.assertEqual({name for name in re.findall(r'"(p2pd\.[a-z-]+/\d)"', sources) if name not in SCHEMAS and name not in named}, set())


class Output(Case):
    def test_closed(self):
        """An error, and no abort where that cannot be told, either."""
        record = self.scratch / "record.json"
        tree = ["--root", self.tree]
        for words in (["doctor", *tree], ["plan", *tree], ["status", *tree], ["--help"], ["apply", "--help"], ["--version"], ["help"], ["completion", "bash"],
                      ["record", record, *tree], ["report", self.scratch / "page", *tree], ["catalogue", *tree],
                      ["catalogue", "--json", *tree], ["apply", self.plan, "--yes", *tree]):
            for way in (">/dev/full", ">&-", "<&- >&- 2>&-"):
                with self.subTest(words=words, way=way):
                    if "record" in words:
                        record.unlink(missing_ok=True)
                    done = typed("sh", "-c", f'exec "$0" "$@" {way}', P2PCTL, *words)
                    self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
                    self.assertIn("p2pctl: cannot write to standard output\n" if "2" not in way else "", done.stderr)
        for words, way in itertools.product((["explain", "nothing"], ["frobnicate"], ["apply", "--frobnicate"]), ("2>/dev/full", "2>&-")):
            with self.subTest(words=words, way=way):
                self.assertEqual(typed("sh", "-c", f'exec "$0" "$@" {way}', P2PCTL, *words).returncode, 1)
        self.assertEqual(self.ctl("doctor", root=record).returncode, 2)  # the record has nothing that was printed
        self.assertEqual(self.json("status")["state"], "rebooting")

    def test_a_reader_that_leaves(self):
        self.assertEqual(typed_unread(P2PCTL, "apply", "--yes", self.plan, "--root", self.tree), (141, ""))
        self.assertEqual(self.json("status")["state"], "rebooting")  # the run went on

    def test_escapes_only_for_a_terminal_that_obeys(self):
        write(self.scratch / "gpus.json", json.dumps(machine(2)))
        colours = ENVIRONMENT | {"TERM": "xterm", "NO_COLOR": "", "LD_LIBRARY_PATH": str(BUILD / "sim"), "P2PD_SIM_CUDA": str(self.scratch / "gpus.json")}
        for words in (["doctor"], ["plan"], ["status"], ["history"], ["explain", "gpus"], ["catalogue"], ["apply", "absent"], ["apply", self.plan], ["bench", "--quick"]):
            argv = [P2PCTL, *words, "--root", self.tree] if words[0] != "bench" else [P2PCTL, *words]
            with self.subTest(words=words):
                done = typed(*argv, env=colours)
                self.assertNotIn("\x1b", done.stdout + done.stderr)
                self.assertEqual("\x1b" in on_terminal(argv, "n\n", env=colours)[1], words not in (["history"], ["apply", "absent"]))
                self.assertNotIn("\x1b", on_terminal(argv, "n\n", env=colours | {"TERM": "dumb"})[1])
                self.assertNotRegex(on_terminal(argv, "n\n", env=colours | {"NO_COLOR": "1"})[1], r"\x1b\[[\d;]*m")


# typed before the Tab key, words that are offered, words that are not
TABS = [("p2pctl ex", ["explain"], ["env"]), ("p2pctl record", ["record"], ["report"]), ("p2pctl help re", ["record", "report", "revert"], ["verify"]),
        ("p2pctl apply --no", ["--no-block", "--no-dbus", "--no-reboot"], ["--yes"]), ("p2pctl apply l", ["lab"], ["lab.yaml"]),
        ("p2pctl doctor ver", ["verify"], []), ("p2pctl explain --plan la", ["lab"], []), ("p2pctl explain my", ["my-step"], []), ("p2pctl explain iom", ["iommu"], []),
        ("p2pctl catalogue a", ["add", "allow"], ["diff"]), ("p2pctl catalogue diff tinygrad/550.9", ["tinygrad/550.90.07-p2p"], []),
        ("p2pctl catalogue allow aikitoria/570.86", ["aikitoria/570.86.16-p2p"], []), ("p2pctl catalogue add --run", ["--runfile-host"], []),
        ("p2pctl report mach", ["machine.json"], []), ("p2pctl record ", ["machine.json"], []), ("p2pctl record --un", ["--unpack"], []),
        ("p2pctl doctor --root mach", ["machine.json"], []), ("p2pctl bench --soa", ["--soak"], []), ("p2pctl completion z", ["zsh"], []),
        ("p2pctl apply ", ["lab", "geforce-p2p"], []), ("p2pctl apply $(touch", [], [])]


class Completion(Case):
    def setUp(self):
        super().setUp()
        self.plans, self.home = self.scratch / "plans", self.scratch / "home"
        write(self.home / "machine.json", "{}")
        write(self.plans / "lab.yaml", "steps:\n  - {gate: my-step, check: x}\n  - {gate: $(touch touched), check: x}\n")
        for name in ("$(touch touched)", "`touch${IFS}touched`", "a;touch touched", "x\n$(touch${IFS}touched)\ny", "-n", "*"):
            write(self.plans / f"{name}.yaml", "")
        self.environment = {"PATH": f"{BUILD / 'bin'}:/usr/bin:/bin", "HOME": str(self.home), "ZDOTDIR": str(self.home), "TERM": "xterm", "LC_ALL": "C.UTF-8"}

    def assert_completes(self, shell, offered):
        script = typed(P2PCTL, "completion", shell).stdout
        self.assertIn("/etc/p2pd/plans /usr/lib/p2pd/plans", script)
        write(self.home / "_p2pctl", script.replace("/etc/p2pd/plans /usr/lib/p2pd/plans", f"{self.plans} {TESTS.parent / 'config/plans'}"))
        for line, wanted, other in TABS:
            with self.subTest(line):
                words = offered(line)
                self.assertEqual((set(wanted) - words, set(other) & words), (set(), set()))
        self.assertEqual(sorted(path.name for path in self.home.iterdir() if "touched" in path.name), [])

    def tab(self, line, *argv):
        """What an interactive shell shows once Tab is pressed; "echo" before the line then prints it completed."""
        text = on_terminal(argv, f"{line}\t\x01echo '\x05'\nexit\n", asked="> ", rows=500, columns=200, cwd=self.home, env=self.environment)[1]
        return set(re.split(r"[\s']+", re.sub(r"\x1b(\[[?\d;]*[A-Za-z]|[=>])", " ", text)))

    @needs("bash")
    def test_bash(self):
        settings = "show-all-if-ambiguous on", "page-completions off", "completion-query-items 0", "enable-bracketed-paste off"
        write(self.home / "bashrc", "".join(f"bind 'set {one}'\n" for one in settings) + ". ./_p2pctl\nPS1='> '\n")
        self.assert_completes("bash", lambda line: self.tab(line, "bash", "--noprofile", "--rcfile", "bashrc", "-i"))

    @needs("zsh")  # package zsh
    def test_zsh(self):
        write(self.home / ".zshrc", "unset zle_bracketed_paste\nLISTMAX=9999\nunsetopt list_ambiguous\nfpath=($PWD $fpath)\nautoload -Uz compinit\ncompinit -u -D\nPS1='> '\n")
        self.assert_completes("zsh", lambda line: self.tab(line, "zsh", "-i"))

    @needs("fish")
    def test_fish(self):
        def offered(line):
            done = typed("fish", "--no-config", "-c", 'source _p2pctl; complete -C "$P2PD_LINE"', cwd=self.home, env=self.environment | {"P2PD_LINE": line})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return {word.split("\t")[0].rstrip("/") for word in done.stdout.splitlines()}
        self.assert_completes("fish", offered)


if __name__ == "__main__":
    unittest.main()
