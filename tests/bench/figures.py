# SPDX-License-Identifier: Apache-2.0
"""The figures. Each class takes one or more named figures: open() once, turn() every round, close() at the end."""
import os
import time

import peers


class Figure:
    names = ()

    def __init__(self, rig):
        self.rig = rig

    def open(self):
        pass

    def turn(self, samples, quick):
        raise NotImplementedError

    def close(self):
        pass


class Ping(Figure):
    names = ("ping_ms",)

    def turn(self, samples, quick):
        n = "200" if quick else "1000"
        samples.add("ping_ms", self.rig.measure("ping", self.rig.socket, self.rig.sandbox().id, n), "ms")


class ExecApi(Figure):
    names = ("exec_true_api_ms",)

    def turn(self, samples, quick):
        n = "50" if quick else "100"
        samples.add("exec_true_api_ms",
                    self.rig.measure("exec", self.rig.socket, self.rig.sandbox().id, n, "true"), "ms")


class ExecPy(Figure):
    names = ("exec_true_py_ms",)

    def turn(self, samples, quick):
        sbx, out = self.rig.sandbox(), []
        for _ in range(20 if quick else 40):
            t = time.perf_counter()
            r = sbx.exec(["true"])
            out.append((time.perf_counter() - t) * 1e3)
            assert r.exit_code == 0
        samples.add("exec_true_py_ms", out, "ms")


class ExecCli(Figure):
    names = ("exec_true_cli_ms",)

    def turn(self, samples, quick):
        samples.add("exec_true_cli_ms", self.rig.measure(
            "spawn", "10", self.rig.bin("hutch"), "exec", self.rig.sandbox().id, "--", "true"), "ms")


class Boot(Figure):
    names = ("boot_cold_ms", "destroy_ms")

    def turn(self, samples, quick):
        from hutch import Sandbox
        t = time.perf_counter()
        sbx = Sandbox.create(template="base", ttl_seconds=60)
        samples.add("boot_cold_ms", [(time.perf_counter() - t) * 1e3], "ms")
        t = time.perf_counter()
        sbx.kill()
        samples.add("destroy_ms", [(time.perf_counter() - t) * 1e3], "ms")


class RunCli(Figure):
    names = ("run_cli_ms",)

    def turn(self, samples, quick):
        samples.add("run_cli_ms", self.rig.measure("spawn", "1", self.rig.bin("hutch"), "run", "--", "true"), "ms")


class Agent(Figure):
    """Size of the binary; resident memory of the agent in a VM, idle and with 64 running execs."""
    names = ("agent_bytes", "agent_rss_kib", "agent_rss_64_execs_kib")

    def turn(self, samples, quick):
        from hutch import Sandbox
        if getattr(self, "done", False):
            return
        self.done = True
        samples.add("agent_bytes", [os.stat(self.rig.bin("hutch-agent")).st_size], "bytes")
        with Sandbox.create(template="base", ttl_seconds=120) as sbx:
            samples.add("agent_rss_kib", [sbx.agent_info()["rss_kib"]], "KiB")
            self.rig.measure("hold", self.rig.socket, sbx.id, "64", "sleep", "60")
            samples.add("agent_rss_64_execs_kib", [sbx.agent_info()["rss_kib"]], "KiB")


class Spawn(Figure):
    """What starting any process costs here: the floor for every CLI figure."""
    names = ("peer_spawn_ms",)

    def turn(self, samples, quick):
        samples.add("peer_spawn_ms", self.rig.measure("spawn", "20", "/bin/true"), "ms")


class Peer(Figure):
    peer = None

    def open(self):
        self.it = self.peer(self.rig)
        self.it.open()

    def turn(self, samples, quick):
        samples.add(self.names[0], self.rig.measure("spawn", str(self.it.each), *self.it.command()), "ms")

    def close(self):
        self.it.close()


class RuncRun(Peer):
    names, peer = ("peer_runc_run_ms",), peers.RuncRun


class PodmanRun(Peer):
    names, peer = ("peer_podman_run_ms",), peers.PodmanRun


class PodmanExec(Peer):
    names, peer = ("peer_podman_exec_ms",), peers.PodmanExec


class RunscDo(Peer):
    names, peer = ("peer_runsc_do_ms",), peers.RunscDo


class RunscExec(Peer):
    names, peer = ("peer_runsc_exec_ms",), peers.RunscExec


ALL = (Ping, ExecApi, RunscExec, ExecPy, ExecCli, PodmanExec, RunCli, PodmanRun, RunscDo, RuncRun, Boot, Spawn, Agent)
