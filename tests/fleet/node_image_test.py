#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""node_image_test.py DEB: the image of packaging/kubernetes, built by buildah on a Debian 13 that mmdebstrap makes, and its two containers with
the users and mounts of daemonset.yaml; kubectl of the image talks to a stand-in of the API server. Needs root, and Debian's archive.

DEB is a folder with p2pd's package. The containers are chroots: what a runtime of Kubernetes adds, such as seccomp, is not tested.
"""
import http.server
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import yaml

KUBERNETES = pathlib.Path(__file__).resolve().parents[2] / "packaging/kubernetes"
MANIFEST = list(yaml.safe_load_all((KUBERNETES / "daemonset.yaml").read_text()))
POD = next(one for one in MANIFEST if one["kind"] == "DaemonSet")["spec"]["template"]["spec"]
MACHINE_ID = "0123456789abcdef0123456789abcdef"
OTHER = {"key": "other", "effect": "NoSchedule"}
KUBECONFIG = {"clusters": [{"name": "c", "cluster": {"server": ""}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}
DEB = None


class ApiServer(http.server.BaseHTTPRequestHandler):
    """The paths of the API server that "kubectl get" and "kubectl taint" use, with node n1."""

    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}, "spec": {"taints": [OTHER]}}
    answers = {"/api": {"kind": "APIVersions", "versions": ["v1"]}, "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
               "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                   {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": ["get", "patch"]}]},
               "/api/v1/nodes/n1": node}

    def answer(self):
        known = self.answers.get(self.path.split("?")[0])
        body = json.dumps(known or {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = answer

    def do_PATCH(self):
        """Taints have no merge key: the list is replaced."""
        self.node["spec"].update(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["spec"])
        self.answer()

    def log_message(self, *_):
        pass


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="p2pd-node-", dir="/var/tmp"))
        cls.addClassCleanup(shutil.rmtree, cls.work)
        context = cls.work / "context"
        context.mkdir()
        for file in (*KUBERNETES.iterdir(), *DEB.glob("p2pd_*_amd64.deb")):
            shutil.copy(file, context)
        base = cls.work / "base.tar"
        mirror = [os.environ["MIRROR"]] if "MIRROR" in os.environ else []
        cls.run_(["mmdebstrap", "--quiet", "--variant=minbase", "trixie", base, *mirror])
        first = cls.buildah("from", "scratch")
        cls.buildah("add", first, base, "/")
        cls.buildah("commit", first, "localhost/base")
        cls.buildah("rm", first)
        cls.buildah("bud", "--pull-never", "--build-arg", "BASE=localhost/base", "--tag", "localhost/p2pd-node", context)

    @classmethod
    def run_(cls, argv, **more):
        done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False, **more)
        assert done.returncode == 0, f"{argv}: {done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    @classmethod
    def options(cls):
        return ["buildah", f"--root={cls.work}/store", f"--runroot={cls.work}/run"]

    @classmethod
    def buildah(cls, verb, *words):
        return cls.run_([*cls.options(), verb, *words])

    def setUp(self):
        self.host = self.work / "host"
        for volume in POD["volumes"]:
            path = self.host / volume["name"]
            path.mkdir(parents=True)
            path.chmod(0o777 if "emptyDir" in volume else 0o755)
        (self.host / "machine-id").rmdir()
        (self.host / "machine-id").write_text(MACHINE_ID + "\n")
        self.addCleanup(shutil.rmtree, self.host)

    def container(self, name, *argv, **env):
        """Words that run a command in a container of the manifest; its command by default."""
        known = next(one for one in POD["containers"] if one["name"] == name)
        user = known["securityContext"]
        words = [f"--user={user['runAsUser']}:{user['runAsGroup']}", "--cap-drop=all", *(f"--env={key}={value}" for key, value in env.items())]
        for mount in known["volumeMounts"]:
            path = mount["mountPath"].replace("/var/run/", "/run/")  # a link, which buildah does not follow
            words.append(f"--volume={self.host / mount['name']}:{path}:{'ro' if mount.get('readOnly') else 'rw'}")
        made = self.buildah("from", "--pull-never", "localhost/p2pd-node")
        self.addCleanup(self.buildah, "rm", made)
        return [*self.options(), "run", *words, made, "--", *(argv or ["p2pd-node", *known["args"]])]

    def start(self, *words, **env):
        process = subprocess.Popen(self.container(*words, PERIOD_S="0.2", **env), start_new_session=True)

        def stop():
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=30)
        self.addCleanup(stop)

    def state_is(self, state):
        context = {"machine_id": MACHINE_ID, "boot_id": pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "gpus": [], "modules": {},
                   "build_ids": {}, "fit_for": ["copies"], "without": [], "groups": [], "summary": ""}
        for name, text in (("ready", context), ("status.json", {"schema": "p2pd.status/1", "state": state, "run": 1})):
            if state == "ready" or name != "ready":
                (self.host / "new").write_text(json.dumps(text))
                (self.host / "new").rename(self.host / "state" / name)

    def until(self, holds, what):
        end = time.monotonic() + 60
        while not holds():
            self.assertLess(time.monotonic(), end, what())
            time.sleep(0.1)

    def test_labels_and_taint(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ApiServer)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        KUBECONFIG["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{server.server_port}"
        (self.host / "token/config").write_text(json.dumps(KUBECONFIG))
        self.state_is("walking")
        token = next(mount["mountPath"] for mount in POD["containers"][0]["volumeMounts"] if mount["name"] == "token")
        self.start("watch", NODE_NAME="n1", KUBECONFIG=f"{token}/config")
        self.start("label")
        file = self.host / "features/p2pd"
        for state, ready, taints in (("walking", "false", [OTHER, {"key": "p2pd.org/run", "value": "open", "effect": "NoSchedule"}]), ("ready", "true", [OTHER])):
            self.state_is(state)
            labels = {f"feature.node.kubernetes.io/p2pd.{name}" for name in (f"state={state}", f"ready={ready}")}
            self.until(lambda: file.exists() and labels <= set(file.read_text().splitlines()), lambda: f"no {labels}")
            self.until(lambda: sorted(ApiServer.node["spec"]["taints"], key=str) == sorted(taints, key=str), lambda: f"taints are {ApiServer.node['spec']}")
        self.assertEqual((file.stat().st_uid, file.stat().st_mode & 0o777), (0, 0o644))

    def test_the_unprivileged_container_changes_nothing_of_the_node(self):
        done = subprocess.run(self.container("watch", "sh", "-c", "id -u; for f in /run/p2pd/x /etc/machine-id /usr/x; do echo >$f && echo changed $f; done"),
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout, "65534\n", done.stderr)

    def test_kubectl_knows_each_field_of_the_manifest(self):
        """kubectl drops fields that the types of the API do not have."""
        def lost(wanted, got, path):
            if isinstance(wanted, dict):
                return [one for key, value in wanted.items() for one in lost(value, (got or {}).get(key), f"{path}.{key}")]
            if isinstance(wanted, list):
                return [one for number, value in enumerate(wanted) for one in lost(value, (got or [None] * len(wanted))[number], f"{path}[{number}]")]
            return [] if wanted == got else [path]
        daemonset = next(one for one in MANIFEST if one["kind"] == "DaemonSet")
        argv = self.container("watch", "kubectl", "set", "env", "--local", "--filename=-", "--output=json", "ANY=thing")
        for extra, missing in (({}, []), ({"hostPidd": True}, [".spec.template.spec.hostPidd"])):
            given = json.loads(json.dumps(daemonset))
            given["spec"]["template"]["spec"].update(extra)
            self.assertEqual(lost(given, json.loads(self.run_(argv, input=json.dumps(given))), ""), missing)


if __name__ == "__main__":
    DEB = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else sys.exit(__doc__)
    missing_tools = [tool for tool in ("buildah", "mmdebstrap") if not shutil.which(tool)]
    if os.geteuid() != 0 or missing_tools:
        print(f"not run: needs root{''.join(f', {tool}' for tool in missing_tools)}")
        sys.exit(77)
    os.environ |= {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
    unittest.main()
