# SPDX-License-Identifier: Apache-2.0
"""What people would use instead, run on the same busybox root: runc, podman and gVisor's runsc."""
import json
import os
import shutil
import subprocess
import tempfile

from machine import Absent

ULIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")


def need(*programs):
    for p in programs:
        if shutil.which(p) is None and not os.access("/usr/sbin/" + p, os.X_OK):
            raise Absent("%s is not installed" % p)


def quiet(*argv):
    """Into a file, not a pipe: what stays in the background would hold a pipe open."""
    with tempfile.TemporaryFile("w+") as out:
        r = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        out.seek(0)
        r.stdout = out.read()
    return r


def must(*argv):
    r = quiet(*argv)
    if r.returncode != 0:
        lines = [line for line in r.stdout.splitlines() if line.strip()] or ["no output"]
        raise Absent("%s failed: %s" % (argv[0], lines[-1][:200]))


class Peer:
    each = 2  # samples a round

    def __init__(self, rig):
        self.rig = rig
        self.name = "hutch-bench-%d" % os.getpid()

    def rootfs(self):
        """A root file system with busybox, shared by all peers."""
        root = os.path.join(self.rig.dir, "peer-root")
        if not os.path.isdir(root):
            need("busybox")
            for d in ("bin", "proc", "dev", "sys", "tmp", "etc"):
                os.makedirs(os.path.join(root, d))
            shutil.copy(shutil.which("busybox"), os.path.join(root, "bin", "busybox"))
            for applet in ("true", "sleep", "sh"):
                os.symlink("busybox", os.path.join(root, "bin", applet))
        return root

    def bundle(self, tool, argv):
        """An OCI bundle made by `TOOL spec`, for argv, without a terminal."""
        path = os.path.join(self.rig.dir, type(self).__name__)
        os.makedirs(path)
        r = subprocess.run([tool, "spec"], cwd=path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if r.returncode != 0:
            raise Absent("%s spec failed: %s" % (tool, r.stdout.strip()[-200:]))
        with open(os.path.join(path, "config.json")) as f:
            spec = json.load(f)
        spec["process"]["terminal"] = False
        spec["process"]["args"] = argv
        spec["root"] = {"path": self.rootfs(), "readonly": True}
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(spec, f)
        return path

    def close(self):
        pass


class RuncRun(Peer):
    def open(self):
        need("runc")
        self.path = self.bundle("runc", ["/bin/true"])
        must(*self.command())

    def command(self):
        return ["runc", "run", "--bundle", self.path, self.name + "-runc"]


class Podman(Peer):
    base = ("podman", "--runtime", "runc", "--cgroup-manager=cgroupfs")


class PodmanRun(Podman):
    each = 1

    def open(self):
        need("podman", "runc")
        must(*self.command())

    def command(self):
        return [*self.base, "run", "--rm", *ULIMITS, "--network", "none", "--rootfs", self.rootfs(), "/bin/true"]


class PodmanExec(Podman):
    def open(self):
        need("podman", "runc")
        must(*self.base, "run", "-d", "--name", self.name, *ULIMITS, "--network", "none", "--rootfs", self.rootfs(),
             "/bin/sleep", "3600")
        must(*self.command())

    def command(self):
        return [*self.base, "exec", self.name, "/bin/true"]

    def close(self):
        quiet(*self.base, "rm", "-f", "-t", "0", self.name)


class RunscDo(Peer):
    each = 1

    def open(self):
        need("runsc")
        must(*self.command())

    def command(self):
        return ["runsc", "--platform=ptrace", "--network=none", "do", "--", self.rootfs() + "/bin/busybox", "true"]


class RunscExec(Peer):
    each = 4
    base = ("runsc", "--platform=ptrace", "--network=none", "--ignore-cgroups")

    def open(self):
        need("runsc")
        path = self.bundle("runsc", ["/bin/sleep", "3600"])
        must(*self.base, "run", "--bundle", path, "--detach", self.name)
        must(*self.command())

    def command(self):
        return [*self.base, "exec", self.name, "/bin/true"]

    def close(self):
        quiet(*self.base, "kill", self.name, "KILL")
        quiet(*self.base, "wait", self.name)
        quiet(*self.base, "delete", "--force", self.name)
