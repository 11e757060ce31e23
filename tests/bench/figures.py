# SPDX-License-Identifier: Apache-2.0
"""The figures. Each class takes one or more named figures: open() once, turn() every round, close() at the end."""
import io
import os
import random
import tarfile
import time

import load
import peers
from machine import Absent
from samples import rank


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

    def beside_raw(self, samples, vm, what, n, took, unit, ratio):
        """Add what raw-guest.c takes for the same in vm, and how took stands to it, where it was built."""
        raw = self.rig.measure_raw(vm, what, n)
        if raw:
            samples.add("peer_raw_%s_%s" % (what, unit.replace("MiB/s", "mibs")), raw, unit)
            samples.add(ratio, [rank(sorted(took), 0.5) / rank(sorted(raw), 0.5)], "ratio")


class Ping(Figure):
    """Beside raw-guest.c, which sends a message back from the same VM past broker and agent: the floor of any ping there."""
    names = ("ping_ms", "peer_raw_ping_ms", "ping_vs_raw")

    def turn(self, samples, quick):
        n = "200" if quick else "1000"
        ping = self.rig.measure("ping", self.rig.socket, self.rig.sandbox().id, n)
        samples.add("ping_ms", ping, "ms")
        self.beside_raw(samples, self.rig.sandbox(), "ping", n, ping, "ms", "ping_vs_raw")


class ExecApi(Figure):
    """Beside posix_spawn and wait of the same program by raw-guest.c: no user, pipes, cgroup, limits, usage or result."""
    names = ("exec_true_api_ms", "peer_raw_exec_ms", "exec_vs_raw")

    def turn(self, samples, quick):
        n = "50" if quick else "100"
        took = self.rig.measure("exec", self.rig.socket, self.rig.sandbox().id, n, "true")
        samples.add("exec_true_api_ms", took, "ms")
        self.beside_raw(samples, self.rig.sandbox(), "exec", n, took, "ms", "exec_vs_raw")


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


class PtyEcho(Figure):
    """A byte to `cat` on a raw PTY and back."""
    names = ("pty_echo_ms",)

    def turn(self, samples, quick):
        n = "50" if quick else "200"
        samples.add("pty_echo_ms", self.rig.measure("pty-echo", self.rig.socket, self.rig.sandbox().id, n), "ms")


class Parallel(Figure):
    """32 execs of `true` at once, each on its own connection, until the last has ended."""
    names = ("exec_parallel32_ms",)

    def turn(self, samples, quick):
        samples.add("exec_parallel32_ms", self.rig.measure(
            "parallel", self.rig.socket, self.rig.sandbox().id, "2" if quick else "5", "32", "true"), "ms")


class PingUnderOutput(Figure):
    """p95 of the pings of a round while another connection reads all that `cat /dev/zero` writes."""
    names = ("ping_under_output_p95_ms",)

    def turn(self, samples, quick):
        pings = self.rig.measure("ping-under", self.rig.socket, self.rig.sandbox().id, "100" if quick else "400",
                                 "cat", "/dev/zero")
        samples.add("ping_under_output_p95_ms", [rank(sorted(pings), 0.95)], "ms")


class AgentExec(Figure):
    """The agent as a plain process: `true` from the request's sending to the result's receipt; beside posix_spawn and wait of
    the same program by the same process that asks."""
    names = ("exec_agent_us", "peer_posix_spawn_us")

    def open(self):
        from agentrig import AgentRig
        self.agent = AgentRig(binary=self.rig.bin("hutch-agent"))

    def turn(self, samples, quick):
        n = "100" if quick else "300"
        exec_ms = self.rig.measure("exec", str(self.agent.socket), "", n, "/bin/true")
        spawn_ms = self.rig.measure("spawn", n, "/bin/true")
        samples.add("exec_agent_us", [v * 1e3 for v in exec_ms], "us")
        samples.add("peer_posix_spawn_us", [v * 1e3 for v in spawn_ms], "us")

    def close(self):
        self.agent.close()


