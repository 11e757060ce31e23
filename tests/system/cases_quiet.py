# SPDX-License-Identifier: Apache-2.0
"""C064, fault: an idle limit on the stream cuts off healthy but quiet commands. 45 s of silence, and 60 s of silent input.

They run beside the other tests: `start` is called when the rig is made, the test at the end collects them.
"""

from __future__ import annotations

import threading
import time

import hutch
from box import Box


class Quiet:
    def __init__(self, box: Box) -> None:
        self._box = box
        self._results = {}
        works = (self._silent, self._silent_input, self._silent_pty)
        self._threads = [threading.Thread(target=self._guard, args=(f,), daemon=True) for f in works]
        for t in self._threads:
            t.start()

    def _guard(self, work):
        try:
            work()
        except hutch.HutchError as e:  # also when the rig is closed before `collect`
            self._results[work.__name__] = e

    def _silent(self):
        start = time.monotonic()
        first = []
        r = self._box.exec(["sh", "-c", "sleep 45; echo ok"], on_stdout=lambda _: first.append(time.monotonic() - start))
        self._results["silent"] = (r.stdout, r.exit_code, r.timed_out, len(first), first[0] >= 44.9)

    def _silent_input(self):
        with self._box.stream(["cat"], stdin=True) as s:
            time.sleep(60)  # the case's own silence
            s.write("still here")
            s.close_stdin()
            self._results["input"] = ("".join(p.data for p in s), s.wait(20).exit_code)

    def _silent_pty(self):
        with self._box.pty(["sh", "-c", "stty -echo; read x; echo got $x"]) as s:
            time.sleep(60)
            s.write("it\n")
            self._results["pty"] = ("".join(p.data for p in s), s.wait(20).exit_code)

    def collect(self):
        for t in self._threads:
            t.join(120)
        return self._results


WANTED = {
    "silent": ("ok\n", 0, False, 1, True),
    "input": ("still here", 0),
    "pty": ("got it\r\n", 0),
}
