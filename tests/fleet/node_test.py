#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""packaging/kubernetes/p2pd-node on stand-ins of p2pctl and kubectl; the privileges that daemonset.yaml asks for. Needs no root."""
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import yaml

KUBERNETES = pathlib.Path(__file__).resolve().parents[2] / "packaging/kubernetes"
STATE = "feature.node.kubernetes.io/p2pd.state="
OPEN, ENDED = ("walking", "rebooting", "blocked", "paused", "reverting"), ("idle", "ready", "limited", "failed")
# the folder that WORLD names: state of the run; tainted; fails, a verb that fails. Each call is a line of `calls`
P2PCTL = f"""#!/bin/sh
[ "$*" = "features --no-dbus --output $WORLD/shared/p2pd" ] || exit 64
echo >>"$WORLD/rounds"
state=$(cat "$WORLD/state") && echo "{STATE}$state" >"$WORLD/shared/p2pd"
"""
KUBECTL = r"""#!/bin/sh
cd "$WORLD" || exit
shift  # --request-timeout
echo "$*" >> calls
[ "$(cat fails 2>/dev/null)" != "$1" ] || { echo "error: $1 refused" >&2; exit 1; }
case $* in
    'taint --overwrite node n1 p2pd.org/run=open:NoSchedule') touch tainted ;;
    'get node n1 --output jsonpath={.spec.taints[?(@.key=="p2pd.org/run")].key}') [ ! -e tainted ] || echo p2pd.org/run ;;
    'taint node n1 p2pd.org/run:NoSchedule-') rm tainted ;;
    *) echo "unknown: $*" >&2; exit 64 ;;
esac
"""


