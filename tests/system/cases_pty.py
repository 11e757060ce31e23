# SPDX-License-Identifier: Apache-2.0
"""Commands on a PTY. Each case is named after reference cases C0xx; run on every rig."""

from __future__ import annotations

import time

import pytest

import hutch
from box import Box, Reader, parallel


def output(stream) -> str:
    return "".join(p.data for p in stream)


def shells(box: Box):
    """The interactive shells that are here; a VM's base template has busybox alone."""
    found = [["sh", "-i"]]
    for argv in (["bash", "--norc", "-i"], ["busybox", "sh", "-i"], ["dash", "-i"]):
        if box.exec(["which", argv[0]]).exit_code == 0:
            found.append(argv)
    return found


class PtyCases:
    def test_c009_output_of_a_short_command_is_whole(self, box: Box):
        """C009, fault: the exit is reported before the PTY was drained; EIO at its end is told as a failure. 500 runs."""

        def one(_):
            with box.pty(["sh", "-c", "printf 'pty-ok\\n'"]) as s:
                text = output(s)
                return text, s.wait().exit_code

        assert set(parallel(one, range(box.n(500, 50)), 4)) == {("pty-ok\r\n", 0)}

    def test_c009_large_output(self, box: Box):
        """C009: 300000 bytes through a PTY, and as another user."""
        for user in box.users:
            with box.pty(["sh", "-c", "head -c 300000 /dev/zero | tr '\\0' a"], user=user) as s:
                assert output(s) == "a" * 300000 and s.wait().exit_code == 0

    def test_c025_job_control(self, box: Box):
        """C025, fault: the PTY is no controlling terminal of a session of its own; ctrl-C and ctrl-Z do nothing."""
        # it says when it runs and when it was continued, so that no key is pressed before; it does not fork, since a
        # child that is stopped between vfork(2) and execve(2) leaves its parent, the job, unstoppable
        job = """sh -c 'trap "echo conti""nued" CONT; echo runn""ing; while :; do :; done'\n"""
        for argv in shells(box):
            with box.pty(argv, env={"PS1": "P> ", "ENV": None}) as s:
                r = Reader(s)
                r.until("P> ", 20)
                s.write(job)
                r.until("running\r\n", 20)
                s.write("\x03")
                r.until("P> ", 20)
                with box.within(1):
                    s.write("echo rc=$?\n")
                    r.until("rc=130", 20)
                s.write(job)
                r.until("running\r\n", 20)
                s.write("\x1a")
                r.until("P> ", 20)
                s.write("jobs\n")
                r.until("topped", 20)
                s.write("fg\n")
                r.until("continued\r\n", 20)
                s.write("\x03")
                r.until("P> ", 20)
                s.write("exit 5\n")
                seen = r.rest(20)
                assert s.wait(20).exit_code == 5, (argv, seen)
                assert "job control" not in seen and "access tty" not in seen, (argv, seen)

    def test_c025_no_terminal_without_a_pty(self, box: Box):
        """C025: without a PTY there is no /dev/tty, not even the console."""
        for options in ({}, {"stdin": "x"}, {"user": box.users[-1]}):
            r = box.exec(["sh", "-c", "echo > /dev/tty"], **options)
            assert r.exit_code != 0 and "No such device or address" in r.stderr, r

    @pytest.mark.parametrize("pause", [0, 3])
    def test_c026_large_paste(self, box: Box, pause):
        """C026, fault: a blocking write of a paste while the echo fills the other direction. Also with a reader that is away."""
        paste = ("x" * 79 + "\n") * 3072
        with box.tmp() as tmp, box.within(10 + pause):
            with box.pty(["sh", "-c", f"echo up; cat > {tmp}/p"]) as s:
                Reader(s).until("up\r\n", 20)
                s.write(paste[:65536])
                time.sleep(pause if box.kind != "vm" else min(pause, 1))  # the case's own pause: a client that does not read
                s.write(paste[65536:])
                s.write("\x04")
                assert s.wait(60).exit_code == 0
            assert box.exec(["cat", f"{tmp}/p"]).stdout == paste

    def test_c033_size_is_there_before_the_program(self, box: Box):
        """C033, fault: the first size comes after the program has started. 200 runs; default 24 x 80."""

        def one(_):
            with box.pty(["stty", "size"], rows=68, cols=212) as s:
                return output(s)

        assert set(parallel(one, range(box.n(200, 30)), 4)) == {"68 212\r\n"}
        with box.pty(["stty", "size"]) as s:
            assert output(s) == "24 80\r\n"
        params = {"argv": ["stty", "size"], "pty": {}}
        with hutch.ExecStream.open(box.client, "exec.start", params, vm=box.vm, id=f"s{time.monotonic_ns()}") as s:
            assert output(s) == "24 80\r\n"

    @pytest.mark.parametrize("rows, cols", [(0, 80), (24, 0), (70000, 80), (24, 65536)])
    def test_c033_impossible_sizes_are_refused(self, box: Box, rows, cols):
        with pytest.raises(hutch.Invalid):
            box.pty(["true"], rows=rows, cols=cols)
        with box.pty(["sleep", "60"]) as s:
            with pytest.raises(hutch.Invalid):
                s.resize(rows, cols)
            s.kill()

    def test_resize_is_seen_and_signalled(self, box: Box):
        with box.pty(["sh", "-c", "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done"]) as s:
            r = Reader(s)
            r.until("up\r\n", 20)
            s.resize(40, 100)
            r.until("40 100\r\n", 20)
            s.resize(300, 1000)
            r.until("300 1000\r\n", 20)
            s.kill()

    def test_resize_without_a_pty_is_refused(self, box: Box):
        with box.stream(["sleep", "60"]) as s:
            with pytest.raises(hutch.HutchError) as caught:
                s.resize(10, 10)
            assert caught.value.kind in ("invalid", "state")
            s.kill()

    def test_c038_reattach_gives_everything_once_and_in_order(self, box: Box):
        """C038, fault: output between two connections is lost or shown twice. L0..L99, one each 50 ms (VM: 20 ms)."""
        step, away = ("0.05", 2.0) if box.kind != "vm" else ("0.02", 0.5)
        script = f"i=0; while [ $i -lt 100 ]; do echo L$i; sleep {step}; i=$((i+1)); done; exit 4"
        id = box.sandbox.commands.start(["sh", "-c", script], pty={"rows": 24, "cols": 80})
        first = box.sandbox.attach(id, stdout_after=0)
        pid, before = first.pid, ""
        while "L19\r\n" not in before:
            before += first.read(20).data
        offset = first.stdout_offset
        first._connection.close()  # no goodbye
        time.sleep(away)  # the case's own time without a reader
        with box.sandbox.attach(id, stdout_after=offset, capture=True) as again:
            assert again.pid == pid
            after = output(again)
            r = again.wait(30)
        assert before + after == "".join(f"L{i}\r\n" for i in range(100))
        assert r.exit_code == 4 and not r.gaps

    def test_c038_overflow_is_told_as_a_gap(self, box: Box):
        """C038: what a detached command wrote beyond the ring is named, and the rest follows without a hole."""
        id = box.sandbox.commands.start("seq 1 300000; exit 2")
        assert box.sandbox.commands.wait(id, 60).exit_code == 2
        whole = "".join(f"{i}\n" for i in range(1, 300001))
        with box.sandbox.attach(id, stdout_after=0, capture=True) as s:
            r = s.wait(60)
        if r.gaps:
            (stream, start, end), = r.gaps
            assert stream == "stdout" and start == 0 and r.stdout == whole[end:]
        else:
            assert r.stdout == whole
        assert r.stdout and r.exit_code == 2

    def test_several_viewers_see_the_same(self, box: Box):
        with box.pty(["sh", "-c", "read x; i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); done"]) as s:
            with box.sandbox.attach(s.id) as a, box.sandbox.attach(s.id, tail=True) as b:
                assert (a.size, b.size) == ((24, 80), (24, 80))
                s.write("go\n")
                want = "go\r\n" + "".join(f"{i}\r\n" for i in range(200))
                assert output(s) == output(a) == output(b) == want

    def test_stalled_viewer_stalls_nobody(self, box: Box):
        """C012's fault among the viewers of one exec: only the one that does not read loses something, and is told."""
        with box.stream("read x; seq 1 400000", stdin=True) as s:
            with box.sandbox.attach(s.id, capture=True) as viewer:
                s.write("go\n")
                whole = "".join(f"{i}\n" for i in range(1, 400001))
                assert output(s) == whole
                assert s.wait(60).exit_code == 0
                r = viewer.wait(60)
                at = 0
                parts, rest = [], r.stdout
                for stream, start, end in r.gaps:
                    assert stream == "stdout" and end > start
                    parts.append(rest[: start - at])
                    rest, at = rest[start - at :], end
                    parts.append(whole[start:end])
                assert "".join(parts) + rest == whole

    def test_c080_end_of_input(self, box: Box):
        """C080, fault: end of input on a PTY hangs readers or cuts lines. 0x04, close_stdin, and after half a line."""
        for data, end, want in [("a\nb\n", "key", "2"), ("a\nb\n", "close", "2"), ("", "close", "0"), ("a\nb", "close", "1")]:
            with box.pty(["sh", "-c", "stty -echo; echo up; wc -l"]) as s:
                r = Reader(s)
                r.until("up\r\n", 20)
                s.write(data) if data else None
                s.write("\x04") if end == "key" else s.close_stdin()
                assert r.rest(20).endswith(f"{want}\r\n"), (data, end, r.seen)
                assert s.wait(20).exit_code == 0
        for i in range(box.n(30, 5)):
            with box.pty(["cat"]) as s:
                s.write("hello\n")
                s.close_stdin()
                assert output(s).count("hello\r\n") == 2 and s.wait(20).exit_code == 0

    def test_c080_end_through_another_connection(self, box: Box):
        with box.pty(["wc", "-l"]) as s:
            s.write("a\nb\nc\n")
            Reader(s).until("c\r\n", 20)
            box.sandbox.commands.close_stdin(s.id)
            assert output(s).endswith("3\r\n") and s.wait(20).exit_code == 0

    def test_c080_closed_client_is_no_end_of_input(self, box: Box):
        """C080: on a lost connection the terminal gets neither EOF nor a hang-up."""
        id = box.sandbox.commands.start(["sh", "-c", "echo up; read x; echo got=$x rc=$?"], stdin=True, pty={})
        first = box.sandbox.attach(id)
        Reader(first).until("up\r\n", 20)
        first.close()
        box.sandbox.commands.send_stdin(id, "later\n")
        with box.sandbox.attach(id, stdout_after=0) as again:
            assert "got=later rc=0" in output(again) and again.wait(20).exit_code == 0

    def test_pty_is_8_bit_clean_in_raw_mode(self, box: Box):
        with box.pty(["sh", "-c", "stty raw -echo; echo up; head -c 256"], text=False) as s:
            seen = b""
            while b"up" not in seen:
                seen += s.read(20).data
            s.write(bytes(range(256)))
            seen += b"".join(p.data for p in s)
            assert seen.endswith(bytes(range(256))) and s.wait(20).exit_code == 0

    def test_terminal_belongs_to_the_user(self, box: Box):
        """The terminal is one for its user too: it can open /dev/tty and its own device."""
        for user in box.users:
            with box.pty(["sh", "-c", "echo a > /dev/tty; echo b > $(tty); test -t 0 -a -t 1 -a -t 2 && echo c"], user=user) as s:
                assert output(s) == "a\r\nb\r\nc\r\n", user