class Bulk(Figure):
    """On a VM of 2 GiB, as its /tmp is in memory. In a quick run not in every round."""
    every = 1

    def open(self):
        self.vm = self.rig.large_sandbox()
        self.round = 0

    def turn(self, samples, quick):
        self.round += 1
        if not quick or (self.round - 1) % self.every == 0:
            self.take(samples)

    def wire(self, mode, *args):
        return self.rig.measure(mode, self.rig.socket, self.vm.id, "1", *args)

    def guest(self, script):
        """Seconds that a script takes in the guest."""
        return self.vm.exec(script, check=True).duration_ms / 1e3


class File(Bulk):
    """256 MiB by fs.write and fs.read, beside `cp` of the same file in the guest, and as many bytes that raw-guest.c drops or
    makes up."""
    names = ("file_in_256m_mibs", "file_out_256m_mibs", "peer_guest_cp_256m_mibs", "file_in_vs_guest_cp",
             "file_out_vs_guest_cp", "peer_raw_in_mibs", "peer_raw_out_mibs", "file_in_vs_raw", "file_out_vs_raw")
    every = 2

    def take(self, samples):
        size = 256
        into = self.wire("file-in", "/tmp/bench.file", str(size << 20))
        out = self.wire("file-out", "/tmp/bench.file")
        copy = [size / self.guest("cp /tmp/bench.file /tmp/bench.copy")]
        self.guest("rm /tmp/bench.file /tmp/bench.copy")
        samples.add("file_in_256m_mibs", into, "MiB/s")
        samples.add("file_out_256m_mibs", out, "MiB/s")
        samples.add("peer_guest_cp_256m_mibs", copy, "MiB/s")
        samples.add("file_in_vs_guest_cp", [into[0] / copy[0]], "ratio")
        samples.add("file_out_vs_guest_cp", [out[0] / copy[0]], "ratio")
        self.beside_raw(samples, self.vm, "in", "1", into, "MiB/s", "file_in_vs_raw")
        self.beside_raw(samples, self.vm, "out", "1", out, "MiB/s", "file_out_vs_raw")


class FileSmall(Bulk):
    """4 KiB written (atomically), then read: two calls."""
    names = ("file_rw_4k_ms",)

    def take(self, samples):
        samples.add("file_rw_4k_ms", self.rig.measure(
            "file-rw", self.rig.socket, self.vm.id, "30", "/tmp/bench.small", "4096"), "ms")


class PingUnderBulk(Bulk):
    """p95 of the pings of a round while 256 MiB files are written, and of an idle VM in the same round."""
    names = ("ping_under_bulk_p95_ms", "ping_idle_p95_ms")
    every = 2

    def take(self, samples):
        idle = self.rig.measure("ping", self.rig.socket, self.vm.id, "200")
        under = self.rig.measure("ping-under-bulk", self.rig.socket, self.vm.id, "200", "/tmp/bench.bulk", str(256 << 20))
        self.guest("rm -f /tmp/bench.bulk")
        samples.add("ping_idle_p95_ms", [rank(sorted(idle), 0.95)], "ms")
        samples.add("ping_under_bulk_p95_ms", [rank(sorted(under), 0.95)], "ms")


class Tar(Bulk):
    """A tree of 10 000 files of 0-4 KiB by fs.tar_in and fs.tar_out, beside the guest's own tar from and to its /tmp."""
    names = ("tar_in_10k_s", "tar_out_10k_s", "peer_guest_tar_in_10k_s", "peer_guest_tar_out_10k_s", "tar_in_vs_guest_tar",
             "tar_out_vs_guest_tar")
    every = 3

    def open(self):
        super().open()
        self.archive = os.path.join(self.rig.dir, "10k.tar")
        dice = random.Random(1)
        with tarfile.open(self.archive, "w", format=tarfile.PAX_FORMAT) as out:
            for d in range(100):
                member = tarfile.TarInfo("d%02d" % d)
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                out.addfile(member)
                for f in range(100):
                    member = tarfile.TarInfo("d%02d/file-%02d" % (d, f))
                    member.size = dice.randrange(4096)
                    out.addfile(member, io.BytesIO(dice.randbytes(member.size)))
        with open(self.archive, "rb") as f:
            self.vm.filesystem.write("/tmp/10k.tar", f)

    def take(self, samples):
        into = self.wire("tar-in", "/tmp/bench.tree", self.archive)
        out = self.wire("tar-out", "/tmp/bench.tree")
        peer_out = [self.guest("tar -C /tmp/bench.tree -cf /tmp/bench.tar .")]
        self.guest("rm -rf /tmp/bench.tree /tmp/bench.tar; mkdir /tmp/bench.tree")
        peer_in = [self.guest("tar -C /tmp/bench.tree -xf /tmp/10k.tar")]
        self.guest("rm -rf /tmp/bench.tree")
        samples.add("tar_in_10k_s", into, "s")
        samples.add("tar_out_10k_s", out, "s")
        samples.add("peer_guest_tar_in_10k_s", peer_in, "s")
        samples.add("peer_guest_tar_out_10k_s", peer_out, "s")
        samples.add("tar_in_vs_guest_tar", [into[0] / peer_in[0]], "ratio")
        samples.add("tar_out_vs_guest_tar", [out[0] / peer_out[0]], "ratio")


