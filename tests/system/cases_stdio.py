# SPDX-License-Identifier: Apache-2.0
"""Input and output of a command. Each case is named after reference cases C0xx; run on every rig."""

from __future__ import annotations

import hashlib
import os
import threading
import time

import pytest

from box import FULL, Box, parallel

EURO = "€".encode()


def endless(piece=b"line\n" * 1000):
    while True:
        yield piece


class StdioCases:
    @pytest.mark.parametrize(
        "script", ["sleep 60 & echo hi", "sleep 60 >/dev/null & echo hi", "sleep 60 2>/dev/null & echo hi",
                   "setsid sleep 60 & echo hi", "(while :; do echo; sleep 0.2; done) >&2 & echo hi"],
    )
    @pytest.mark.parametrize("how", ["pipes", "stdin", "merged", "user", "detached"])
    def test_c002_grandchild_that_holds_the_output(self, box: Box, script, how):
        """C002, fault: the call waits for end-of-file of an output that a background process holds."""
        with box.tmp():
            pass  # one round trip before the clock runs
        with box.within(1):
            if how == "detached":
                started = box.sandbox.commands.start(script)
                assert box.sandbox.commands.wait(started, 30).exit_code == 0
                r = box.sandbox.attach(started, capture=True).wait(30)
                started_id = started
            else:
                options = {"stdin": {"stdin": ""}, "merged": {"merge_stderr": True}, "user": {"user": box.users[-1]}}.get(how, {})
                r = box.exec(["sh", "-c", script], **options)
                started_id = r.id
        assert r.exit_code == 0 and "hi\n" in r.stdout
        if "while" not in script or how != "merged":
            assert r.stdout == "hi\n"
        box.sandbox.commands.kill(started_id)

    def test_c002_holder_lives_on_and_gets_no_sigpipe(self, box: Box):
        """C002: what a finished command left behind goes on writing to nobody, until it is killed by name."""
        with box.tmp() as tmp:
            r = box.exec(f"(i=0; while [ $i -lt 2000 ]; do echo $i || exit 1; i=$((i+1)); done; echo done > {tmp}/done) & echo hi")
            assert r.exit_code == 0 and r.stdout.count("hi\n") == 1
            box.sh(f"i=0; while [ ! -e {tmp}/done ]; do sleep 0.02; i=$((i+1)); [ $i -lt 1000 ]; done; cat {tmp}/done")

    def test_c004_large_output_right_before_the_end(self, box: Box):
        """C004, fault: the tail of the output is lost when the program exits at once after it. 50 runs."""
        for i in range(box.n(50, 4)):
            user = box.users[i % len(box.users)]
            r = box.exec(["sh", "-c", "seq 1 200000; printf END"], text=False, user=user)
            assert r.exit_code == 0 and len(r.stdout) == 1288898 == r.stdout_bytes and r.stdout.endswith(b"200000\nEND")

    def test_c004_last_bytes_without_newline(self, box: Box):
        """C004: 500 runs of `printf world`; on stderr, on a PTY and merged as well."""
        assert set(parallel(lambda _: box.exec(["printf", "world"]).stdout, range(box.n(500, 60)), 4)) == {"world"}
        for _ in range(box.n(50, 8)):
            assert box.exec("printf world >&2").stderr == "world"
            assert box.exec("printf world >&2", merge_stderr=True).stdout == "world"
            with box.pty(["printf", "world"]) as s:
                assert "".join(p.data for p in s) == "world"

    def test_c004_large_output_on_both_streams(self, box: Box):
        """C004 kin: two full streams at once, each whole and in order."""
        r = box.exec("seq 1 50000 & seq 1 50000 >&2; wait", timeout_seconds=60)
        want = "".join(f"{i}\n" for i in range(1, 50001))
        assert r.stdout == want and r.stderr == want

    def test_c004_slow_reader_gets_everything(self, box: Box):
        """C004: output that is in the pipe at the end is delivered, however slow the reader."""
        with box.stream(["sh", "-c", "seq 1 200000; printf END"], text=False) as s:
            time.sleep(0.5)  # the fault needs a reader that is away for a while
            total = sum(len(p.data) for p in s)
            assert total == 1288898 and s.wait().exit_code == 0

    def test_c005_characters_and_bytes_are_kept_whole(self, box: Box):
        """C005, fault: text decoded piece by piece; binary output passed through text."""
        script = "printf 'a%.0s' $(seq 8191); printf '\\342\\202\\254'"
        want = b"a" * 8191 + EURO
        assert box.exec(["sh", "-c", script], text=False).stdout == want
        pieces = []
        assert box.exec(["sh", "-c", script], on_stdout=pieces.append).stdout == want.decode() == "".join(pieces)
        assert box.exec(["sh", "-c", f"({script}) >&2"]).stderr == want.decode()
        with box.pty(["sh", "-c", script]) as s:
            assert "".join(p.data for p in s) == want.decode()
        assert box.exec(["printf", "\\000\\377\\376\\r\\n"], text=False).stdout == b"\x00\xff\xfe\r\n"

    def test_c005_one_byte_at_a_time(self, box: Box):
        """C005: a character whose bytes are written with pauses between them."""
        script = "for b in 342 202 254; do printf \"\\\\$b\"; sleep 0.02; done"
        pieces = []
        assert box.exec(["sh", "-c", script], on_stdout=pieces.append).stdout == "€"
        assert pieces == ["€"]

    def test_c005_all_byte_values(self, box: Box):
        """C005: every byte value, in and out."""
        data = bytes(range(256)) * 40
        assert box.exec(["cat"], stdin=data, text=False).stdout == data

    def test_c012_reader_that_stops_stalls_itself_alone(self, box: Box):
        """C012, fault: one client that stops reading blocks the shared channel. 50 echoes beside a stalled `yes`."""
        with box.stream(["yes"], text=False) as stalled:
            first = stalled.read(20).data  # of any length: some C libraries' yes writes odd counts
            start = time.monotonic()
            for _ in range(box.n(50, 25)):
                with box.within(1):
                    assert box.exec(["echo", "ok"]).stdout == "ok\n"
            if FULL:
                while time.monotonic() - start < 30:
                    assert box.exec(["echo", "ok"]).stdout == "ok\n"
            box.agent_rss_at_most(16 << 10)
            got = first + b"".join(stalled.read(20).data for _ in range(200))
            stalled.kill()
            got += b"".join(p.data for p in stalled)
            result = stalled.wait()
            assert got == (b"y\n" * (len(got) // 2 + 1))[: len(got)]  # never shortened in the middle
            assert result.canceled and result.signal == 9 and not result.gaps

    @pytest.mark.parametrize("stdin, want", [("hello", "hello"), (b"", ""), ("", "")])
    def test_c016_input_that_ends_in_the_same_segment_as_the_call(self, box: Box, stdin, want):
        """C016, fault: end of input arrives before the process is registered and is dropped. 200 runs each."""
        for _ in range(box.n(200, 25)):
            with box.within(1):
                r = box.exec(["cat"], stdin=stdin)
            assert (r.stdout, r.exit_code) == (want, 0)

    def test_c016_no_input_is_immediate_end_of_file(self, box: Box):
        """C016: without input the program reads /dev/null."""
        for _ in range(box.n(50, 10)):
            with box.within(1):
                assert box.exec(["cat"]).exit_code == 0
        assert box.exec("readlink /proc/self/fd/0").stdout == "/dev/null\n"

    def test_c016_end_of_input_as_a_message_of_its_own(self, box: Box):
        """C016's neighbours: the end comes later, from close_stdin, and from another connection."""
        for _ in range(box.n(50, 8)):
            with box.stream(["cat"], stdin=True) as s:
                s.write("hello")
                s.close_stdin()
                assert "".join(p.data for p in s) == "hello" and s.wait().exit_code == 0
        with box.stream(["cat"], stdin=True) as s:
            s.write("a")
            assert s.read(20).data == "a"  # what two connections say has no order of its own
            box.sandbox.commands.close_stdin(s.id)
            assert "".join(p.data for p in s) == "" and s.wait().exit_code == 0

    def test_c017_large_input_through_a_filter(self, box: Box):
        """C017, fault: all input is written before output is read. 8 MiB through cat; ping is answered throughout."""
        data = os.urandom(8 << 20)
        done = threading.Event()
        late = []

        def pinger():
            while not done.wait(0.05):
                start = time.monotonic()
                box.sandbox.ping()
                late.append(time.monotonic() - start)

        thread = threading.Thread(target=pinger)
        thread.start()
        try:
            with box.within(10):
                r = box.exec(["cat"], stdin=data, text=False)
        finally:
            done.set()
            thread.join()
        assert r.exit_code == 0 and hashlib.sha256(r.stdout).digest() == hashlib.sha256(data).digest()
        assert max(late, default=0) < 1 * box.slow

    def test_c017_input_to_a_program_that_does_not_read_yet(self, box: Box):
        """C017: a full pipe is no error."""
        with box.within(10):
            assert box.exec(["sh", "-c", "sleep 2; wc -c"], stdin=b"x" * (1 << 20)).stdout.strip() == "1048576"

    def test_c017_large_input_to_many(self, box: Box):
        """C017 kin: eight filters at once, none gets a byte of another's input."""
        size = 1 << 20 if box.kind != "vm" else 256 << 10

        def one(i):
            data = bytes([i]) * size
            return box.exec(["cat"], stdin=data, text=False).stdout == data

        assert all(parallel(one, range(8), 8))

    def test_c049_program_ends_without_reading_its_input(self, box: Box):
        """C049, fault: the write to a program that is gone kills or confuses the runner; its exit code is lost."""
        for _ in range(box.n(20, 5)):
            with box.within(1):
                r = box.exec(["sh", "-c", "exit 3"], stdin=b"x" * (1 << 20))
            assert r.exit_code == 3 and r.signal is None
        box.sandbox.ping()

    def test_c049_endless_input_is_stopped(self, box: Box):
        """C049: `head -n 1` of endless input gives the first line, and the client is told to stop."""
        with box.within(2):
            r = box.exec(["head", "-n", "1"], stdin=endless())
        assert (r.stdout, r.exit_code) == ("line\n", 0)

    def test_c049_program_closes_its_input_and_goes_on(self, box: Box):
        """C049: input closed by the program in the middle; the rest of it still counts."""
        with box.within(3):
            r = box.exec(["sh", "-c", "exec 0<&-; sleep 1; echo ok"], stdin=b"x" * (4 << 20))
        assert (r.stdout, r.exit_code) == ("ok\n", 0)
        with box.within(3):
            assert box.exec(["sh", "-c", "exec 0<&-; sleep 1; echo ok"], stdin=endless()).stdout == "ok\n"
        with box.stream("exec 0<&-; sleep 1; exit 5", stdin=True) as s:
            deadline = time.monotonic() + 20
            with pytest.raises(BrokenPipeError):
                while time.monotonic() < deadline:
                    s.write(b"x" * 65536)
            assert s.wait(20).exit_code == 5

    def test_output_limit_keeps_counts_and_says_so(self, box: Box):
        """Per-stream cap: the rest is read and counted, the program is not stalled, each stream has its own."""
        r = box.exec("seq 1 20000; echo e >&2; exit 4", output_limit=1000)
        whole = "".join(f"{i}\n" for i in range(1, 20001))
        assert r.stdout == whole[:1000] and r.stdout_bytes == len(whole) and r.stdout_truncated and r.truncated
        assert r.stderr == "e\n" and not r.stderr_truncated and r.exit_code == 4
        exact = box.exec("printf 1234", output_limit=4)
        assert exact.stdout == "1234" and not exact.truncated
        over = box.exec("printf 12345", output_limit=4)
        assert over.stdout == "1234" and over.truncated and over.stdout_bytes == 5

    def test_merged_streams_keep_their_order(self, box: Box):
        script = "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done"
        r = box.exec(script, merge_stderr=True)
        assert r.stdout == "".join(f"o{i}\ne{i}\n" for i in range(1, 10)) and r.stderr == "" and r.stderr_bytes == 0

    def test_output_comes_while_the_command_runs(self, box: Box):
        """Streaming: a piece is there long before the end."""
        with box.stream("echo first; read line; echo second $line", stdin=True) as s:
            assert s.read(20).data == "first\n"
            s.write("x\n")
            assert s.read(20).data == "second x\n"
            assert s.wait(20).exit_code == 0
