# SPDX-License-Identifier: Apache-2.0
"""The rig of a bench run: a private broker with the base template, one VM for exec figures, and what machine this is."""
import os
import platform
import shutil
import subprocess
import tempfile
import time


RAW_PORT = "7000"


class Absent(Exception):
    """A figure cannot be taken here; the text says why."""


class Pool:
    """A warm pool of base, while a figure is taken."""

    def __init__(self, size):
        from hutch import default_client
        self.client, self.size = default_client(), size

    def __enter__(self):
        self.client.set_pool("base", self.size)
        return self

    def __exit__(self, *exc):
        self.client.set_pool("base", 0)

    def wait_full(self):
        for _ in range(1500):
            pool = self.client.pools()[0]
            if pool["ready"] == self.size and pool["starting"] == 0:
                return
            time.sleep(0.02)
        raise RuntimeError("the pool does not fill: %r" % pool)


class Rig:
    def __init__(self, root, build):
        self.root = root
        self.build = build
        self.dir = None
        self.broker = None
        self._sandbox = self._large = None
        self._raw = {}  # by VM: the output of its raw-guest, which ends when nobody holds this

    def __enter__(self):
        for name in ("hutchd", "hutch", "hutch-agent", "hutch-bench"):
            if not os.access(self.bin(name), os.X_OK):
                raise SystemExit("bench: %s is missing: cmake --preset release && cmake --build --preset release"
                                 % self.bin(name))
        self.dir = tempfile.mkdtemp(prefix="hutch-bench.")
        self.socket = os.path.join(self.dir, "s")
        ready_r, ready_w = os.pipe()
        self.log = open(os.path.join(self.dir, "broker.log"), "w")
        self.broker = subprocess.Popen(
            [self.bin("hutchd"), "--socket", self.socket, "--state", os.path.join(self.dir, "state"),
             "--ready-fd", str(ready_w)], pass_fds=[ready_w], stdout=self.log, stderr=self.log)
        os.close(ready_w)
        if os.read(ready_r, 1) != b"\n":
            self._fail("the broker did not start")
        os.close(ready_r)
        os.environ["HUTCH_SOCKET"] = self.socket
        self.cli("template", "build", "base")
        # The first VM pays for the accelerator's probe; no figure does.
        self.sandbox()
        return self

    def __exit__(self, *exc):
        subprocess.run([self.bin("hutch"), "kill", "--all"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.broker.terminate()
        self.broker.wait(10)
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def bin(self, name):
        return os.path.join(self.build, "bin", name)

    def cli(self, *args):
        r = subprocess.run([self.bin("hutch"), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if r.returncode != 0:
            self._fail("hutch %s: %s" % (" ".join(args), r.stderr.strip()))
        return r.stdout

    def sandbox(self):
        """The VM that the exec figures share."""
        if self._sandbox is None:
            from hutch import Sandbox
            self._sandbox = Sandbox.create(template="base", ttl_seconds=3600)
        return self._sandbox

    def large_sandbox(self):
        """A VM of 2 GiB, for what fills its /tmp."""
        if self._large is None:
            from hutch import HutchError, Sandbox
            try:
                self._large = Sandbox.create(template="base", ttl_seconds=3600, memory_mib=2048)
            except HutchError as e:
                raise Absent("no VM of 2 GiB: %s" % e)
        return self._large

    def measure_raw(self, vm, what, n):
        """hutch-bench's raw-WHAT with raw-guest.c in vm, which is put and started there on first use; [] where it was not built."""
        guest = self.bin("hutch-bench-raw-guest")
        if not os.path.exists(guest):
            return []
        if vm.id not in self._raw:
            vm.filesystem.upload(guest, "/tmp/raw-guest")
            output = iter(vm.exec_stream(["/tmp/raw-guest", RAW_PORT]))
            if next(output).data != "ready\n":
                raise RuntimeError("raw-guest does not listen")
            self._raw[vm.id] = output
        return self.measure("raw-" + what, os.path.join(self.dir, "state", "vm", vm.id, "vsock"), RAW_PORT, n)

    def pool(self, size):
        return Pool(size)

    def need_snapshot(self):
        """Figures of restored VMs make no sense where the template boots its kernel."""
        from hutch import default_client
        for t in default_client().templates():
            if t["name"] == "base" and t.get("snapshot", {}).get("fits"):
                return
        raise Absent("the template has no snapshot that fits")

    def measure(self, *args):
        """Run hutch-bench; it prints one sample a line."""
        r = subprocess.run([self.bin("hutch-bench"), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if r.returncode != 0:
            raise RuntimeError("hutch-bench %s: %s" % (" ".join(args), r.stderr.strip()))
        return [float(line) for line in r.stdout.split()]

    def _fail(self, why):
        self.log.flush()
        with open(self.log.name) as f:
            tail = f.read()[-2000:]
        raise SystemExit("bench: %s\n%s" % (why, tail))


def describe(rig):
    """What machine and versions the figures are from."""
    info = rig.sandbox().info()
    cpu = platform.processor() or "?"
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    with open("/proc/loadavg") as f:
        load = f.read().split()[0]
    yield "machine: %d x %s, Linux %s, load %s" % (os.cpu_count(), cpu, platform.release(), load)
    yield "VMM: %s %s, accelerator %s" % (info.vmm, info.vmm_version, info.accel)