class Boot(Figure):
    names = ("boot_cold_ms", "destroy_ms")

    def turn(self, samples, quick):
        from hutch import Sandbox
        t = time.perf_counter()
        sbx = Sandbox.create(template="base", ttl_seconds=60, cold=True)
        samples.add("boot_cold_ms", [(time.perf_counter() - t) * 1e3], "ms")
        t = time.perf_counter()
        sbx.kill()
        samples.add("destroy_ms", [(time.perf_counter() - t) * 1e3], "ms")


class RunCli(Figure):
    """A VM for one command, by the CLI: created, used, ended. No pool."""
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


def pairs(values):
    """What a mode of hutch-bench that prints two numbers a sample printed."""
    return values[0::2], values[1::2]


class CreateRestored(Figure):
    """From vm.create to a ping's answer, from the template's snapshot; then the first exec of `true`. No pool."""
    names = ("create_cold_ms", "first_exec_cold_ms")

    def open(self):
        self.rig.need_snapshot()

    def turn(self, samples, quick):
        create, first = pairs(self.rig.measure("create", self.rig.socket, "base", "2" if quick else "4", "true"))
        samples.add("create_cold_ms", create, "ms")
        samples.add("first_exec_cold_ms", first, "ms")


class CreatePool(Figure):
    """The same with a VM of the pool, which is full and at rest before each sample; and `hutch run` with one."""
    names = ("create_pool_ms", "first_exec_pool_ms", "run_cli_pool_ms")
    size = 2

    def open(self):
        self.rig.need_snapshot()

    def turn(self, samples, quick):
        with self.rig.pool(self.size) as pool:
            for _ in range(2 if quick else 4):
                pool.wait_full()
                create, first = pairs(self.rig.measure("create", self.rig.socket, "base", "1", "true"))
                samples.add("create_pool_ms", create, "ms")
                samples.add("first_exec_pool_ms", first, "ms")
                pool.wait_full()
                samples.add("run_cli_pool_ms", self.rig.measure("spawn", "1", self.rig.bin("hutch"), "run", "--", "true"), "ms")


class ForkPause(Figure):
    """The longest silence of a process that writes every ms, while its VM is forked with 26 MiB dirty; and without a fork."""
    names = ("fork_pause_ms", "fork_no_pause_ms")

    def open(self):
        self.rig.need_snapshot()
        self.tick = self.rig.bin("hutch-bench-tick")
        if not os.path.exists(self.tick):
            raise Absent("hutch-bench-tick is not built")

    def turn(self, samples, quick):
        from hutch import Sandbox
        with Sandbox.create(template="base", ttl_seconds=120) as sbx:
            sbx.filesystem.upload(self.tick, "/tmp/tick")
            gap, usual = pairs(self.rig.measure("fork-gap", self.rig.socket, sbx.id, "1", "/tmp/tick", "26"))
        samples.add("fork_pause_ms", gap, "ms")
        samples.add("fork_no_pause_ms", usual, "ms")


