# SPDX-License-Identifier: Apache-2.0
"""hutchd on a private socket and state directory, with the fake VMM or with QEMU."""

from __future__ import annotations

import atexit
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import procs
from hutch import Client, Sandbox

START_SECONDS = 10.0
FAKE_VMM = Path(__file__).with_name("fakevmm.py")


class BrokerRig:
    """A broker of our own. fake: with the fake VMM (`self.behave(...)` says how it behaves), else with QEMU.

    close() ends every VM through the API, ends the broker, and asserts that nothing is left: no process, no socket, no
    file in the state directory but what belongs to the broker itself.
    """

    def __init__(
        self,
        *,
        fake: bool = True,
        dir: Optional[Path] = None,
        state: Optional[Path] = None,
        socket: Optional[Path] = None,
        args: Sequence[str] = (),
        umask: int = -1,
        start: bool = True,
        templates: Optional[Path] = None,
    ) -> None:
        self.dir = Path(dir or tempfile.mkdtemp(prefix="hutch-b-"))
        self.keep = dir is not None  # somebody else's directory, or a log that somebody wants to read
        atexit.register(lambda: self.keep or shutil.rmtree(self.dir, ignore_errors=True))
        self.state = state or self.dir / "state"
        self.socket = socket or self.dir / "sock" / "hutchd.sock"
        self.log = self.dir / "hutchd.log"
        self.fake_dir = self.dir / "fake"
        self.fake = fake
        self.umask = umask
        self.process: Optional[subprocess.Popen] = None
        self.args = list(args)
        self.socket.parent.mkdir(mode=0o700, exist_ok=True, parents=True)
        self.log.touch()
        if fake:
            self._write_wrapper()
            self._make_template()
            self.args += ["--test-vmm", str(self.fake_dir / "vmm")]
        elif templates is not None:
            self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copytree(templates, self.state / "templates", copy_function=os.link, dirs_exist_ok=True)
        self.client = Client(str(self.socket))
        if start:
            self.start()

    # the fake VMM

    def _write_wrapper(self) -> None:
        self.fake_dir.mkdir(exist_ok=True)
        self.behave()

    def _make_template(self) -> None:
        template = self.state / "templates" / "base"
        template.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self.state, 0o700)
        os.chmod(self.state / "templates", 0o700)
        (template / "kernel").write_bytes(b"fake kernel")
        (template / "initramfs").write_bytes(b"fake initramfs")
        (template / "template.json").write_text(
            json.dumps(
                {
                    "version": 1,
                    "name": "base",
                    "kernel": "kernel",
                    "initramfs": "initramfs",
                    "cmdline": "",
                    "kernel_version": "fake",
                    "memory_mib": 128,
                    "vcpus": 1,
                    "created_ms": 1700000000000,
                }
            )
        )

    def behave(self, mode: str = "", *, wrapped: bool = False, **more: Any) -> None:
        """How the fake VMMs that start from now on behave (fakevmm.py); wrapped: as a grandchild in its own session."""
        conf = {"mode": mode, "agent": procs.binary("hutch-agent"), "dir": str(self.fake_dir), **more}
        (self.fake_dir / "fake.conf.new").write_text(json.dumps(conf))
        os.rename(self.fake_dir / "fake.conf.new", self.fake_dir / "fake.conf")
        run = f'/usr/bin/python3 -IS {FAKE_VMM} --conf {self.fake_dir}/fake.conf "$@"'
        self._wrap(f"setsid sh -c '{run}; :' wrapped \"$@\"\n" if wrapped else f"exec {run}\n")

    def behave_as(self, program: str, *args: str) -> None:
        """Another program plays the VMM from now on, until the next behave()."""
        self._wrap(f'exec {program} {" ".join(args)} --dir {self.fake_dir} "$@"\n')

    def _wrap(self, body: str) -> None:
        wrapper = self.fake_dir / "vmm.new"
        wrapper.write_text("#!/bin/sh\n" + body)
        wrapper.chmod(0o755)
        os.rename(wrapper, self.fake_dir / "vmm")

    def connects(self) -> List[str]:
        """What the fake VMMs' vsock sockets saw so far, one line a connection."""
        path = self.fake_dir / "connects.log"
        return path.read_text().splitlines() if path.exists() else []

    def fake_processes(self) -> List[int]:
        """Fake VMMs, their wrappers and their agents."""
        found = (procs.stat(pid) for pid in procs.with_text(str(self.fake_dir)))
        return [s.pid for s in found if s is not None and "--test-vmm" not in procs.command_line(s.pid)]

    # the broker

    def command(self) -> List[str]:
        return [procs.binary("hutchd"), "--socket", str(self.socket), "--state", str(self.state), *self.args]

    def spawn(self, *more: str, pass_fds: Sequence[int] = ()) -> subprocess.Popen:
        """Start a broker and do not wait for it."""
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [*self.command(), *more],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                umask=self.umask,
                pass_fds=pass_fds,
            )

    def spawn_ready(self) -> tuple:
        """Start a broker and a descriptor that becomes readable when it serves (or has ended)."""
        ready, told = os.pipe()
        try:
            return self.spawn("--ready-fd", str(told), pass_fds=[told]), ready
        finally:
            os.close(told)

    def start(self) -> None:
        self.process, ready = self.spawn_ready()
        try:
            came = select.select([ready], [], [], START_SECONDS)[0] and os.read(ready, 1)
        finally:
            os.close(ready)
        if not came:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"hutchd did not come up; its log:\n{self.log_text()[-3000:]}")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self, sig: int = signal.SIGKILL) -> None:
        """End the broker alone, and the launcher with it; VMs stay."""
        assert self.process is not None
        below = self.launchers()
        self.process.send_signal(sig)
        self.process.wait(20)
        for pid in below:
            assert procs.wait_gone(pid, 10), f"launcher {pid} outlives its broker"

    def launchers(self) -> List[int]:
        """The broker's own children that are not VMs: its launcher."""
        return [s.pid for s in procs.descendants(self.pid) if s.ppid == self.pid]

    def restart(self, sig: int = signal.SIGKILL) -> None:
        self.kill(sig)
        self.start()

    def create(self, **options: Any) -> Sandbox:
        return Sandbox.create(client=self.client, **options)

    def sandbox(self, id: str) -> Sandbox:
        return Sandbox.get(id, client=self.client)

    def snapshot_template(self) -> Dict[str, Any]:
        """Boots `base` and keeps the snapshot that its VMs are restored from; what is told of the template."""
        return self.client.call("template.snapshot", {"name": "base", "timeout_ms": 120000}, timeout_seconds=180)

    def zygote(self) -> int:
        """The pid of the zygote of `base`, which gets a snapshot if it has none, and is used, so that there is one."""
        templates = self.client.call("template.list")["templates"]
        if not any(t["name"] == "base" and "snapshot" in t for t in templates):
            self.snapshot_template()
        self.create().kill()

        def found() -> List[str]:
            ids = re.findall(r"vm (\S+): is the zygote of template base", self.log_text())
            return [id for id in ids if (self.state / "vm" / id).is_dir()]

        procs.eventually(found, 60, "the zygote of base")
        return int((self.state / "vm" / found()[-1] / "vmm.pid").read_text().split()[0])

    def clear(self) -> None:
        """Ends all VMs and deletes all named snapshots."""
        self.client.kill_all()
        for snapshot in self.client.call("snapshot.list")["snapshots"]:
            self.client.call("snapshot.delete", {"name": snapshot["name"]})

    def rundirs(self) -> List[str]:
        """Run directories of VMs in the state directory, by name; without those of zygotes, which come and go by themselves."""
        root = self.state / "vm"
        there = sorted(p.name for p in root.iterdir()) if root.is_dir() else []
        zygotes = re.findall(r"vm (\S+): is to be the zygote", self.log_text())
        return [name for name in there if name not in zygotes]

    def files(self) -> List[str]:
        """Every path below the state directory and the socket's directory."""
        found = [p for base in (self.state, self.socket.parent) for p in base.rglob("*")]
        return sorted(str(p) for p in found)

    def info(self) -> Dict[str, Any]:
        return self.client.info()

    def close(self) -> None:
        """End everything; assert that nothing is left."""
        problems = []
        try:
            if self.process is not None and self.process.poll() is None:
                self.client.kill_all()
                self.client.close()
                self.kill(signal.SIGTERM)
            elif self.process is not None:
                problems.append(f"the broker ended by itself with {self.process.returncode}")
            for pid in procs.with_text(str(self.dir)):
                if not procs.wait_gone(pid, 5):
                    problems.append(f"process {pid} is left: {procs.command_line(pid)}")
                    os.kill(pid, signal.SIGKILL)
            left = sorted(p.name for p in (self.state / "vm").glob("*"))
            if left:
                problems.append(f"run directories are left: {left}")
            log = self.log_text()
            for mark in ("ERROR: AddressSanitizer", "runtime error:", "LeakSanitizer"):
                if mark in log:
                    problems.append(log[log.index(mark) - 200 :][:4000])
        finally:
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if problems:
                self.keep = True
            elif not self.keep:
                shutil.rmtree(self.dir, ignore_errors=True)
        assert not problems, "\n".join(problems) + f"\nlog: {self.log}"

    def __enter__(self) -> "BrokerRig":
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.close()
        except AssertionError:
            if exc[0] is None:
                raise
