#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A broker with a thousand VMs: its memory, and the latency of commands spread over all of them.

usage: tests/bench/load.py [--vms N] [--seconds S] [--rate PER_SECOND] [--build DIR]

Each VM is load-vmm, which boots nothing, and a real hutch-agent as a plain process; what is measured is the broker and its
channels, not the machines. While commands run, other clients stall with an output they do not read, and vanish in the middle of one.
Needs root (the agents get namespaces of their own) and 4 GiB of memory.
"""
import argparse
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "harness"), os.path.join(ROOT, "tools", "python")]

import procs  # noqa: E402
from brokerrig import BrokerRig  # noqa: E402
from hutch import Client, HutchError, Sandbox  # noqa: E402

CREATORS, CALLERS = 8, 4


def make_rig():
    rig = BrokerRig(start=False, args=["--log-level", "warn"])
    wrapper = rig.fake_dir / "vmm"
    wrapper.write_text("#!/bin/sh\nLOAD_DIR=%s LOAD_AGENT=%s exec %s\n" %
                       (rig.fake_dir, procs.binary("hutch-agent"), procs.binary("load-vmm")))
    wrapper.chmod(0o755)
    rig.start()
    return rig


def create_all(rig, count):
    def some(n):
        with Client(str(rig.socket)) as client:
            return [Sandbox.create(client=client, ttl_seconds=3600).id for _ in range(n)]

    with ThreadPoolExecutor(CREATORS) as pool:
        parts = [count // CREATORS + (i < count % CREATORS) for i in range(CREATORS)]
        return [id for part in pool.map(some, parts) for id in part]


class Callers:
    """Commands at a fixed pace, each on the next VM; what is late starts at once, and its wait counts."""

    def __init__(self, rig, ids, rate, seconds):
        self.rig, self.ids, self.rate = rig, ids, rate
        self.total = int(rate * seconds)
        self.lock, self.next = threading.Lock(), 0
        self.ms, self.failures = [], []
        self.begun = time.monotonic()

    def take(self):
        with self.lock:
            if self.next == self.total:
                return None
            self.next += 1
            return self.next - 1

    def run(self):
        with Client(str(self.rig.socket)) as client:
            while (n := self.take()) is not None:
                due = self.begun + n / self.rate
                time.sleep(max(due - time.monotonic(), 0))  # the pace
                start = time.monotonic()
                try:
                    result = Sandbox.get(self.ids[n * 7 % len(self.ids)], client=client).exec(["echo", str(n)])
                    if result.stdout != "%d\n" % n:
                        self.failures.append("call %d printed %r" % (n, result.stdout))
                except HutchError as e:
                    self.failures.append("call %d: %s" % (n, e))
                self.ms.append((time.monotonic() - start) * 1000)


def nuisances(rig, ids):
    """Clients that start a long output and read none of it; half of them vanish."""
    clients = []
    for i, id in enumerate(ids[:20]):
        client = Client(str(rig.socket))
        Sandbox.get(id, client=client).commands.start(["sh", "-c", "yes | head -c 4000000"])
        if i % 2:
            client.close()
        else:
            clients.append(client)
    return clients


def run(vms=1000, seconds=20.0, rate=10000 / 60, say=lambda text: None):
    """The figures as a map; raises AssertionError when a result was lost or wrong."""
    with make_rig() as rig:
        start = time.monotonic()
        ids = create_all(rig, vms)
        say("%d VMs in %.1f s" % (len(ids), time.monotonic() - start))
        idle_mib, idle_fds = procs.rss_kib(rig.pid) / 1024, procs.fd_count(rig.pid)
        say("idle: %.1f MiB, %d descriptors" % (idle_mib, idle_fds))
        bad = nuisances(rig, ids)
        callers = Callers(rig, ids, rate, seconds)
        threads = [threading.Thread(target=callers.run) for _ in range(CALLERS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        end_mib, end_fds = procs.rss_kib(rig.pid) / 1024, procs.fd_count(rig.pid)
        say("after %d commands: %.1f MiB, %d descriptors, %d failures" %
            (len(callers.ms), end_mib, end_fds, len(callers.failures)))
        assert not callers.failures, callers.failures[:5]
        for client in bad:
            client.close()
        ms = sorted(callers.ms)
        return {"rss_mib": max(idle_mib, end_mib), "exec_ms": ms, "descriptors": (idle_fds, end_fds)}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--vms", type=int, default=1000)
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--rate", type=float, default=10000 / 60, help="commands a second (10 000 a minute)")
    p.add_argument("--build", help="build directory")
    args = p.parse_args()
    if args.build:
        os.environ["HUTCH_BUILD"] = args.build
    found = run(args.vms, args.seconds, args.rate, say=lambda text: print("# " + text, flush=True))
    ms = found["exec_ms"]
    print("broker_rss_1000vm_mib %.1f" % found["rss_mib"])
    print("exec_p50_1000vm_ms %.2f" % ms[len(ms) // 2])
    print("exec_p99_1000vm_ms %.2f" % ms[len(ms) * 99 // 100])


if __name__ == "__main__":
    main()