class Node(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.world = pathlib.Path(place.name)
        for folder in ("shared", "features"):
            (self.world / folder).mkdir()
        (self.world / "status.json").touch()
        for name, text in (("p2pctl", P2PCTL), ("kubectl", KUBECTL)):
            (self.world / name).write_text(text)
            (self.world / name).chmod(0o755)

    def start(self, verb):
        env = {"PATH": f"{self.world}:{os.environ['PATH']}", "WORLD": str(self.world), "NODE_NAME": "n1", "PERIOD_S": "0.1",
               "P2PD_STATUS": f"{self.world}/status.json", "P2PD_SHARED": f"{self.world}/shared", "P2PD_FEATURES": f"{self.world}/features"}
        with open(self.world / "said", "a", encoding="utf-8") as said:
            process = subprocess.Popen([KUBERNETES / "p2pd-node", verb], env=env, stderr=said)
        self.addCleanup(self.stop, process)
        return process

    def stop(self, process):
        """A container that does not end by SIGTERM is waited for by Kubernetes, for 30 s."""
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=5)

    def until(self, holds, what):
        end = time.monotonic() + 20
        while not holds():
            self.assertLess(time.monotonic(), end, f"not {what}: {(self.world / 'said').read_text()}")
            time.sleep(0.02)

    def state_is(self, state):
        (self.world / "new").write_text(state)
        (self.world / "new").rename(self.world / "state")
        self.rounds(3)  # the first may have read the old state, and the last is not over

    def rounds(self, count):
        """Waits until so many rounds have begun."""
        seen = self.begun()
        self.until(lambda: self.begun() >= seen + count, f"{count} rounds")

    def begun(self):
        return len((self.world / "rounds").read_bytes()) if (self.world / "rounds").exists() else 0

    def tainted(self):
        return (self.world / "tainted").exists()

    def test_tainted_while_a_run_is_open(self):
        (self.world / "state").write_text(OPEN[0])
        self.start("watch")
        for state in (OPEN[0], ENDED[0], *OPEN[1:], *ENDED[1:]):
            with self.subTest(state):
                self.state_is(state)
                self.assertEqual(self.tainted(), state in OPEN)
        verbs = [call.split()[0] for call in (self.world / "calls").read_text().splitlines()]
        self.assertEqual(verbs, ["taint", "get", "taint"] * 2, "the API server is asked at changes only")
        self.assertNotIn("unknown", (self.world / "said").read_text())

    def test_states_are_those_of_a_run(self):
        """A new state has to be put on one side."""
        table = (KUBERNETES.parents[1] / "daemon/engine/transitions.cpp").read_text()
        names = set(re.findall(r'"(\w+)"', re.search(r"(?s)kStateNames.*?;", table)[0]))
        self.assertEqual(names, {*OPEN, *ENDED})

    def test_a_taint_of_before_is_removed(self):
        (self.world / "tainted").touch()
        (self.world / "state").write_text("ready")
        self.start("watch")
        self.until(lambda: not self.tainted(), "untainted")

    def test_a_taint_stays_where_the_state_is_not_known(self):
        (self.world / "tainted").touch()
        (self.world / "status.json").unlink()  # just booted
        (self.world / "state").write_text("idle")
        process = self.start("watch")
        self.state_is("idle")
        self.assertTrue(self.tainted())
        (self.world / "state").unlink()  # p2pctl fails
        (self.world / "status.json").touch()
        self.rounds(3)
        self.assertTrue(self.tainted())
        self.assertIsNone(process.poll())

    def test_a_cluster_that_refuses_is_asked_again(self):
        (self.world / "fails").write_text("taint")
        (self.world / "state").write_text("walking")
        self.start("watch")
        self.until(lambda: (self.world / "said").read_text().count("error: taint refused") > 1, "asked again")
        (self.world / "fails").unlink()
        self.until(self.tainted, "tainted")

    def test_labels_reach_node_feature_discovery(self):
        process = self.start("label")
        time.sleep(0.3)
        self.assertIsNone(process.poll(), "no labels yet")
        for text in ("one\n", "two\n"):
            (self.world / "shared/p2pd").write_text(text)
            self.until(lambda: (self.world / "features/p2pd").exists() and (self.world / "features/p2pd").read_text() == text, "copied")
        self.assertEqual([path.name for path in (self.world / "features").iterdir()], ["p2pd"])
        self.assertFalse((self.world / "calls").exists())

    def test_other_words(self):
        for words, says in (([], "p2pd-node watch"), (["run"], "p2pd-node watch"), (["watch"], "NODE_NAME")):
            done = subprocess.run([KUBERNETES / "p2pd-node", *words], capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(says, done.stderr)


class Manifest(unittest.TestCase):
    def setUp(self):
        self.text = (KUBERNETES / "daemonset.yaml").read_text()
        self.kinds = {one["kind"]: one for one in yaml.safe_load_all(self.text)}
        self.pod = self.kinds["DaemonSet"]["spec"]["template"]["spec"]
        self.watch, self.label = self.pod["containers"]

    def test_no_container_has_a_capability(self):
        self.assertEqual(set(self.pod) & {"hostPID", "hostIPC", "hostNetwork", "initContainers"}, set())
        for container in (self.watch, self.label):
            given = container["securityContext"]
            self.assertEqual((given["allowPrivilegeEscalation"], given["readOnlyRootFilesystem"], given["capabilities"]), (False, True, {"drop": ["ALL"]}))
            self.assertNotIn("privileged", given)
        self.assertGreater(self.watch["securityContext"]["runAsUser"], 0)

    def test_root_has_neither_the_socket_of_the_worker_nor_the_account(self):
        self.assertFalse(self.pod["automountServiceAccountToken"])
        self.assertEqual({mount["name"] for mount in self.label["volumeMounts"]}, {"shared", "features"})

    def test_each_mount_is_explained_and_read_only_unless_written(self):
        lines = self.text.splitlines()
        mounts = [number for number, line in enumerate(lines) if "mountPath:" in line]
        self.assertEqual(len(mounts), sum(len(one["volumeMounts"]) for one in self.pod["containers"]))
        for number in mounts:
            self.assertRegex(lines[number - 1], r"^ +# \w")
        writable = {(one["args"][0], mount["name"]) for one in self.pod["containers"] for mount in one["volumeMounts"] if not mount.get("readOnly")}
        self.assertEqual(writable, {("watch", "shared"), ("label", "features")})

    def test_the_account_may_change_nodes_alone(self):
        self.assertEqual(self.kinds["ClusterRole"]["rules"], [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}])

    def test_labels_are_where_the_package_writes_them(self):
        unit = (KUBERNETES.parents[1] / "units/p2pd-features.service").read_text()
        paths = {volume["hostPath"]["path"] for volume in self.pod["volumes"] if "hostPath" in volume}
        self.assertEqual(paths, {"/run/p2pd", "/etc/machine-id", re.search(r"ConditionPathIsDirectory=(\S+)", unit)[1]})


if __name__ == "__main__":
    unittest.main()