class Forks(Figure):
    """From vm.fork to the answer of an exec of `true` in each child; a named snapshot."""
    names = ("fork_child_exec_ms", "fork20_exec_ms", "snapshot_ms")

    def open(self):
        from hutch import Sandbox
        self.rig.need_snapshot()
        self.parent = Sandbox.create(template="base", ttl_seconds=3600)
        self.parent.exec(["true"])

    def turn(self, samples, quick):
        one = self.rig.measure("fork", self.rig.socket, self.parent.id, "2", "1", "true")
        samples.add("fork_child_exec_ms", one, "ms")
        samples.add("fork20_exec_ms", self.rig.measure("fork", self.rig.socket, self.parent.id, "1", "20", "true"), "ms")
        t = time.perf_counter()
        self.parent.snapshot("bench")
        samples.add("snapshot_ms", [(time.perf_counter() - t) * 1e3], "ms")
        self.parent.client.delete_snapshot("bench")


class Park(Figure):
    """A VM with 26 MiB of its own in memory: from vm.park to its answer, when the VMM has ended; from a ping to its answer, which wakes it."""
    names = ("park_ms", "wake_ms")

    def open(self):
        from hutch import Sandbox
        self.rig.need_snapshot()
        self.vm = Sandbox.create(template="base", ttl_seconds=3600)
        self.vm.exec("head -c 27262976 /dev/urandom > /tmp/dirty", check=True)

    def turn(self, samples, quick):
        park, wake = pairs(self.rig.measure("park", self.rig.socket, self.vm.id, "1" if quick else "2"))
        samples.add("park_ms", park, "ms")
        samples.add("wake_ms", wake, "ms")


class Idle(Figure):
    """What an idle child of a fork costs: memory of its VMM that nobody shares, and processor time."""
    names = ("idle_private_mib", "idle_cpu_pct")
    children, settle_seconds, seconds = 4, 2, 3

    def open(self):
        from hutch import Sandbox
        self.rig.need_snapshot()
        self.parent = Sandbox.create(template="base", ttl_seconds=3600)
        self.round = 0

    def turn(self, samples, quick):
        self.round += 1
        if (self.round - 1) % 5 != 0:
            return
        kids = self.parent.fork(self.children)
        try:
            pids = [k.info().pid for k in kids]
            time.sleep(self.settle_seconds)
            before, start = [run_ns(p) for p in pids], time.monotonic()
            time.sleep(self.seconds)
            elapsed = (time.monotonic() - start) * 1e9
            samples.add("idle_cpu_pct", [(run_ns(p) - b) / elapsed * 100 for p, b in zip(pids, before)], "%")
            samples.add("idle_private_mib", [private_kib(p) / 1024 for p in pids], "MiB")
        finally:
            for k in kids:
                k.kill()


def run_ns(pid):
    """Processor time of a process and its threads (proc(5), schedstat)."""
    total = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/schedstat" % (pid, task)) as f:
            total += int(f.read().split()[0])
    return total


def private_kib(pid):
    with open("/proc/%d/smaps_rollup" % pid) as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Private_"))


class Spawn(Figure):
    """What starting any process costs here: the floor for every CLI figure."""
    names = ("peer_spawn_ms",)

    def turn(self, samples, quick):
        samples.add("peer_spawn_ms", self.rig.measure("spawn", "20", "/bin/true"), "ms")


class Thousand(Figure):
    """A broker of its own with a thousand VMs that boot nothing (load.py); once, before the rounds."""
    names = ("broker_rss_1000vm_mib", "exec_p99_1000vm_ms")

    def open(self):
        if os.geteuid() != 0:
            raise Absent("needs root, for namespaces of the agents")
        os.environ["HUTCH_BUILD"] = self.rig.build
        self.found = load.run(seconds=10)

    def turn(self, samples, quick):
        if self.found:
            samples.add("broker_rss_1000vm_mib", [self.found["rss_mib"]], "MiB")
            samples.add("exec_p99_1000vm_ms", [rank(self.found["exec_ms"], 0.99)], "ms")
        self.found = None


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


ALL = (Ping, ExecApi, RunscExec, ExecPy, ExecCli, PodmanExec, RunCli, PodmanRun, RunscDo, RuncRun, CreateRestored, CreatePool, ForkPause,
       Forks, Park, Idle, Boot, Spawn, Agent, PtyEcho, Parallel, PingUnderOutput, AgentExec, File, FileSmall, PingUnderBulk, Tar, Thousand)
